# Written by `python3 sdk/generate` from _async/instruction.py; change that instead.

"""A submitted instruction: its output as it arrives, its result, its end."""

from __future__ import annotations

import json
from time import monotonic
from typing import Iterator, List, Optional, Union

import httpx

from .. import types
from .._json import decode
from .._requests import Call, at, get, post
from .._show import OnOutput, nowhere
from .._sse import Event, Parser
from ..errors import StasisError, Unreachable, WaitTimeout, refusal
from ..result import Result
from .transport import Transport

Progress = Union[types.Chunk, types.Instruction]


class Instruction:
    """An instruction of a machine. It continues whether or not a client follows it."""

    def __init__(self, transport: Transport, machine: str, seq: int) -> None:
        self._transport = transport
        self.machine = machine
        self.seq = seq
        self.interrupted = False
        """Whether another instruction was interrupted for it."""

    @property
    def address(self) -> str:
        """The state after it, as `machine@seq`."""
        return f"{self.machine}@{self.seq}"

    def info(self) -> types.Instruction:
        """Its current description."""
        return self._transport.ask(get(self._path()), types.Instruction)

    @property
    def result(self) -> Result:
        """Its result, as soon as it has ended."""
        return self.wait()

    @property
    def output(self) -> Iterator[types.Chunk]:
        """Its output from the first line on, as it arrives."""
        for progress in self.follow():
            if isinstance(progress, types.Chunk):
                yield progress

    def wait(
        self, on_output: Optional[OnOutput] = None, wait_seconds: Optional[float] = None
    ) -> Result:
        """Its result with all output. Raises `WaitTimeout` after `wait_seconds`."""
        output: List[types.Chunk] = []
        tell = on_output or nowhere
        for progress in self.follow(wait_seconds=wait_seconds):
            if isinstance(progress, types.Instruction):
                return Result(self.machine, progress, output)
            output.append(progress)
            tell(progress)
        raise Unreachable(f"{self.address} has no end")

    def cancel(self) -> bool:
        """Removes it from the queue; whether it still waited there."""
        asked = post(self._path("/cancel"), repeatable=True)
        return (self._transport.ask(asked, types.Cancelled)).cancelled

    def stop(self) -> None:
        """Cancels it if it waits and interrupts it if it runs; the machine's state is kept."""
        if not self.cancel() and (self.info()).status == "running":
            self._transport.json(post(at(self.machine, "/interrupt")))

    def follow(
        self, start: int = 0, wait_seconds: Optional[float] = None
    ) -> Iterator[Progress]:
        """Output from line `start` on, then the end, over as many connections as necessary."""
        deadline = None if wait_seconds is None else monotonic() + wait_seconds
        position, broken = start, 0
        while True:
            patience = self._patience(deadline)
            try:
                with self._transport.stream(self._events(position, patience)) as response:
                    parser = Parser()
                    for piece in response.iter_bytes():
                        events = list(parser.feed(piece))
                        for progress in map(read_event, events):
                            if isinstance(progress, types.Instruction):
                                yield progress
                                return
                            # a service that repeats a line is not echoed
                            if progress.seq >= position:
                                position, broken = progress.seq + 1, 0
                                yield progress
                        # a sign of life: the timeout of the connection may exceed the time left
                        if not events and self._patience(deadline) < patience:
                            break
                    else:
                        raise httpx.RemoteProtocolError("the stream ended before the result")
                continue
            except (httpx.TransportError, StasisError) as error:
                self._patience(deadline)
                self._transport.breathe(error, broken)
                broken += 1

    def _events(self, position: int, patience: float) -> Call:
        query = {"from": position}
        return Call("GET", self._path("/events"), query=query, repeatable=True, timeout=patience)

    def _patience(self, deadline: Optional[float]) -> float:
        """Maximum silence of the stream."""
        patience = self._transport.config.timeout
        if deadline is None:
            return patience
        left = deadline - monotonic()
        if left <= 0:
            raise self._too_long()
        return min(patience, left)

    def _too_long(self) -> WaitTimeout:
        hint = "it is still running: fetch its result later, or interrupt it"
        return WaitTimeout(f"{self.address} has no result yet", hint=hint)

    def _path(self, rest: str = "") -> str:
        return at(self.machine, f"/exec/{self.seq}{rest}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"


def read_event(event: Event) -> Progress:
    data = json.loads(event.data)
    if event.kind == "output":
        return decode(types.Chunk, data)
    if event.kind == "result":
        return decode(types.Instruction, data)
    raise refusal(500, data)
