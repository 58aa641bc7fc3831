"""The main loop: takes orders one at a time and answers them, until the host hangs up.

A line that is not an order is named on standard error and has no answer.
"""

import gc
import sys

from .own import GENERATION, HERE, __builtins__
from . import carry, complete, variables
from .channel import Channel, decode
from .compact import Arenas, join_libraries, tidy_heap
from .display import describe
from .errors import failure
from .gate import Gate
from .run import Session
from .streams import Streams
from .wake import Waker
from os import _exit, register_at_fork
from os.path import dirname


class Server:
    def __init__(self):
        self.arenas = Arenas()
        self.gate = Gate()
        self.gate.install()
        self.channel = Channel(self.gate)
        self.streams = Streams()
        self.session = Session(self.channel, self.gate, self.streams)
        self.waker = Waker(self.session)
        self.session.desk.wake = self.wake_inside
        self.orders = {
            "exec": self.execute,
            "wake": self.wake,
            "vars": self.vars,
            "complete": self.complete,
            "freeze": self.freeze,
            "save": self.save,
            "load": self.load,
            "input": self.too_late,
            "tool": self.too_late,
        }

    def serve(self):
        while True:
            line = self.channel.receive()
            if line is None:
                _exit(0)
            try:
                self.obey(line)
            except BaseException as error:
                self.streams.complain("agent: order not understood: %s" % describe(error))
            if not self.channel.ours():
                _exit(1)  # a child that user code forked in the middle of an order

    def obey(self, line):
        order = decode(line.decode())
        self.orders[order["op"]](order)

    def ready(self):
        version = sys.version.split()[0]
        report = {"generation": GENERATION, "language": "python", "version": version}
        self.channel.send({"type": "ready", **report, "orders": list(self.orders)})

    def execute(self, order):
        seq, code, most = order["seq"], order["code"], order["max_bytes"]
        self.session.parts.most = order.get("max_whole", 0)
        self.session.desk.allowed = order.get("tools", False)
        try:
            self.session.execute(seq, code, most, order.get("input", False))
        except BaseException as error:
            # user code has broken something the agent relies on: the order must still be answered
            report = {"seq": seq, "runtime_ms": 0.0, "error": failure(error), "how": "failed"}
            self.channel.send({"type": "done", **report})

    def too_late(self, _order):
        """An answer for an instruction that was interrupted while it waited for one."""

    def wake(self, order):
        changed = self.guarded(self.waker.wake, order) or []
        self.channel.send({"type": "awake", "generation": GENERATION, "changed": changed})

    def wake_inside(self, order):
        """The same in the middle of an instruction, which waits for the result of a tool."""
        changed = []
        try:
            changed = self.waker.wake(order)
        finally:
            self.channel.send({"type": "awake", "generation": GENERATION, "changed": changed})

    def guarded(self, function, *arguments):
        """Calls a function that may run user code; None if it failed."""
        value, error = self.gate.run(self.prepared, function, arguments)
        if error is not None:
            self.streams.complain("agent: %s failed: %s" % (function.__name__, describe(error)))
        self.streams.flush()
        return value

    def prepared(self, function, arguments):
        self.session.prepare()
        return function(*arguments)

    def vars(self, _order):
        found = self.guarded(variables.describe, self.session.scope)
        self.channel.send({"type": "vars", "vars": found or []})

    def complete(self, order):
        code, cursor = order["code"], order["cursor"]
        found = self.guarded(complete.complete, code, cursor, self.session.scope)
        start, names = found or (cursor, [])
        self.channel.send({"type": "complete", "start": start, "names": names})

    def freeze(self, _order):
        import asyncio  # so that the first `await` of a machine finds it here

        self.guarded(self.waker.rehearse)
        self.arenas.release()
        gc.collect()
        tidy_heap()
        join_libraries()
        gc.freeze()
        self.channel.send({"type": "frozen"})

    def save(self, order):
        names, path = order["names"], order["path"]
        self.carried(self.guarded(carry.save, self.session.scope, names, path))

    def load(self, order):
        self.carried(self.guarded(carry.load, self.session.scope, order["path"]))

    def carried(self, found):
        names, failed = found or ([], {"*": "failed; standard error says why"})
        self.channel.send({"type": "carried", "names": names, "failed": failed})


def settle_in():
    """Makes this process look like one that was started to run the user's code."""
    sys.argv[:] = [""]
    sys.path[0] = ""
    sys.path.append(dirname(HERE))
    if sys.version_info >= (3, 14):
        prefer_fork()


def prefer_fork():
    """Lets worker processes see the session's definitions, as before Python 3.14."""
    from multiprocessing import context

    default, kinds = context._default_context, getattr(context, "_concrete_contexts", {})
    if hasattr(default, "_default_context") and "fork" in kinds:
        default._default_context = kinds["fork"]


def main():
    settle_in()
    server = Server()
    register_at_fork(before=server.streams.flush, after_in_child=server.channel.leave)
    server.session.prepare()
    server.ready()
    server.serve()
