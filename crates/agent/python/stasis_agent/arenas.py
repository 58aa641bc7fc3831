"""Keeps Python's small objects together in memory.

    as it comes      arena  library  arena  library  library  arena ...
    reserved first   arena arena arena arena ...  library library library

Python takes memory for small objects an arena (a megabyte) at a time, wherever the kernel has room,
which while modules are imported is between their libraries. In one piece the same memory fits into
huge pages, and every machine and branch that starts from it copies one entry in place of 512.
"""

from .own import __builtins__

# More than the usual libraries need; what is left over is given back.
RESERVE = 128 << 20
# The largest object that comes from an arena: 479 bytes and their header.
LARGEST = 512
# Fewer objects than the smallest arena holds, so that one of each stays.
EVERY = 400


class Reserve:
    """Arenas side by side, each held by an object or more until it is let go."""

    def __init__(self):
        # of its full size from the start: a list that grows would move about between the arenas
        held = [None] * (RESERVE // LARGEST)
        for index in range(len(held)):
            held[index] = bytes(LARGEST - 33)
        self.held = held[::EVERY]

    def release(self):
        """Gives back the arenas that nobody else came to use."""
        self.held = []
