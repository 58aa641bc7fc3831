"""When a request is made again, and after which pause. Pure decisions."""

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
    """How often and how fast requests are made again.

    Pauses begin at `first` seconds and double up to `longest`, each shortened by chance so that
    many clients do not come back at once. A stream that breaks is resumed up to `resumes` times
    without a new line in between.
    """

    attempts: int = 4
    resumes: int = 12
    first: float = 0.1
    longest: float = 5.0

    def pause(self, made: int, asked: Optional[float] = None) -> float:
        """Seconds before the next try, after `made` tries; at least what the service asked for."""
        grown = min(self.longest, self.first * 2.0 ** min(made, 30))
        return max(grown * random.uniform(0.5, 1.0), min(asked or 0.0, 60.0))


@dataclass(frozen=True)
class Trouble:
    """What went wrong with a request."""

    sent: bool = True
    """Whether the service may have acted on it."""
    status: Optional[int] = None
    """Of the answer; 0 if what is wrong is not its status."""
    retry_after: Optional[float] = None


def is_worth(trouble: Trouble, repeatable: bool) -> bool:
    """Whether a request may be made again: it did nothing, or doing it twice is doing it once."""
    if trouble.status is None:
        return repeatable or not trouble.sent
    if trouble.status in NOT_NOW:
        return True
    return repeatable and trouble.status in LOST_BETWEEN


def seconds(header: Optional[str]) -> Optional[float]:
    """What `retry-after` asks for; dates are not read."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
