"""The agent's own view of Python, unaffected by names that user code rebinds.

A module of the agent imports `__builtins__` from here before it defines functions: they look names
such as `len` up in this copy, not in the `builtins` that user code may change.
"""

import builtins
from os.path import abspath, dirname

__builtins__ = dict(vars(builtins))

# Frames of files below this directory are the agent's and are left out of tracebacks.
HERE = dirname(abspath(__file__))

# The generation of the protocol; see crates/protocol.
GENERATION = 1


def is_a(value, *kinds):
    """`isinstance` by the real type: user code can fake `__class__`, or make it fail."""
    return issubclass(type(value), kinds)
