"""Standard output and error: text files over the pipes, in the order they were written.

The host reads two pipes and cannot know which was written first. So a write to one stream waits,
for a bounded time, until the host has emptied the other. Lines leave at once; a piece of a line
leaves with the next write that comes a moment after the last.

User code may close, replace or redirect any of it. `ensure` restores it at the next instruction,
from copies of the descriptors at high numbers.
"""

import sys

from .own import __builtins__
from .channel import copy_high, same, wait_empty
from io import BufferedWriter, FileIO, TextIOWrapper
from os import dup2, get_blocking, set_blocking
from termios import FIONREAD
from time import monotonic

# Maximum delay of a piece of a line, and maximum time for the host to read.
PATIENCE = 0.05
READ = 1.0

try:
    from ctypes import CDLL, c_void_p

    _fflush = CDLL(None).fflush
    _c_stdout = c_void_p.in_dll(CDLL(None), "stdout")
except (ImportError, OSError, ValueError, AttributeError):
    _fflush = None


def flush_c():
    """Flushes what C code printed. Only stdout: C's stderr has no buffer."""
    if _fflush is not None:
        _fflush(_c_stdout)


def block(descriptor):
    """Makes writes blocking, even if a child process that shares the pipe has changed that."""
    try:
        if not get_blocking(descriptor):
            set_blocking(descriptor, True)
    except OSError:
        pass  # closed by user code: the write will say so


class Stream(TextIOWrapper):
    """A standard stream that knows its sibling and which of them writes next."""

    def __init__(self, streams, descriptor, name):
        # Nothing in Python below this: an interrupt between a write and its account repeats it.
        raw = FileIO(descriptor, "w", closefd=False)
        raw.name = name
        super().__init__(
            BufferedWriter(raw),
            encoding="utf-8",
            errors="backslashreplace",
            newline="\n",
            line_buffering=True,
            write_through=True,
        )
        self.mode = "w"
        self._streams = streams
        self._descriptor = descriptor
        self._since = None  # when the piece of a line that waits was written

    def write(self, text):
        streams = self._streams
        if streams.last is not self:
            streams.turn(self)
        block(self._descriptor)
        count = TextIOWrapper.write(self, text)
        if "\n" in text:
            self._since = None
        elif self._since is None:
            self._since = monotonic()
        elif monotonic() - self._since > PATIENCE:
            self._since = None
            self.flush()
        return count


class Streams:
    def __init__(self):
        self.copies = {1: copy_high(1), 2: copy_high(2)}
        self.out = Stream(self, 1, "<stdout>")
        self.err = Stream(self, 2, "<stderr>")
        self.last = None

    def ensure(self):
        """Restores both streams, whatever the last instruction changed."""
        for descriptor, copy in self.copies.items():
            if not same(descriptor, copy):
                dup2(copy, descriptor)
            block(descriptor)
        if is_lost(self.out):
            self.out = Stream(self, 1, "<stdout>")
        if is_lost(self.err):
            self.err = Stream(self, 2, "<stderr>")
        sys.stdout = sys.__stdout__ = self.out
        sys.stderr = sys.__stderr__ = self.err

    def turn(self, stream):
        """Lets `stream` write next, after the other's output has been read."""
        last, self.last = self.last, stream
        if last is not None:
            quietly(last.flush)
            self.wait(1 if last is self.out else 2)

    def wait(self, descriptor):
        # through the copy: the host does not read user code's replacement
        wait_empty(self.copies[descriptor], FIONREAD, READ)

    def flush(self):
        """Empties all buffers of this process."""
        for stream in (self.out, self.err):
            quietly(stream.flush)
        flush_c()

    def settle(self):
        """Flushes, and lets the host read, so that the next writer is in order."""
        self.flush()
        self.last = None
        self.wait(1)
        self.wait(2)

    def complain(self, text):
        """Prints a message on standard error, whatever its state."""
        quietly(self.err.write, text + "\n")


def is_lost(stream):
    """Whether a stream was closed, or has lost what is below it (`detach()`)."""
    try:
        return stream.closed
    except ValueError:
        return True


def quietly(function, *arguments):
    """Calls a function and ignores its failure."""
    try:
        function(*arguments)
    except Exception:
        pass
