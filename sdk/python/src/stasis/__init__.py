"""The Python SDK of Stasis: stateful code machines for AI agents.

    import stasis

    with stasis.Client() as client:
        machine = client.create_machine()
        machine.run("x = 41")
        print(machine.run("x + 1").value)

`AsyncClient` has the same methods, as coroutines.
"""

from __future__ import annotations

from . import errors, types
from ._async.client import AsyncClient
from ._async.files import AsyncFiles
from ._async.instruction import AsyncInstruction
from ._async.machine import AsyncAttempt, AsyncMachine, AsyncPast
from ._async.repl import AsyncRepl
from ._requests import SERVICE_DEFAULT
from ._retry import Retry
from ._sync.client import Client
from ._sync.files import Files
from ._sync.instruction import Instruction
from ._sync.machine import Attempt, Machine, Past
from ._sync.repl import Repl
from ._version import VERSION as __version__
from .errors import ApiError, InstructionError, StasisError
from .result import Result, Shown

__all__ = [
    "SERVICE_DEFAULT",
    "ApiError",
    "AsyncAttempt",
    "AsyncClient",
    "AsyncFiles",
    "AsyncInstruction",
    "AsyncMachine",
    "AsyncPast",
    "AsyncRepl",
    "Attempt",
    "Client",
    "Files",
    "Instruction",
    "InstructionError",
    "Machine",
    "Past",
    "Repl",
    "Result",
    "Retry",
    "Shown",
    "StasisError",
    "__version__",
    "errors",
    "types",
]
