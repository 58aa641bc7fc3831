"""Standard input, which machines do not have: every use of it says so."""

import sys

from .own import __builtins__
from io import TextIOBase


class StdinNotAvailable(RuntimeError):
    """Raised where a program would wait for somebody to type."""


StdinNotAvailable.__module__ = "stasis"

WORDS = "a machine has no standard input: nobody can type. Put the value into a variable instead"


def refuse(*_arguments, **_named):
    raise StdinNotAvailable(WORDS)


def no_debugger(*_arguments, **_named):
    raise StdinNotAvailable(
        "breakpoint() needs somebody to type, and a machine has no standard input. "
        "Print what you need, or look at variables in the next instruction"
    )


class NoInput(TextIOBase):
    """Takes the place of sys.stdin."""

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


_none = NoInput()


def ensure():
    """Puts the refusals in place."""
    sys.stdin = sys.__stdin__ = _none
    sys.breakpointhook = no_debugger
