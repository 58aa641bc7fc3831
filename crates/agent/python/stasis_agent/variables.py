"""Describes the variables of the session, running as little user code as possible.

A repr is made only for types whose repr is known to be cheap; others are named. The digest pickles,
which may call the user's code, so all of it can be interrupted.
"""

import sys

from .own import __builtins__, is_a
from .errors import clean
from hashlib import sha256
from pickle import Pickler
from types import BuiltinFunctionType, FunctionType, ModuleType

LONGEST = 200
ITEMS = 8
DEPTH = 3
MOST_VARIABLES = 2000
MOST_BYTES = 64 << 20
HIDDEN = ("_", "_exit_code")
SIMPLE = (int, float, bool, complex, type(None), range)
BRACKETS = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}
KNOWN = {
    "datetime.date", "datetime.datetime", "datetime.time", "datetime.timedelta",
    "datetime.timezone", "decimal.Decimal", "fractions.Fraction", "pathlib.PosixPath",
    "uuid.UUID", "pandas.Timestamp", "pandas.Timedelta",
}  # fmt: skip


def describe(scope):
    """All variables of a namespace."""
    names = [name for name in list(scope) if is_shown(name, scope.get(name))]
    return [variable(name, scope.get(name)) for name in sorted(names)[:MOST_VARIABLES]]


def is_shown(name, value):
    hidden = not is_a(name, str) or name in HIDDEN
    dunder = not hidden and name.startswith("__") and name.endswith("__")
    return not hidden and not dunder and not is_a(value, ModuleType)


def variable(name, value):
    size = attempt(size_of, value)
    return {
        "name": clean(name),
        "kind": kind(value),
        "shape": attempt(shape, value),
        "bytes": size,
        "repr": brief(value),
        "digest": attempt(digest, value, size or 0),
    }


def attempt(function, *arguments):
    try:
        return function(*arguments)
    except Exception:
        return None


def kind(value):
    """The qualified name of a value's type; `class` for classes."""
    if is_a(value, type):
        return "class"
    module, name = type(value).__module__, type(value).__qualname__
    full = name if module == "builtins" else "%s.%s" % (module, name)
    return clean(full)[:LONGEST]


def from_library(value):
    return type(value).__module__.partition(".")[0] in ("numpy", "pandas", "polars", "torch")


def shape(value):
    if from_library(value) and hasattr(value, "shape"):
        return clean(str(tuple(int(size) for size in value.shape)))
    if is_a(value, str, bytes, bytearray, list, tuple, dict, set, frozenset, range):
        return str(len(value))
    return None


def size_of(value):
    if from_library(value):
        if type(value).__name__ == "DataFrame" and hasattr(value, "memory_usage"):
            return int(value.memory_usage(deep=False).sum())
        for name in ("nbytes", "estimated_size"):
            found = getattr(value, name, None)
            if found is not None:
                return int(found() if callable(found) else found)
    if is_a(value, type):
        return None
    return object.__sizeof__(value) if type(value).__module__ == "__main__" else sys.getsizeof(value)


def brief(value):
    """A repr that is short and safe."""
    try:
        found = clean(bounded(value, DEPTH))
    except Exception:
        found = "<%s>" % kind(value)
    return found if len(found) <= LONGEST else found[: LONGEST - 1] + "…"


def bounded(value, depth):
    exact = type(value)
    if exact in (str, bytes, bytearray):
        return repr(value[:LONGEST])
    if exact is int and value.bit_length() > 4 * LONGEST:
        return "<int of %d bits>" % value.bit_length()
    if exact in SIMPLE:
        return repr(value)
    if exact in BRACKETS:
        return container(value, exact, depth)
    if is_a(value, FunctionType, BuiltinFunctionType):
        return "<function %s>" % value.__qualname__
    if is_a(value, type):
        return "<class %s.%s>" % (exact.__getattribute__(value, "__module__"), value.__name__)
    return special(value)


def container(value, exact, depth):
    left, right = BRACKETS[exact]
    if depth == 0:
        return left + "…" + right
    some = []
    for one in value:
        if len(some) == ITEMS:
            some.append("…")
            break
        text = bounded(one, depth - 1)
        some.append(text + ": " + bounded(value[one], depth - 1) if exact is dict else text)
    inside = ", ".join(some) + ("," if exact is tuple and len(some) == 1 else "")
    if exact is frozenset or (exact is set and not value):
        return "%s(%s)" % (exact.__name__, left + inside + right if value else "")
    return left + inside + right


def special(value):
    name = kind(value)
    root = name.partition(".")[0]
    if name in KNOWN:
        return repr(value)
    if root == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufcmMSU":
        if value.size <= 100:
            return " ".join(repr(value).split())
        return "<%s %s, shape %s>" % (name, value.dtype, shape(value))
    if root in ("pandas", "polars") and hasattr(value, "columns"):
        columns = ", ".join(bounded(column, 1) for column in list(value.columns)[:ITEMS])
        return "<%s %s: %s>" % (type(value).__name__, shape(value), columns)
    if from_library(value) and shape(value) is not None:
        return "<%s, shape %s>" % (name, shape(value))
    return "<%s object>" % name


def digest(value, size):
    """The hash of a value's pickle, or None if there is no useful one."""
    if size > MOST_BYTES or is_a(value, type, FunctionType, BuiltinFunctionType):
        return None
    sink = Sink()
    Pickler(sink, protocol=5).dump(value)
    return sink.hash.hexdigest()


class Sink:
    """Hashes what is written to it, up to a size."""

    def __init__(self):
        self.hash = sha256()
        self.left = MOST_BYTES

    def write(self, data):
        size = len(data) if is_a(data, bytes) else memoryview(data).nbytes
        self.left -= size
        if self.left < 0:
            raise ValueError("too large")
        self.hash.update(data)
        return size
