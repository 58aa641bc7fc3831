"""Notebook lines in Python: `!cmd`, `x = !cmd`, `%magic`, `%%magic` cells and `pip install`.

Pure: text in, text out, and line numbers stay. Only lines at which a statement could start are
touched, never the inside of a string or of brackets. Source without such lines comes back as None.
"""

from .own import __builtins__
from re import compile as pattern

# The object that the lines become calls of; `magics.install` defines the name.
NAME = "__stasis__"

_LINE = pattern(r"(\s*)([!%])(?![%=])\s*(\S.*)")
_ASSIGNED = pattern(r"(\s*)([A-Za-z_][\w.]*(?:\[[^=]*\])?(?:\s*,\s*[A-Za-z_]\w*)*)\s*=\s*([!%])\s*(\S.*)")
_PIP = pattern(r"(\s*)(pip3?\s+(?:install|uninstall|list|show|freeze|download|check)\b.*)")
_CELL = pattern(r"\s*%%(\w+)[ \t]*(.*)")


def transform(source):
    """The source with its notebook lines made into calls, or None if it has none."""
    cell = _CELL.match(source)
    if cell:
        rest = source[cell.end() :]
        body = rest[1:] if rest.startswith("\n") else rest
        return "%s.cell(%r, %r, %r)" % (NAME, cell.group(1), cell.group(2).strip(), body)
    return _lines(source.split("\n"))


def _lines(lines):
    out = []
    state = State()
    changed = False
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if state.fresh() and is_magic(line):
            taken = 0
            while line.endswith("\\") and at < len(lines):
                line = line[:-1] + lines[at]
                at += 1
                taken += 1
            out.append(call(line))
            out += [""] * taken
            changed = True
        else:
            state.feed(line)
            out.append(line)
    return "\n".join(out) if changed else None


def is_magic(line):
    return bool(_LINE.match(line) or _ASSIGNED.match(line) or _PIP.match(line))


def call(line):
    """One notebook line as Python."""
    found = _LINE.match(line)
    if found:
        indent, kind, rest = found.groups()
        return indent + _invoke(kind, rest, assigned=False)
    found = _ASSIGNED.match(line)
    if found:
        indent, target, kind, rest = found.groups()
        return "%s%s = %s" % (indent, target, _invoke(kind, rest, assigned=True))
    indent, rest = _PIP.match(line).groups()
    return indent + _invoke("!", rest, assigned=False)


def _invoke(kind, rest, assigned):
    rest = rest.rstrip()
    if kind == "!":
        return "%s.%s(%r)" % (NAME, "capture" if assigned else "shell", rest)
    name, _, arguments = rest.partition(" ")
    return "%s.line(%r, %r)" % (NAME, name, arguments.strip())


class State:
    """The context in which a line starts: inside a string, brackets, or nothing."""

    def __init__(self):
        self.quote = None
        self.depth = 0
        self.joined = False

    def fresh(self):
        return self.quote is None and self.depth == 0 and not self.joined

    def feed(self, line):
        at = 0
        while at < len(line):
            at = self._inside(line, at) if self.quote else self._outside(line, at)
        self.joined = line.endswith("\\") and (self.quote is None or len(self.quote) == 1)
        if self.quote is not None and len(self.quote) == 1 and not self.joined:
            self.quote = None  # an unclosed string ends with its line

    def _inside(self, line, at):
        if line[at] == "\\":
            return at + 2
        if line.startswith(self.quote, at):
            at += len(self.quote)
            self.quote = None
            return at
        return at + 1

    def _outside(self, line, at):
        mark = line[at]
        if mark == "#":
            return len(line)
        if mark in "\"'":
            self.quote = mark * 3 if line.startswith(mark * 3, at) else mark
            return at + len(self.quote)
        if mark in "([{":
            self.depth += 1
        elif mark in ")]}":
            self.depth = max(0, self.depth - 1)
        return at + 1
