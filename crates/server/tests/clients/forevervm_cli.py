"""Drives foreverVM's published CLI through every command it has, against a service of ours.

    forevervm_cli.py FOREVERVM BASE_URL TOKEN

Prompts want a terminal, so the CLI always gets one; its standard output is a pipe where a test
reads it. Nothing here waits for a time: only for the CLI's own words, and for its end.
"""

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time

cli, base, token = sys.argv[1:]
home = tempfile.mkdtemp(prefix="forevervm-")
config = os.path.join(home, ".config/forevervm/config.json")
environment = {"HOME": home, "PATH": os.environ["PATH"], "TERM": "xterm"}
PATIENCE = 300
TOKEN = "Enter your token"


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def on_terminal(args, talk=()):
    """Runs a command on a terminal. `talk` is patterns to wait for, with what to type then."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(cli, [cli, *args], environment)
    said, heard, talk, end = "", 0, list(talk), time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < end, f"{args} hangs: {said}"
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            piece = b""
        if not piece:
            break
        said += piece.decode(errors="replace")
        while talk and (found := re.compile(talk[0][0]).search(plain(said), heard)):
            heard = found.end()
            pattern, typed = talk.pop(0)
            if pattern == TOKEN:
                # what is typed before it stops the echo is thrown away by the CLI
                while termios.tcgetattr(terminal)[3] & termios.ECHO:
                    assert time.monotonic() < end, f"{args} echoes what is secret: {said}"
                    time.sleep(0.01)
            os.write(terminal, typed.encode() + b"\r")
    os.close(terminal)
    assert not talk, f"{args} never said {talk[0][0]!r}: {said}"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), plain(said)


def run(*args, feed=""):
    """Runs a command without a terminal; its standard output."""
    done = subprocess.run(
        [cli, *args], input=feed, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return plain(done.stdout), plain(done.stderr)


def signing_up_and_in():
    code, said = on_terminal(
        ["signup", "--api-base-url", base],
        [("Enter your email", "me@example.com"), ("Give your account a name", "somebody")],
    )
    assert code == 1 and "account.signup" in said, said
    code, said = on_terminal(["login", "--api-base-url", base], [(TOKEN, "a.b")])
    assert code == 1 and "token.unknown" in said and not os.path.exists(config), said
    code, said = on_terminal(["login", "--api-base-url", base], [(TOKEN, token)])
    assert code == 0 and "Logged in as root" in said, said
    written = json.load(open(config))
    assert written == {"token": token, "server_url": base + "/"}, written
    assert "Already logged in as root" in run("login", "--api-base-url", base)[0]
    assert "Already logged in" in run("signup", "--api-base-url", base)[0]
    assert run("whoami")[0] == f"Logged in to {base}/ as root\n"


def machines():
    tag = f"cli={os.getpid()}"
    made, _ = run("machine", "new", "--tag", tag, "--tag", "formula=a=b")
    name = re.fullmatch(r"Created machine (\S+)\n", made).group(1)
    assert name in run("machine", "list")[0]
    listed, _ = run("machine", "list", "--tag", tag)
    assert listed.startswith(f"Machines:\n{name}\n  Created: "), listed
    for line in ("  Expires: never\n", "  Status:  idle\n", "  Tag: formula = a=b\n"):
        assert line in listed, listed
    assert re.search(r"  Running: (true|false)\n", listed), listed
    assert run("machine", "list", "--tag", "cli=nobody")[0] == "Machines:\n"
    return name


def session(*args, lines):
    """A session of the REPL without a terminal, where nothing is echoed.

    The CLI loses an acknowledgement that comes before its other thread expects one. The service
    holds it back for a while, which a busy host can make too short: such a session is repeated.
    """
    feed = "".join(line + "\n" for line in lines)
    for _ in range(10):
        try:
            said, wrong = run(*args, feed=feed)
        except subprocess.TimeoutExpired:
            continue
        if "Instruction interrupted" not in wrong:
            return said, wrong
    raise AssertionError(f"interrupted every time: {said} {wrong}")


def repl(name):
    lines = ["x = 'state'", "1 + 1", "print('line')", "1 / 0", "for i in range(30): print(i)"]
    said, wrong = session("repl", name, lines=lines)
    out = said.replace(">>> ", "").splitlines()
    assert out == [f"Connected to {name}", "2", "line", *map(str, range(30))], said
    assert "ZeroDivisionError" in wrong and wrong.endswith("Error: EOF\n"), wrong
    said, _ = session("machine", "repl", name, lines=["x"])
    assert "'state'" in said, said
    late = ["import time; time.sleep(60)"]
    _, wrong = session("repl", name, "--instruction-timeout-seconds", "1", lines=late)
    assert "Timed out" in wrong, wrong
    for args in (["repl"], ["repl", "new"]):
        said, _ = session(*args, lines=["6 * 7"])
        assert "42" in said and "Connected to " in said, said


def on_a_terminal(name):
    """Ctrl-C leaves the REPL. An instruction whose acknowledgement is lost ends there, too."""
    after = r"('on a terminal'|interrupted)\n+>>> "
    code, said = on_terminal(["repl", name], [(">>> ", "'on a ' + 'terminal'"), (after, "\x03")])
    assert code == 0 and f"Connected to {name}" in said, said


def failures():
    done = subprocess.run([cli, "repl", "no-such-machine"], env=environment, capture_output=True)
    assert done.returncode == 1 and b"404" in done.stderr, done


def out():
    assert "Successfully logged out" in run("logout")[0]
    assert json.load(open(config))["token"] is None
    assert "Not currently logged in" in run("logout")[0]
    done = subprocess.run([cli, "whoami"], env=environment, capture_output=True)
    assert done.returncode == 1 and b"Not logged in" in done.stderr, done


signing_up_and_in()
own = machines()
repl(own)
on_a_terminal(own)
failures()
out()
