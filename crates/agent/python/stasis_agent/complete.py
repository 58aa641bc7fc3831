"""Completions at the cursor. Properties of user code are never called for them."""

import sys

from .own import __builtins__
from inspect import getattr_static
from keyword import kwlist
from pkgutil import iter_modules
from re import compile as pattern
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
import builtins

MOST = 500
_FROM = pattern(r"\s*from\s+([\w.]+)\s+import\s+(?:[\w\s,(]*[\s,(])?(\w*)$")
_IMPORT = pattern(r"\s*(?:from|import)\s+(?:[\w.\s,]*[\s,])?([\w.]*)$")
_PATH = pattern(r"(?:^|[^\w.\"')\]])((?:[^\W\d]\w*\.)*)(\w*)$")


def complete(code, cursor, scope):
    """The offset where the name at the cursor begins, in characters, and its completions."""
    cursor = min(max(cursor, 0), len(code))
    line = code[:cursor].rpartition("\n")[2]
    word, names = candidates(line, scope)
    hidden = not word.startswith("_")
    found = {
        name for name in names
        if name.startswith(word) and not (hidden and name.startswith("_"))
    }  # fmt: skip
    return cursor - len(word), sorted(found)[:MOST]


def candidates(line, scope):
    """The beginning of a word at the end of a line, and names to choose from."""
    found = _FROM.match(line)
    if found:
        return found.group(2), members(found.group(1))
    found = _IMPORT.match(line)
    if found:
        package, _, word = found.group(1).rpartition(".")
        return word, submodules(package)
    found = _PATH.search(line)
    if not found:
        return "", ()
    path, word = found.groups()
    if path:
        return word, attributes(path[:-1].split("."), scope)
    names = set(vars(builtins)) | set(kwlist) | {name for name in scope if isinstance(name, str)}
    return word, names if word else ()


def members(name):
    module = sys.modules.get(name)
    found = set(submodules(name))
    return found | set(vars(module)) if isinstance(module, ModuleType) else found


def submodules(package):
    """Modules that can be imported from a package, found without importing anything."""
    if not package:
        found = {module.name for module in iter_modules()}
        return found | set(sys.builtin_module_names) | {n for n in list(sys.modules) if "." not in n}
    path = getattr(sys.modules.get(package), "__path__", None)
    return {module.name for module in iter_modules(path)} if path is not None else set()


MISSING = object()


def attributes(path, scope):
    value = scope.get(path[0], getattr(builtins, path[0], MISSING))
    for name in path[1:]:
        value = peek(value, name)
    return [name for name in dir(value) if isinstance(name, str)] if value is not MISSING else ()


def peek(value, name):
    """An attribute, if reading it runs no user code."""
    found = getattr_static(value, name, MISSING)
    if found is MISSING or value is MISSING:
        # modules may load lazily; missing attributes are not offered
        return MISSING
    if isinstance(found, (GetSetDescriptorType, MemberDescriptorType)):
        return getattr(value, name, MISSING)
    if hasattr(type(found), "__get__") and not callable(found):
        return MISSING
    return found
