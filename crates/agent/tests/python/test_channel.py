"""Orders are read whole, whatever happens between two calls."""

import os
import sys
import unittest

from machine import AGENT

sys.path.insert(0, AGENT)

from stasis_agent.channel import Channel  # noqa: E402


class Restored:
    """A socket whose agent is captured after it peeked, and that reads from another one."""

    def __init__(self, before, after):
        self.streams = [before, after]
        self.looks = 0

    def recv(self, count, flags=0):
        if flags:
            self.looks += 1
            return self.streams[0][:count]
        if len(self.streams) == 2:
            del self.streams[0]
        taken, self.streams[0] = self.streams[0][:count], self.streams[0][count:]
        return taken


class Plain(Restored):
    def __init__(self, stream):
        self.streams = [stream]
        self.looks = 0


def channel(socket):
    made = Channel.__new__(Channel)
    made.socket, made.rest = socket, b""
    return made


class Lines(unittest.TestCase):
    def test_one_by_one(self):
        lines = [b"one\n", b"x" * 200_000 + b"\n", b"three\n"]
        own = channel(Plain(b"".join(lines)))
        self.assertEqual([own.receive() for _ in range(4)], [*lines, None])

    def test_a_look_before_a_capture_does_not_cut_the_next_order(self):
        for before in (b"old\n", b"a much longer one than those that come\n", b"an unfinished"):
            own = channel(Restored(before, b"wake 1\nexec 2\nvars 3\n"))
            got = [own.receive() for _ in range(3)]
            self.assertEqual(got, [b"wake 1\n", b"exec 2\n", b"vars 3\n"], before)


if __name__ == "__main__":
    os.umask(0o077)
    unittest.main()
