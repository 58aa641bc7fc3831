"""All changes as they happen, over as many connections as necessary."""

from __future__ import annotations

import json
from typing import AsyncIterator, Optional

import httpx

from .. import types
from .._json import decode
from .._requests import get
from .._sse import Parser
from ..errors import StasisError
from .transport import AsyncTransport


async def listen(
    transport: AsyncTransport,
    machine: Optional[str],
    tag: Optional[str],
    kind: Optional[str],
    after: Optional[int],
) -> AsyncIterator[types.Event]:
    """Resumes after the last received event when a connection breaks."""
    position, broken = after, 0
    while True:
        call = get("/v1/events", machine=machine, tag=tag, kind=kind, after=position)
        try:
            async with transport.stream(call) as response:
                parser = Parser()
                async for piece in response.aiter_bytes():
                    broken = 0
                    for event in parser.feed(piece):
                        yield decode(types.Event, json.loads(event.data))
                    if parser.last_id is not None:
                        position = int(parser.last_id)
            raise httpx.RemoteProtocolError("the stream of events ended")
        except (httpx.TransportError, StasisError) as error:
            await transport.breathe(error, broken)
            broken += 1
