"""A REPL on one machine, in foreverVM's form."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from .._requests import SERVICE_DEFAULT, Seconds
from .instruction import AsyncInstruction
from .machine import AsyncMachine


class AsyncRepl:
    """`repl.exec(code)` returns an object with `.output` and `.result`. The machine stays."""

    def __init__(self, machine: AsyncMachine) -> None:
        self.machine = machine

    @property
    def machine_name(self) -> str:
        return self.machine.name

    async def exec(
        self, code: str, timeout_seconds: Seconds = SERVICE_DEFAULT
    ) -> AsyncInstruction:
        return await self.machine.exec(code, timeout_seconds=timeout_seconds)

    async def __aenter__(self) -> AsyncRepl:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Nothing to close: the connection belongs to the client."""
