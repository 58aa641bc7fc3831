"""Standard input. A machine has none, and every use of it raises an error, unless the client of an
instruction answers for it: then each line is requested over the control socket.
"""

import builtins
import sys

from .own import __builtins__
from io import TextIOBase


class StdinNotAvailable(EOFError):
    """Raised where a program would wait for typed input."""


StdinNotAvailable.__module__ = "stasis"

WORDS = "a machine has no standard input. Put the value into a variable instead"

_input = builtins.input
_hook = sys.breakpointhook


def refuse(*_arguments, **_named):
    raise StdinNotAvailable(WORDS)


def no_debugger(*_arguments, **_named):
    raise StdinNotAvailable(
        "breakpoint() reads commands, and a machine has no standard input. "
        "Print what you need, or look at variables in the next instruction"
    )


class NoInput(TextIOBase):
    """Replaces sys.stdin."""

    name = "<stdin>"
    mode = "r"
    encoding = "utf-8"
    errors = "strict"
    read = readline = readlines = __next__ = refuse

    def __iter__(self):
        return self

    @property
    def buffer(self):
        refuse()

    def fileno(self):
        return 0

    def close(self):
        pass  # exit() closes standard input; there is nothing to close

    def readable(self):
        return True


class Asked(NoInput):
    """Standard input of an instruction whose client answers: `ask` gets a prompt and returns a
    line, or None at the end of input."""

    readlines = TextIOBase.readlines
    __next__ = TextIOBase.__next__

    def __init__(self, ask):
        self.ask = ask

    def readline(self, _size=-1, /):
        line = self.ask("")
        return "" if line is None else line + "\n"

    def read(self, _size=-1, /):
        return "".join(iter(self.readline, ""))

    def input(self, prompt="", /):
        line = self.ask(str(prompt))
        if line is None:
            raise EOFError("end of input")
        return line


_none = NoInput()


def ensure(ask=None):
    """Installs the refusals, or the reader of input."""
    given = _none if ask is None else Asked(ask)
    sys.stdin = sys.__stdin__ = given
    sys.breakpointhook = no_debugger if ask is None else _hook
    if ask is not None:
        builtins.input = given.input
    elif isinstance(getattr(builtins.input, "__self__", None), Asked):
        builtins.input = _input  # what a program put there itself stays
