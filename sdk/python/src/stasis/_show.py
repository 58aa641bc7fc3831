"""Output as it arrives, on this process's own streams."""

from __future__ import annotations

import sys
from typing import Callable

from .types import Chunk

OnOutput = Callable[[Chunk], object]


def to_own_streams(chunk: Chunk) -> None:
    stream = sys.stderr if chunk.stream == "stderr" else sys.stdout
    print(chunk.data, file=stream, flush=True)


def nowhere(chunk: Chunk) -> None:
    """Output that is not shown; the result has it."""
