"""Runs instructions in one namespace, the module `__main__`.

    source ─► compile ─(fails)─► transform ─► compile
                 │
                 ▼
    all but the last expression, then its value ─► repr, MIME bundle, figures ─► Done

Every instruction ends with a Done, even `exit()`, and even if it changed the limits, the streams,
the signals or the modules that the next one needs: `prepare` restores them.
"""

import __future__ as futures
import builtins
import sys

from .own import __builtins__
from . import stdin, tools, touched
from .aio import Loop
from .channel import decode
from .display import Formatter, fit, shorten
from .errors import failure, how, nameless, printed
from .figures import Figures
from .magics import Magics
from .parts import Parts
from .transform import transform
from _thread import get_ident
from _ast import Expr, Expression, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST
from collections import deque
from inspect import CO_COROUTINE
from linecache import cache as sources
from os import _exit
from sys import getrecursionlimit, gettrace, getprofile, setprofile, setrecursionlimit, settrace
from time import perf_counter
from types import CodeType, ModuleType

FUTURES = 0
for _name in futures.all_feature_names:
    FUTURES |= getattr(futures, _name).compiler_flag

# Recursion depth for formatting an answer, whatever limit the user's code set for itself.
OWN_LIMIT = 1000
MOST_SOURCES = 2000


