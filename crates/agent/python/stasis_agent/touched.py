"""The variables an instruction touched: bound, unbound, or changed in place if its text shows it.

Bindings are compared by identity before and after. A value that is changed in place keeps its
identity, so the text is inspected: `x += 1`, `x[0] = 1`, `x.a = 1`, `del x[0]` and a call such as
`x.append(1)` that stands alone all touch `x`. A function that changes a variable out of sight is
not seen.
"""

from .own import __builtins__, is_a
from .errors import clean
from .variables import is_shown
from _ast import AST, Attribute, AugAssign, Call, Del, Expr, Name, Store, Subscript

LONGEST_SOURCE = 50_000
MOST_NAMES = 100


def bindings(scope):
    """The identity of the value of each name; the values are not kept alive."""
    return {name: id(value) for name, value in list(scope.items()) if type(name) is str}


def names(before, scope, marked):
    """The touched names, sorted."""
    after = bindings(scope)
    changed = {name for name, value in after.items() if before.get(name) != value}
    changed.update(name for name in before if name not in after)
    changed.update(name for name in marked if name in after)
    shown = [name for name in changed if is_shown(name, scope.get(name))]
    return [clean(name)[:200] for name in sorted(shown)[:MOST_NAMES]]


def marked(tree, source):
    """Names that a text changes in place."""
    found = set()
    if len(source) > LONGEST_SOURCE:
        return found
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        target = changes(node)
        if target is not None:
            found.add(root(target))
        for field in node._fields:
            value = getattr(node, field, None)
            if is_a(value, AST):
                waiting.append(value)
            elif is_a(value, list):
                waiting.extend(item for item in value if is_a(item, AST))
    found.discard(None)
    return found


def changes(node):
    """The expression that a node changes in place, if it does."""
    if is_a(node, AugAssign):
        return node.target
    if is_a(node, Attribute, Subscript) and is_a(node.ctx, Store, Del):
        return node.value
    if is_a(node, Expr) and is_a(node.value, Call) and is_a(node.value.func, Attribute):
        return node.value.func.value
    return None


def root(node):
    """The variable at the beginning of `x.a[0].b`."""
    while is_a(node, Attribute, Subscript):
        node = node.value
    return node.id if is_a(node, Name) else None
