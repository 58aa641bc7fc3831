"""Requests as values, without sending them."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional, Union
from urllib.parse import quote

from .errors import InvalidRequest
from .types import Checkpoints, Durability, Limits, Network, Retention

LETTERS = string.ascii_lowercase + string.digits


class ServiceDefault:
    """Marks an omitted argument: `timeout_seconds=None` means no limit."""

    def __repr__(self) -> str:
        return "SERVICE_DEFAULT"


SERVICE_DEFAULT = ServiceDefault()
Seconds = Union[float, None, ServiceDefault]
When = Union[datetime, str, None]
Candidate = Union[str, Mapping[str, Any]]
# Seconds without a word while others work: builds, and branches that all run.
LONG_SILENCE = 3600.0


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    path: str
    body: Any = None
    """Sent as JSON."""
    content: Any = None
    """Sent unchanged: bytes, or pieces of them."""
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    """Whether it is idempotent."""
    timeout: Optional[float] = None
    """Seconds without a byte after which the connection counts as dead; the client's default
    otherwise."""


def get(where: str, /, **query: Any) -> Call:
    given = {key.rstrip("_"): value for key, value in query.items() if value is not None}
    return Call("GET", where, query=given, repeatable=True)


def post(path: str, body: Any = None, *, repeatable: bool = False) -> Call:
    return Call("POST", path, body=body, repeatable=repeatable)


def segment(text: str) -> str:
    """A name as part of a path; a name that would change the path is refused here."""
    if not text or text in (".", ".."):
        raise InvalidRequest(f"{text!r} is not a name", code="request.invalid", status=400)
    return quote(text, safe="")


def at(machine: str, rest: str = "") -> str:
    return f"/v1/machine/{segment(machine)}{rest}"


def new_name() -> str:
    """A generated machine name, so that a retry after a broken connection does not create a second
    machine."""
    return "".join(secrets.choice(LETTERS) for _ in range(16))


def new_key() -> str:
    return secrets.token_hex(16)


def when(time: When) -> Optional[str]:
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        time = time.astimezone()
    return time.isoformat()


def limits_body(limits: Optional[Limits]) -> Optional[Dict[str, Any]]:
    return None if limits is None else present(limits.to_dict())


def word(flag: bool) -> str:
    """As part of an address."""
    return "true" if flag else "false"


def present(fields: Dict[str, Any]) -> Dict[str, Any]:
    """Without omitted arguments."""
    return {key: value for key, value in fields.items() if value is not None}


def machine_body(
    name: str,
    template: Optional[str],
    tags: Optional[Mapping[str, str]],
    memory_mb: Optional[int],
    limits: Optional[Limits],
    env: Optional[Mapping[str, str]],
    network: Optional[Network],
    durability: Optional[Durability],
    checkpoints: Optional[Checkpoints],
    expires_at: When,
) -> Dict[str, Any]:
    return present(
        {
            "name": name,
            "template": template,
            "tags": dict(tags) if tags else None,
            "memory_mb": memory_mb,
            "limits": limits_body(limits),
            "env": dict(env) if env else None,
            "network": network,
            "durability": durability,
            "checkpoints": checkpoints,
            "expires_at": when(expires_at),
        }
    )


def update_body(
    tags: Optional[Mapping[str, str]],
    limits: Optional[Limits],
    durability: Optional[Durability],
    checkpoints: Optional[Checkpoints],
    network: Optional[Network],
    expires_at: Union[datetime, str, None, ServiceDefault],
    retention: Union[Retention, None, ServiceDefault],
) -> Dict[str, Any]:
    body = present(
        {
            "tags": None if tags is None else dict(tags),
            "limits": limits_body(limits),
            "durability": durability,
            "checkpoints": checkpoints,
            "network": network,
        }
    )
    if not isinstance(expires_at, ServiceDefault):
        body["expires_at"] = when(expires_at)
    if not isinstance(retention, ServiceDefault):
        body["retention"] = retention and present(retention.to_dict())
    return body


def span(start: int, end: Optional[int]) -> Dict[str, str]:
    """The header of a range; none for the whole."""
    if start == 0 and end is None:
        return {}
    return {"range": f"bytes={start}-{'' if end is None else end - 1}"}


def exec_call(
    machine: str,
    code: str,
    timeout_seconds: Seconds,
    interrupt: bool,
    durability: Optional[Durability],
    checkpoints: Optional[Checkpoints],
    idempotency_key: Optional[str],
) -> Call:
    instruction: Dict[str, Any] = {"code": code}
    if not isinstance(timeout_seconds, ServiceDefault):
        instruction["timeout_seconds"] = timeout_seconds
    body = {"instruction": instruction, "interrupt": interrupt}
    if durability is not None:
        body["durability"] = durability
    if checkpoints is not None:
        body["checkpoints"] = checkpoints
    headers = {"idempotency-key": idempotency_key or new_key()}
    path = at(machine, "/exec")
    return Call("POST", path, body=body, headers=headers, repeatable=True)


def branch_body(
    names: List[str],
    count: Optional[int],
    seq: Optional[int],
    tags: Optional[Mapping[str, str]],
    reseed: bool,
) -> Dict[str, Any]:
    body = present({"count": count, "seq": seq, "tags": dict(tags) if tags else None})
    if names:
        body["names"] = names
    if reseed:
        body["reseed"] = True
    return body


def variation(candidate: Candidate) -> Dict[str, Any]:
    """The code of a branch, or an object like the API's `Vary`."""
    return {"code": candidate} if isinstance(candidate, str) else dict(candidate)


def timed(body: Dict[str, Any], timeout_seconds: Seconds) -> Dict[str, Any]:
    if isinstance(timeout_seconds, ServiceDefault):
        return body
    return {**body, "timeout_seconds": timeout_seconds}
