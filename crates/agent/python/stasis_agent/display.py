"""The forms in which a value can be shown: a MIME bundle, cut to a size.

Formatters are user code. One that fails costs its own entry, is named on standard error, and breaks
nothing else. They are never called on classes.
"""

from .own import __builtins__, is_a
from .channel import decode, encode
from .errors import clean
from binascii import b2a_base64

# Text or bytes a method returns, by kind. A png makes a jpeg of the same picture needless.
METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
)
PLAIN = frozenset((int, float, bool, complex, str, bytes, list, tuple, dict, set, frozenset))
DEEPEST = 64


class Formatter:
    def __init__(self, streams):
        self.streams = streams
        # Functions from a value to a bundle or None, for types that offer no method.
        self.extra = []

    def bundle(self, value):
        """All forms of a value, text/plain first."""
        data = {"text/plain": self.text(value)}
        if type(value) in PLAIN or is_a(value, type):
            return data
        for extra in self.extra:
            found = self._try(extra, value)
            if found:
                return {**data, **self._checked(found)}
        return {**data, **self._checked(self._methods(value))}

    def raw(self, data):
        """A bundle made by user code."""
        if not isinstance(data, dict):
            raise TypeError("display(raw=True) needs a dict from MIME type to value")
        data = self._checked(data)
        return {**data, "text/plain": str(data.get("text/plain", ""))}

    def text(self, value):
        """The repr, which is required: a failing one is replaced."""
        try:
            return clean(repr(value))
        except Exception as error:
            self._complain("repr of %s" % type(value).__name__, error)
            return "<%s whose repr failed>" % type(value).__name__

    def _methods(self, value):
        data = {}
        for name, kind in METHODS:
            if kind == "image/jpeg" and "image/png" in data:
                continue
            found = self._call(value, name)
            if found is not None:
                data[kind] = found
        found = self._call(value, "_repr_mimebundle_")
        return {**data, **found} if isinstance(found, dict) else data

    def _call(self, value, name):
        """The result of a method of the value's class, or of a property that holds a function."""
        if not hasattr(type(value), name):
            return None
        found = self._try(lambda: getattr(value, name, None))
        if not callable(found):
            return found if isinstance(found, str) else None
        found = self._try(found)
        return found[0] if isinstance(found, tuple) and found else found

    def _try(self, function, *arguments):
        try:
            return function(*arguments)
        except NotImplementedError:
            return None
        except Exception as error:
            self._complain(getattr(function, "__qualname__", "formatter"), error)

    def _checked(self, data):
        """Only values that a report can contain."""
        out = {}
        for kind, value in data.items():
            if not isinstance(kind, str) or value is None:
                continue
            try:
                out[clean(kind)] = wire(kind, value)
            except Exception as error:
                self._complain(kind, error)
        return out

    def _complain(self, what, error):
        self.streams.complain("display: %s failed: %s" % (what, describe(error)))


def describe(error):
    try:
        return clean("%s: %s" % (type(error).__name__, error))
    except Exception:
        return type(error).__name__


def wire(kind, value):
    """A value in the protocol's form. Raises for values that cannot be sent."""
    if isinstance(value, Exception):
        raise value
    if isinstance(value, (bytes, bytearray, memoryview)):
        if kind.startswith("text/") or kind == "image/svg+xml":
            return bytes(value).decode("utf-8", "backslashreplace")
        return b2a_base64(value, newline=False).decode()
    if isinstance(value, str):
        return clean(value)
    if kind.endswith("json"):
        check_depth(value, DEEPEST)
        return decode(encode(value))
    raise TypeError("%s is %s, not text" % (kind, type(value).__name__))


def check_depth(value, left):
    if left == 0:
        raise ValueError("nested deeper than %d" % DEEPEST)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            if isinstance(one, (dict, list, tuple)):
                check_depth(one, left - 1)


def shorten(text, most):
    """The beginning of a text, at most so many bytes, and its size if something was cut."""
    if len(text) * 4 <= most:
        return text, None
    data = text.encode()
    if len(data) <= most:
        return text, None
    return data[:most].decode("utf-8", "ignore"), len(data)


def fit(data, most):
    """Cuts a bundle to a size. Returns it, and a description of the omitted parts."""
    notes = []
    text, size = shorten(data["text/plain"], most)
    if size is not None:
        notes.append("text/plain cut to %d of %d bytes" % (most, size))
    out = {"text/plain": text}
    if len(data) == 1:
        return out, notes
    left = most
    others = [(weight(value), kind) for kind, value in data.items() if kind != "text/plain"]
    for size, kind in sorted(others):
        if size > left:
            notes.append("%s left out, %d bytes" % (kind, size))
        else:
            left -= size
            out[kind] = data[kind]
    return out, notes


def weight(value):
    return len((value if isinstance(value, str) else encode(value)).encode())
