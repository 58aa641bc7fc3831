"""The result of an instruction. A notebook displays it like its value."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from . import types
from .errors import InstructionError

TEXT = "text/plain"
PNG = "image/png"


@dataclass(frozen=True)
class Shown:
    """Content displayed while code ran: a figure, `display(...)`."""

    after: int
    """Number of output lines before it."""
    data: Dict[str, Any]
    """MIME type to content; binary types in base64."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        return self.data


@dataclass(frozen=True, repr=False)
class Result:
    """The result of an instruction, with all of its output."""

    machine: str
    instruction: types.Instruction
    output: List[types.Chunk]

    @property
    def seq(self) -> int:
        return self.instruction.seq

    @property
    def address(self) -> str:
        """The state after it, as `machine@seq`."""
        return f"{self.machine}@{self.seq}"

    @property
    def status(self) -> types.Status:
        return self.instruction.status

    @property
    def receipt(self) -> Optional[types.Receipt]:
        """The state of the machine after it."""
        return self.instruction.receipt

    @property
    def outcome(self) -> types.Outcome:
        return self.instruction.outcome or types.Outcome(runtime_ms=0.0)

    @property
    def value(self) -> Optional[str]:
        """repr of the last expression."""
        return self.outcome.value

    @property
    def data(self) -> Dict[str, Any]:
        """The last expression's value in every form it offers: MIME type to content."""
        return self.outcome.data or {}

    @property
    def shown(self) -> List[Shown]:
        return [Shown(shown.after, shown.data) for shown in self.outcome.shown]

    @property
    def error(self) -> Optional[types.Failure]:
        return self.outcome.error

    @property
    def runtime_ms(self) -> float:
        return self.outcome.runtime_ms

    @property
    def ok(self) -> bool:
        return self.error is None and self.status == "done"

    def check(self) -> Result:
        """This result, if it is a success; raises `InstructionError` otherwise."""
        if self.error is not None:
            raise InstructionError(self.error.name, self.error.message, self.error.traceback)
        if not self.ok:
            raise InstructionError(f"instruction.{self.status}", f"{self.address} did not end", "")
        return self

    @property
    def stdout(self) -> str:
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        return self._text("stderr")

    def _text(self, stream: str) -> str:
        return "".join(f"{chunk.data}\n" for chunk in self.output if chunk.stream == stream)

    @property
    def png(self) -> Optional[bytes]:
        """The value's own image, or else the last displayed one."""
        for data in [self.data, *(shown.data for shown in reversed(self.shown))]:
            if isinstance(data.get(PNG), str):
                return base64.b64decode(data[PNG])
        return None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        if self.error is not None:
            return {TEXT: self.error.traceback or f"{self.error.name}: {self.error.message}"}
        if self.data:
            return {TEXT: self.value or "", **self.data}
        if self.value is None and self.shown:
            return self.shown[-1].data
        return {TEXT: self.value or ""}

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<Result {self.address} {self.error.name}: {self.error.message}>"
        return f"<Result {self.address} {self.status} {self.value}>"
