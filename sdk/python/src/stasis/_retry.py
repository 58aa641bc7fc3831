"""When a request is retried, and after which pause. Pure decisions."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Optional

# Refused before anything was done.
NOT_NOW = (429, 503)
# A proxy between us and the service did not reach it, or not in time.
LOST_BETWEEN = (502, 504)


@dataclass(frozen=True)
class Retry:
    """The number and pace of retries.

    Pauses start at `first` seconds and double up to `longest`, with jitter so that many clients do
    not return at once. A broken stream is resumed up to `resumes` times without a new line in
    between.
    """

    attempts: int = 4
    resumes: int = 12
    first: float = 0.1
    longest: float = 5.0

    def pause(self, made: int, asked: Optional[float] = None) -> float:
        """Seconds before the next attempt, after `made` attempts; at least the service's
        `retry-after`."""
        grown = min(self.longest, self.first * 2.0 ** min(made, 30))
        return max(grown * random.uniform(0.5, 1.0), min(asked or 0.0, 60.0))


@dataclass(frozen=True)
class Trouble:
    """The fault of a request."""

    sent: bool = True
    """Whether the service may have acted on it."""
    status: Optional[int] = None
    """The status of the response; 0 if the fault is another one."""
    retry_after: Optional[float] = None


def is_worth(trouble: Trouble, repeatable: bool) -> bool:
    """Whether a request may be retried: it had no effect, or is idempotent."""
    if trouble.status is None:
        return repeatable or not trouble.sent
    if trouble.status in NOT_NOW:
        return True
    return repeatable and trouble.status in LOST_BETWEEN


def seconds(header: Optional[str]) -> Optional[float]:
    """The value of `retry-after`; dates are not supported."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
