"""Parses JSON into types."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime
from typing import Any, Callable, Dict, List, Type, TypeVar

from .errors import ProtocolError

T = TypeVar("T")
M = TypeVar("M", bound="Model")

FRACTION = re.compile(r"\.(\d+)")


class Model:
    """Base of all types from the service."""

    @classmethod
    def from_json(cls: Type[M], data: Any) -> M:
        raise NotImplementedError

    def to_dict(self) -> Dict[str, Any]:
        """All fields, including those of nested types, as plain values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]


def each(read: Callable[[Any], T], data: Any) -> List[T]:
    return [read(item) for item in data]


def time(text: str) -> datetime:
    """A time in RFC 3339; Python before 3.11 reads no `Z` and only six digits of a second."""
    text = FRACTION.sub(lambda match: "." + match.group(1)[:6].ljust(6, "0"), text)
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def decode(kind: Type[M], data: Any) -> M:
    """A parsed response; an error if it does not match the API's document."""
    try:
        return kind.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"the service's answer is no {kind.__name__}: {error!r}"
        raise ProtocolError(said) from error
