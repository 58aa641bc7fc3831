"""Functions for programs that run in a machine.

    import stasis

    @stasis.on_wake
    def refresh(reason, changed):
        ...  # reason: "new", "branch", "wake" or "rollback"; changed: a list of what was renewed
"""

import os

_hooks = []


def on_wake(callback):
    """Calls `callback(reason, changed)` whenever the machine comes back. Usable as a decorator."""
    if not callable(callback):
        raise TypeError("on_wake needs a function of two arguments: reason and changed")
    _hooks.append(callback)
    return callback


def machine():
    """The name of this machine, or None before it has one."""
    return os.environ.get("STASIS_MACHINE")
