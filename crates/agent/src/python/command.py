# Runs one command of a client beside the session, as `spec` says. Prints its output, its end, or
# why it could not start, as JSON.
import errno, json, os, pty, select, signal, subprocess, sys, tempfile, time, types

CAP = spec["cap"]
jobs = sys.modules.setdefault("stasis_jobs", types.ModuleType("stasis_jobs")).__dict__


def tell(**answer):
    display({"application/json": answer, "text/plain": ""}, raw=True)


def text(file, cap=CAP):
    size = file.seek(0, 2)
    file.seek(max(0, size - cap))
    return file.read(cap).decode("utf-8", "replace")


def group(pid, number):
    try:
        os.killpg(pid, number)
    except OSError:
        pass


def failure(error):
    missing = isinstance(error, FileNotFoundError)
    code = 127 if missing else 126
    kind = "not_found" if missing else "not_started"
    tell(stdout="", stderr="", exit_code=code, error="%s: %s" % (type(error).__name__, error), kind=kind)


def options():
    env = {**os.environ, **spec["env"]}
    return {"env": env, "cwd": spec["cwd"] or None}


def given():
    if spec["stdin"] is None:
        return subprocess.DEVNULL
    file = tempfile.TemporaryFile()
    file.write(spec["stdin"].encode("utf-8", "surrogateescape"))
    file.seek(0)
    return file


def finish(out, err, code, late):
    answer = {"stdout": text(out), "stderr": text(err), "exit_code": code}
    if late:
        answer["error"] = "TimeoutExpired: the command ran longer than %s s" % spec["timeout"]
        answer["kind"] = "timeout"
    tell(**answer)


def wait(child, seconds):
    try:
        return child.wait(seconds), False
    except subprocess.TimeoutExpired:
        group(child.pid, signal.SIGKILL)
        child.wait()
        return 124, True
    except BaseException:
        group(child.pid, signal.SIGKILL)
        raise


def plain():
    streamed = spec["stream"]
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = subprocess.Popen(
        spec["args"], stdin=given(), stdout=None if streamed else out,
        stderr=None if streamed else err, start_new_session=True, **options()
    )
    code, late = wait(child, spec["timeout"])
    finish(out, err, code if code >= 0 else 128 - code, late)


LEAD = """
import fcntl, os, sys, termios
told = int(sys.argv[1])
os.set_inheritable(told, False)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(told, str(error.errno).encode())
    os._exit(127)
"""


def started_on(slave):
    """A command whose terminal is `slave`; raises what kept it from starting."""
    asked, told = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-Ic", LEAD, str(told), *spec["args"]], stdin=slave, stdout=slave,
            stderr=slave, start_new_session=True, pass_fds=[told], **options()
        )
    except BaseException:
        os.close(asked)
        raise
    finally:
        os.close(told)
        os.close(slave)
    with open(asked, "rb") as asked:
        number = asked.read()
    if number:
        child.wait()
        raise OSError(int(number), os.strerror(int(number)), spec["args"][0])
    return child


def terminal():
    master, slave = pty.openpty()
    try:
        converse(master, started_on(slave))
    finally:
        os.close(master)


def converse(master, child):
    """Types what is given and hears what is said, until the command ends or its time is over."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    # end-of-file is a key of its own
    left = spec["stdin"].encode("utf-8", "surrogateescape") + b"\x04" if spec["stdin"] else b""
    os.set_blocking(master, False)
    end = time.monotonic() + spec["timeout"]
    late = False
    while not late:
        # checked before: its output up to then can be read
        ended = child.poll() is not None
        readable, writable, _ = select.select([master], [master] if left else [], [], 0.05)
        try:
            if readable:
                piece = os.read(master, 65536)
                out.write(piece)
                if spec["stream"]:
                    sys.stdout.write(piece.decode("utf-8", "replace"))
                    sys.stdout.flush()
            elif ended:
                break
            if writable:
                left = left[os.write(master, left[:1024]):]
        except BlockingIOError:
            pass
        except OSError:
            break
        late = time.monotonic() > end
    code, late = wait(child, 0 if late else max(0, end - time.monotonic()))
    if spec["stream"]:
        out.seek(0)
        out.truncate()
    finish(out, err, code if code >= 0 else 128 - code, late)


def background():
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = subprocess.Popen(
        spec["args"], stdin=given(), stdout=out, stderr=err, start_new_session=True, **options()
    )
    number = str(len([key for key in jobs if key.startswith("job")]) + 1)
    jobs["job" + number] = (child, out, err)
    tell(job=number, pid=child.pid, running=True, stdout="", stderr="", exit_code=None)


def look():
    found = jobs.get("job" + spec["job"])
    if found is None:
        return tell(missing=True)
    child, out, err = found
    if spec["kill"]:
        group(child.pid, signal.SIGKILL)
        child.wait()
    code = child.poll()
    code = 128 - code if code is not None and code < 0 else code
    tell(
        job=spec["job"], pid=child.pid, running=code is None, stdout=text(out), stderr=text(err),
        exit_code=code
    )


try:
    if spec["job"] is not None:
        look()
    elif spec["background"]:
        background()
    elif spec["tty"]:
        terminal()
    else:
        plain()
except (OSError, ValueError) as error:
    failure(error)
