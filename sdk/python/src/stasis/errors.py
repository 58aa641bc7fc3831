"""Errors as types. Each has a stable code, a message and usually a hint.

    StasisError
    ├── ApiError             the service refused; one subclass per kind of refusal
    ├── Unreachable          the service did not answer, or the connection broke for good
    ├── ProtocolError        the response does not come from a Stasis service
    ├── WaitTimeout          the result did not arrive in time; the code continues
    └── InstructionError     the code ended with an error (`Result.check`)
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Type


class StasisError(Exception):
    """Base of all errors of this package."""

    code = "stasis.error"

    def __init__(
        self, message: str, *, code: Optional[str] = None, hint: Optional[str] = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.status: Optional[int] = None
        """The HTTP status of the response, if there was one."""
        self.retry_after: Optional[float] = None
        """Seconds to wait, as requested by the service."""

    def __str__(self) -> str:
        said = f"[{self.code}] {self.message}"
        return f"{said} (hint: {self.hint})" if self.hint else said


class ApiError(StasisError):
    """The service refused a request."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        hint: Optional[str] = None,
        status: Optional[int] = None,
        request_id: Optional[str] = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.status = status
        self.request_id = request_id


class InvalidRequest(ApiError):
    """The request is invalid."""


class Unauthorized(ApiError):
    """The token is missing, unknown or expired."""


class Forbidden(ApiError):
    """The token lacks the scope."""


class NotFound(ApiError):
    """The named thing does not exist, or belongs to another account."""


class Conflict(ApiError):
    """It exists already, or its state does not allow this."""


class TooLarge(ApiError):
    """Larger than allowed."""


class TooMany(ApiError):
    """A quota is exceeded; a later attempt may succeed."""


class Unavailable(ApiError):
    """The service is overloaded or stopping."""


class Unsupported(ApiError):
    """The service does not support it."""


class InternalError(ApiError):
    """An internal error of the service or its host."""


class Unreachable(StasisError):
    """The service did not answer."""

    code = "service.unreachable"


class ProtocolError(StasisError):
    """The response does not come from a Stasis service."""

    code = "service.answer"


class WaitTimeout(StasisError):
    """The result did not arrive in time. The instruction continues."""

    code = "client.wait_timeout"


class InstructionError(StasisError):
    """The code ended with an error."""

    code = "instruction.failed"

    def __init__(self, name: str, message: str, traceback: str) -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name
        self.error_message = message
        self.traceback = traceback

    def __str__(self) -> str:
        return self.traceback.rstrip() or self.message


KINDS: Dict[int, Type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: InvalidRequest,
    409: Conflict,
    413: TooLarge,
    416: InvalidRequest,
    422: InvalidRequest,
    429: TooMany,
    501: Unsupported,
    503: Unavailable,
}


def refusal(status: int, body: Any) -> StasisError:
    """The error for a response with this status and JSON."""
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        hint = "is the address that of a Stasis service?"
        strange = ProtocolError(f"an answer with status {status} that is not ours", hint=hint)
        strange.status = status
        return strange
    kind = KINDS.get(status) or (InternalError if status >= 500 else ApiError)
    return kind(
        str(body.get("message", "")),
        code=body["code"],
        hint=body.get("hint"),
        status=status,
        request_id=body.get("id"),
    )
