"""Parses server-sent events from bytes as they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional

# More than any event of a service; what is larger is not one.
LARGEST = 256 << 20


@dataclass(frozen=True)
class Event:
    kind: str
    data: str
    id: Optional[str] = None


class Parser:
    """Add bytes; returns the complete events."""

    def __init__(self) -> None:
        self._rest = b""
        self._kind = ""
        self._id: Optional[str] = None
        self._data: List[str] = []
        self.last_id: Optional[str] = None
        """The id of the last complete event, including one without data."""

    def feed(self, piece: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LARGEST:
            raise ValueError("an event without an end")
        for line in lines:
            event = self._line(line.rstrip(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> Optional[Event]:
        if line:
            name, _, value = line.partition(":")
            self._field(name, value[1:] if value.startswith(" ") else value)
            return None
        event = Event(self._kind or "message", "\n".join(self._data), self._id)
        complete = bool(self._data)
        self.last_id = self._id
        self._kind, self._data = "", []
        return event if complete else None

    def _field(self, name: str, value: str) -> None:
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
