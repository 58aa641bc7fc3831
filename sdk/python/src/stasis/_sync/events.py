# Written by `python3 sdk/generate` from _async/events.py; change that instead.

"""All changes as they happen, over as many connections as necessary."""

from __future__ import annotations

import json
from typing import Iterator, Optional

import httpx

from .. import types
from .._json import decode
from .._requests import get
from .._sse import Parser
from ..errors import StasisError
from .transport import Transport


def listen(
    transport: Transport,
    machine: Optional[str],
    tag: Optional[str],
    kind: Optional[str],
    after: Optional[int],
) -> Iterator[types.Event]:
    """Resumes after the last received event when a connection breaks."""
    position, broken = after, 0
    while True:
        call = get("/v1/events", machine=machine, tag=tag, kind=kind, after=position)
        try:
            with transport.stream(call) as response:
                parser = Parser()
                for piece in response.iter_bytes():
                    broken = 0
                    for event in parser.feed(piece):
                        yield decode(types.Event, json.loads(event.data))
                    if parser.last_id is not None:
                        position = int(parser.last_id)
            raise httpx.RemoteProtocolError("the stream of events ended")
        except (httpx.TransportError, StasisError) as error:
            transport.breathe(error, broken)
            broken += 1