class Session:
    def __init__(self, channel, gate, streams):
        self.channel = channel
        self.gate = gate
        self.streams = streams
        self.module = ModuleType("__main__")
        self.scope = self.module.__dict__
        self.flags = 0
        self.limit = getrecursionlimit()
        self.running = None
        self.kept = deque()
        self.marked = set()
        self.formatter = Formatter(streams)
        self.figures = Figures(self)
        self.figures.install()
        self.magics = Magics(self)
        self.loop = Loop(gate)
        self.parts = Parts(channel)
        self.desk = tools.install(self)

    def prepare(self):
        """Restores everything an instruction relies on, whatever the last one changed."""
        self.gate.install()
        self.gate.soften = None
        self.streams.ensure()
        stdin.ensure()
        self.magics.install()
        builtins.display = self.display
        sys.modules["__main__"] = self.module
        for name, value in (("__name__", "__main__"), ("__builtins__", builtins)):
            if name not in self.scope:
                self.scope[name] = value

    def execute(self, seq, source, most, asks=False):
        """Runs one instruction and sends its Done."""
        self.prepare()
        self.running = (seq, most)
        if asks:
            stdin.ensure(self.ask)
        name = "<instruction %d>" % seq
        report = {"type": "done", "seq": seq}
        before = touched.bindings(self.scope)
        self.marked = set()
        self.user_limit()
        start = perf_counter()
        value, error = self.gate.run(self.evaluate, source, name)
        report["runtime_ms"] = (perf_counter() - start) * 1000
        self.own_limit()
        if not self.channel.ours():
            self.end_child(error)
        shown, late = self.gate.run(self.present, value)
        error = late if error is None else error
        report["how"] = how(error)
        if error is not None:
            described, worse = self.gate.run(failure, error)
            report["error"] = described if worse is None else nameless(error)
        elif shown is not None:
            describe(report, shown, most)
            if "cut" in report:
                self.parts.send(seq, "value", shown, report["data"])
        names, _ = self.gate.run(touched.names, before, self.scope, self.marked)
        if names:
            report["touched"] = names
        self.running = None
        self.streams.flush()
        self.channel.send(report)

    def user_limit(self):
        try:
            setrecursionlimit(self.limit)
        except RecursionError:
            pass  # lower than where we stand: it stays at ours

    def own_limit(self):
        """Saves the user's recursion limit, and removes hooks on calls."""
        self.limit = getrecursionlimit()
        if self.limit < OWN_LIMIT:
            setrecursionlimit(OWN_LIMIT)
        if gettrace() is not None:
            settrace(None)
        if getprofile() is not None:
            setprofile(None)

    def evaluate(self, source, name):
        """The value of the last expression of a source, after running all of it."""
        self.remember(source, name)
        parts = self.compile(source, name)
        for code in parts:
            value = eval(code, self.scope)
            if code.co_flags & CO_COROUTINE:
                value = self.loop.run(value)
        if not any(isinstance(const, CodeType) for code in parts for const in code.co_consts):
            sources.pop(name, None)  # nothing of it lives on
        return value

    def remember(self, source, name):
        """Keeps a source for tracebacks and `inspect`, and forgets the oldest."""
        sources[name] = (len(source), None, lines_of(source), name)
        self.kept.append(name)
        if len(self.kept) > MOST_SOURCES:
            sources.pop(self.kept.popleft(), None)

    def compile(self, source, name):
        """Code objects to run one after the other; the last gives the value."""
        tree, text = self.parse(source, name)
        self.marked = touched.marked(tree, text)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, Expr) or is_silenced(last, text):
            codes = [self.assemble(tree, name, "exec")]
        else:
            del tree.body[-1]
            codes = [self.assemble(tree, name, "exec")] if tree.body else []
            codes.append(self.assemble(Expression(last.value), name, "eval"))
        return codes

    def parse(self, source, name):
        flags = self.flags | PyCF_ONLY_AST | PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            return compile(source, name, "exec", flags, True), source
        except SyntaxError:
            text = transform(source)
            if text is None:
                raise
        return compile(text, name, "exec", flags, True), text

    def assemble(self, tree, name, mode):
        code = compile(tree, name, mode, self.flags | PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        self.flags |= code.co_flags & FUTURES
        return code

    def present(self, value):
        """Shows open figures; returns the forms of the value, or None."""
        self.figures.flush(value)
        if value is None:
            return None
        self.scope["_"] = value
        return self.formatter.bundle(value)

    def display(self, *values, raw=False, **_options):
        """Shows values in their richest forms. With `raw`, values are MIME bundles."""
        for value in values:
            data = self.formatter.raw(value) if raw else self.formatter.bundle(value)
            if self.running is None or not self.channel.ours():
                print(data["text/plain"])
                continue
            seq, most = self.running
            whole = data
            data, notes = fit(data, most)
            report = {"type": "display", "seq": seq, "data": data}
            if notes:
                report["cut"] = "; ".join(notes)
                self.parts.send(seq, "display", whole, data)
            self.streams.settle()
            self.channel.send(report)
            self.channel.settle()

    def ask(self, prompt):
        """A line that the client types, or None at the end of input."""
        if self.running is None or not self.channel.ours() or get_ident() != self.gate.main:
            stdin.refuse()
        seq = self.running[0]
        self.streams.settle()
        self.channel.send({"type": "input", "seq": seq, "prompt": prompt})
        while True:
            line = self.channel.receive()
            if line is None:
                _exit(0)
            order = decode(line.decode())
            if order["op"] == "input" and order["seq"] == seq:
                return order["line"]

    def end_child(self, error):
        """Ends a child that user code forked and that returned to the agent's code."""
        status = 0
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            status = 1
            self.streams.complain(printed(error).rstrip("\n"))
        self.streams.flush()
        _exit(status & 0xFF)


def lines_of(source):
    """The lines as Python counts them, each with its end."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    return [line + "\n" for line in source.split("\n")]


def is_silenced(last, source):
    """Whether a semicolon follows the last expression."""
    if ";" not in source:
        return False
    lines = source.encode().splitlines()[last.end_lineno - 1 :]
    return lines[0][last.end_col_offset :].lstrip().startswith(b";")


def describe(report, data, most):
    """Puts a value into a report, cut to size."""
    value, size = shorten(data["text/plain"], most)
    notes = [] if size is None else ["value cut to %d of %d bytes" % (most, size)]
    report["value"] = value
    report["data"], more = fit(data, most)
    if notes or more:
        report["cut"] = "; ".join(notes + more)
