"""Proves: a shell at a terminal survives with its stopped jobs: Ctrl-Z, jobs, bg, fg, SIGCONT.
How: an interactive bash runs on a pseudo-terminal, its jobs stopped by the terminal's own suspend character; a check
lists them, sees that nothing of them runs, lets one run in the background, and suspends it from the foreground."""

import os
import pty
import re
import select
import time

import program

PROMPT = b"<ready>"
WORKER = "bash -c ': > ran-%d; echo begun; while :; do echo >> ran-%d; sleep 0.02; done'"
steps = 0
shown = b""


def read_until(word, patience=program.PATIENCE):
    """What the terminal shows up to a word; None when that does not come, and then nothing of it is lost."""
    global shown
    end = time.monotonic() + patience
    while word not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        if not ready:
            return None
        shown += os.read(terminal, 4096)
    text, shown = shown, b""
    return text.decode().replace("\r", "")


def tell(command):
    """Runs a command and returns what it shows, without the prompt."""
    os.write(terminal, command.encode() + b"\n")
    said = read_until(PROMPT)
    if said is None:
        raise TimeoutError(f"no prompt after {command}")
    return said.removesuffix(PROMPT.decode()).strip()


def suspend(command, sign):
    """Runs a command in the foreground and types Ctrl-Z until the shell is back: one that comes before the job has
    the terminal goes to the shell, which does not mind."""
    os.write(terminal, command.encode() + b"\n")
    begun, back, end = read_until(sign), None, time.monotonic() + program.PATIENCE
    while back is None and time.monotonic() < end:
        os.write(terminal, b"\x1a")
        back = read_until(PROMPT, 0.25)
    program.expect(f"suspended by the terminal: {command}", begun is not None and back is not None)


def jobs():
    return re.findall(r"\[(\d)\].?\s+(Stopped|Running)", tell("jobs"))


def runs(job):
    """Whether a job does anything for a while."""
    before = os.stat(f"ran-{job}").st_size
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        time.sleep(0.01)
    return os.stat(f"ran-{job}").st_size > before


def setup():
    global terminal
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PS1=PROMPT.decode(), PS2="", TERM="dumb")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
    read_until(PROMPT)
    tell("stty -echo noflsh")  # what the shell shows stays when Ctrl-Z is typed once more
    for job in (1, 2):
        suspend(WORKER % (job, job), b"begun")


def check():
    stopped = [("1", "Stopped"), ("2", "Stopped")]
    program.expect("jobs", jobs(), stopped)
    program.expect("stopped jobs run", [runs(1), runs(2)], [False, False])
    tell("bg %2")
    program.expect("jobs, one in the background", jobs(), [("1", "Stopped"), ("2", "Running")])
    program.expect("the job in the background runs", program.within_patience(lambda: runs(2)))
    suspend("fg %2", b"sleep")
    program.expect("jobs afterwards", jobs(), stopped)
    program.expect("stopped jobs run afterwards", [runs(1), runs(2)], [False, False])


def step():
    global steps
    steps += 1
    tell(f"count={steps}")


def finish():
    tell("kill -KILL %1 %2; wait")
    os.close(terminal)


program.run(setup, check, step, lambda: (steps, tell("echo $count")), finish)
