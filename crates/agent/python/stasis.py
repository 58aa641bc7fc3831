"""Functions for programs that run in a machine.

    import stasis

    @stasis.on_wake
    def refresh(reason, changed):
        ...  # reason: "new", "branch", "wake" or "rollback"; changed: a list of what was renewed

    stasis.tools.SERVER.TOOL(...)  # calls a tool of a server that the operator has set up
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


class ToolError(Exception):
    """A tool failed, or could not be called. `code` is a stable name such as `tool.timed_out`."""

    def __init__(self, message, code="tool.failed", server=None, tool=None, content=None):
        super().__init__(message)
        self.code = code
        self.server = server
        self.tool = tool
        self.content = content


class ToolDenied(ToolError):
    """A policy or a person refused the call."""


class ToolMedia:
    """An image, a sound or a file that a tool returned. `data` has the bytes."""

    def __init__(self, data, mime_type):
        self.data = data
        self.mime_type = mime_type

    def __repr__(self):
        return "<ToolMedia %s, %d bytes>" % (self.mime_type, len(self.data))

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime_type: self.data} if self.mime_type.startswith("image/") else {}
