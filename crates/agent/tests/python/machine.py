"""Starts an agent as the host does, and speaks with it: a socket as descriptor 3, two pipes."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

AGENT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
LIMIT = 120.0  # against hangs only

# Makes the passed descriptor number 3 before the interpreter under test starts.
START = """
import os, sys
passed = int(sys.argv[1])
if passed != 3:
    os.dup2(passed, 3)
    os.close(passed)
os.set_inheritable(3, True)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Hang(AssertionError):
    pass


class Machine:
    def __init__(self, env=None, cwd=None):
        self.socket, theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.home = tempfile.TemporaryDirectory()
        self.pipes = {out_read: "stdout", err_read: "stderr"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs.fileno()), sys.executable, AGENT],
            stdin=subprocess.DEVNULL,
            stdout=out_write,
            stderr=err_write,
            pass_fds=[theirs.fileno()],
            cwd=cwd or self.home.name,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
            start_new_session=True,
        )
        for descriptor in (out_write, err_write):
            os.close(descriptor)
        theirs.close()
        for descriptor in self.pipes:
            os.set_blocking(descriptor, False)
        self.buffer = b""
        self.output = []
        self.seq = -1
        self.ready = self.expect("ready")

    def close(self):
        """Hangs up. Returns how the agent exited."""
        self.socket.close()
        try:
            code = self.process.wait(LIMIT)
        finally:
            self.process.kill()
            for descriptor in self.pipes:
                os.close(descriptor)
            self.home.cleanup()
        return code

    def order(self, **order):
        self.socket.sendall(json.dumps(order).encode() + b"\n")

    def pump(self, seconds):
        """Reads available data, in order. False if there was none."""
        ready, _, _ = select.select([*self.pipes, self.socket], [], [], seconds)
        for descriptor in ready:
            if descriptor is self.socket:
                data = self.socket.recv(1 << 20)
                if not data:
                    raise EOFError("the agent hung up: %r" % self.output)
                self.buffer += data
            else:
                self.take(descriptor)
        return bool(ready)

    def take(self, descriptor):
        try:
            data = os.read(descriptor, 1 << 20)
        except BlockingIOError:
            return
        if data:
            self.output.append((self.pipes[descriptor], data))

    def report(self, limit=LIMIT):
        end = time.monotonic() + limit
        while b"\n" not in self.buffer:
            if not self.pump(0.2) and time.monotonic() > end:
                raise Hang("no report; output so far: %r" % self.output)
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def expect(self, kind, limit=LIMIT):
        report = self.report(limit)
        assert report["type"] == kind, report
        return report

    def begin(self, code, most=1 << 20, **more):
        self.seq += 1
        self.output = []
        self.displays = []
        self.order(op="exec", seq=self.seq, code=code, max_bytes=most, **more)

    def finish(self, limit=LIMIT):
        report = self.report(limit)
        while report["type"] == "display":
            self.displays.append(report)
            self.output.append(("display", b""))
            report = self.report(limit)
        assert report["type"] == "done" and report["seq"] == self.seq, report
        while self.pump(0):
            pass
        return report

    def run(self, code, most=1 << 20):
        """Runs an instruction to its Done."""
        self.begin(code, most)
        return self.finish()

    def value(self, code):
        report = self.run(code)
        assert "error" not in report, report["error"]["traceback"]
        return report.get("value")

    def error(self, code):
        report = self.run(code)
        assert "error" in report, report
        return report["error"]

    def stream(self, name):
        return b"".join(data for kind, data in self.output if kind == name).decode()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def wait_output(self, text, limit=LIMIT):
        """Waits until the running instruction has printed something."""
        end = time.monotonic() + limit
        while text not in self.stream("stdout"):
            if not self.pump(0.2) and time.monotonic() > end:
                raise Hang("waited for %r, got %r" % (text, self.output))

    def wake(self, reason="branch", entropy="00" * 32, reseed=False, env=None, machine="m1"):
        self.output = []
        env = env or {}
        self.order(
            op="wake", reason=reason, machine=machine, entropy=entropy, reseed=reseed, env=env
        )
        report = self.expect("awake")
        while self.pump(0):
            pass
        return report["changed"]


class OneMachine:
    """Gives the tests of a class one machine, and a fresh one after a test that lost it."""

    machine = None
    env = None

    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(cls.env)

    @classmethod
    def tearDownClass(cls):
        cls.machine.close()

    def setUp(self):
        if self.machine.process.poll() is not None:
            type(self).machine = Machine(self.env)
