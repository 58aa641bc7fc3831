"""Values too large for a report: sent whole before it, in pieces.

The host stores them beside the result. The agent sends one only if the host requested it and stores
values of its size.
"""

from .own import __builtins__
from .channel import encode

PIECE = 1 << 20


class Parts:
    def __init__(self, channel):
        self.channel = channel
        self.most = 0

    def send(self, seq, name, before, after):
        """Sends the forms of a value that are cut or missing in its report."""
        for kind, value in before.items():
            if kind in after and after[kind] == value:
                continue
            text = value if isinstance(value, str) else encode(value)
            if self.most and len(text) <= self.most:
                self.pieces(seq, name, kind, text)

    def pieces(self, seq, name, kind, text):
        report = {"type": "part", "seq": seq, "name": name, "kind": kind}
        for start in range(0, len(text), PIECE):
            piece, last = text[start : start + PIECE], start + PIECE >= len(text)
            self.channel.send({**report, "text": piece, "last": last})
