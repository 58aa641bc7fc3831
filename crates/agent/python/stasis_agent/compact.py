"""Makes memory cheap to fork, before it becomes a template.

    as it comes    arena  lib lib lib  arena  lib lib lib  heap with holes
                           r- rx r-            r- rx r-
    compacted      arena arena  lib  lib  heap
                                rx   rx

Every machine and branch copies an entry for each mapping, and for each page that is not part of a
huge one. Python allocates memory for small objects an arena (a megabyte) at a time, wherever there
is space, which during imports is between the libraries: reserved in one piece it fits into huge
pages. A linker maps a library's read-only data beside its code, with other permissions: with the
same permissions, as linkers did for decades, that is one mapping in place of three. Inside a
machine any code may run anyway, so the difference protects nothing. If a step is impossible, it is
skipped.
"""

from .own import __builtins__

try:
    from ctypes import CDLL, c_int, c_size_t, c_void_p
except ImportError:
    CDLL = c_int = c_size_t = c_void_p = None

# More than the usual libraries need; the rest is freed.
RESERVE = 128 << 20
# The largest object that comes from an arena: 479 bytes and their header.
LARGEST = 512
# Fewer objects than the smallest arena holds, so that one of each stays.
EVERY = 400

READ_AND_RUN = 5


class Arenas:
    """Adjacent arenas, each held by at least one object until it is released."""

    def __init__(self):
        # of its full size from the start: a list that grows would move about between the arenas
        held = [None] * (RESERVE // LARGEST)
        for index in range(len(held)):
            held[index] = bytes(LARGEST - 33)
        self.held = held[::EVERY]

    def release(self):
        """Frees the arenas that remained unused."""
        self.held = []


def tidy_heap():
    """Makes the C library join its free chunks now: each machine would do it at its first large
    allocation, and copy hundreds of pages for it."""
    trim = function("malloc_trim", c_size_t)
    if trim is not None:
        trim(0)


def join_libraries():
    """Gives libraries' read-only data the permissions of their code, where both are adjacent."""
    protect = function("mprotect", c_void_p, c_size_t, c_int)
    if protect is None:
        return
    found = pieces()
    for piece, next in zip(found, found[1:]):
        if piece.goes_on(next) and {piece.rights, next.rights} == {"r--p", "r-xp"}:
            read = piece if piece.rights == "r--p" else next
            if protect(read.start, read.end - read.start, READ_AND_RUN) == 0:
                read.rights = "r-xp"


def function(name, *arguments):
    """A function of the C library, if it exists."""
    try:
        found = getattr(CDLL(None), name)
    except (TypeError, OSError, AttributeError):
        return None
    found.argtypes = arguments
    return found


class Piece:
    """A mapping, from a line of /proc/self/maps."""

    def __init__(self, line):
        span, self.rights, offset, _, _, *path = line.split(None, 5)
        self.start, self.end = (int(address, 16) for address in span.split("-"))
        self.offset = int(offset, 16)
        self.path = path[0].rstrip("\n") if path else ""

    def goes_on(self, next):
        """Whether the next mapping is of the same file, without a gap."""
        alike = self.path.startswith("/") and self.path == next.path
        return alike and self.end == next.start and self.offset + self.end - self.start == next.offset


def pieces():
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            return [Piece(line) for line in maps]
    except OSError:
        return []
