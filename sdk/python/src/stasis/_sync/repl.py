# Written by `python3 sdk/generate` from _async/repl.py; change that instead.

"""A REPL on one machine, in foreverVM's form."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from .._requests import SERVICE_DEFAULT, Seconds
from .instruction import Instruction
from .machine import Machine


class Repl:
    """`repl.exec(code)` returns an object with `.output` and `.result`. The machine stays."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def machine_name(self) -> str:
        return self.machine.name

    def exec(
        self, code: str, timeout_seconds: Seconds = SERVICE_DEFAULT
    ) -> Instruction:
        return self.machine.exec(code, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Repl:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Nothing to close: the connection belongs to the client."""
