"""A machine: run code, look, go back, branch."""

from __future__ import annotations

import asyncio
from datetime import datetime
from types import TracebackType
from typing import AsyncIterator, List, Mapping, Optional, Sequence, Type, Union

from .. import types
from .._requests import (
    SERVICE_DEFAULT,
    Call,
    Seconds,
    ServiceDefault,
    at,
    branch_body,
    exec_call,
    get,
    post,
    update_body,
)
from .._show import OnOutput, nowhere, to_own_streams
from ..result import Result
from .instruction import AsyncInstruction
from .transport import AsyncTransport

PAGE = 1000


class AsyncMachine:
    """A machine by name. As a context manager it removes the machine at the end."""

    def __init__(
        self, transport: AsyncTransport, name: str, info: Optional[types.Machine] = None
    ) -> None:
        self._transport = transport
        self.name = name
        self.info = info
        """What the service last said of it, if it said anything."""

    # running code

    async def exec(
        self,
        code: str,
        *,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
        interrupt: bool = False,
        durability: Optional[types.Durability] = None,
        idempotency_key: Optional[str] = None,
    ) -> AsyncInstruction:
        """Gives it code to run, and does not wait.

        `timeout_seconds=None` lets the code take as long as it likes. `interrupt` ends what runs
        and cancels what waits first.
        """
        call = exec_call(
            self.name, code, timeout_seconds, interrupt, durability, idempotency_key
        )
        accepted = await self._transport.ask(call, types.Accepted)
        instruction = self.instruction(accepted.instruction_seq)
        instruction.interrupted = accepted.interrupted
        return instruction

    async def run(
        self,
        code: str,
        *,
        quiet: bool = False,
        on_output: Optional[OnOutput] = None,
        wait_seconds: Optional[float] = None,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
        interrupt: bool = False,
        durability: Optional[types.Durability] = None,
        idempotency_key: Optional[str] = None,
    ) -> Result:
        """Runs code to its end. Output appears while it comes, on this process's own streams.

        An error of the code is part of the result; `run(...).check()` raises it. Whoever stops
        waiting (Ctrl-C, a cancelled task) interrupts the code; the machine's state is kept.
        """
        instruction = await self.exec(
            code,
            timeout_seconds=timeout_seconds,
            interrupt=interrupt,
            durability=durability,
            idempotency_key=idempotency_key,
        )
        tell = on_output or (nowhere if quiet else to_own_streams)
        try:
            return await instruction.wait(tell, wait_seconds)
        except asyncio.CancelledError:
            await instruction.stop()
            raise

    def instruction(self, seq: int) -> AsyncInstruction:
        """An instruction that it was given before."""
        return AsyncInstruction(self._transport, self.name, seq)

    async def instructions(
        self, start: int = 0, *, page_size: int = PAGE
    ) -> AsyncIterator[types.Instruction]:
        """All instructions from number `start` on, oldest first."""
        while True:
            asked = get(self._path("/exec"), from_=start, limit=page_size)
            page = (await self._transport.ask(asked, types.InstructionList)).instructions
            for instruction in page:
                yield instruction
            if not page:
                return
            start = page[-1].seq + 1

    async def interrupt(self) -> bool:
        """Interrupts what runs and keeps the state; whether something ran."""
        asked = post(self._path("/interrupt"))
        return (await self._transport.ask(asked, types.Interrupted)).interrupted

    # looking

    async def refresh(self) -> types.Machine:
        """What the service says of it now."""
        return self._remember(await self._transport.ask(get(self._path()), types.Machine))

    async def variables(self) -> List[types.Var]:
        """Variables of the session."""
        return (await self._transport.ask(get(self._path("/vars")), types.VarList)).vars

    async def complete(self, code: str, cursor: Optional[int] = None) -> types.Completions:
        """Names that could stand where the cursor is; at the end unless told."""
        call = post(self._path("/complete"), {"code": code, "cursor": cursor}, repeatable=True)
        return await self._transport.ask(call, types.Completions)

    # going back, and elsewhere

    async def history(self) -> List[types.Point]:
        """States that can be gone back to, oldest first."""
        return (await self._transport.ask(get(self._path("/history")), types.History)).checkpoints

    async def undo(self) -> types.Machine:
        """Back to the state before the last instruction."""
        return await self._change(post(self._path("/undo")))

    async def rollback(self, seq: Optional[int]) -> types.Machine:
        """Back to the state after instruction `seq`, or with None to the beginning."""
        return await self._change(post(self._path("/rollback"), {"seq": seq}, repeatable=True))

    async def branch(
        self,
        name: Optional[str] = None,
        *,
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
    ) -> AsyncMachine:
        """A new machine that goes on from this one's state, or from that after `seq`."""
        names = [name] if name else []
        return (await self._branch(branch_body(names, 1, seq, tags, reseed)))[0]

    async def branches(
        self,
        count: Optional[int] = None,
        *,
        names: Sequence[str] = (),
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
    ) -> List[AsyncMachine]:
        """Several branches in one call: so many, or these."""
        return await self._branch(branch_body(list(names), count, seq, tags, reseed))

    async def _branch(self, body: object) -> List[AsyncMachine]:
        call = post(self._path("/branch"), body)
        made = (await self._transport.ask(call, types.Branches)).machines
        return [AsyncMachine(self._transport, info.name, info) for info in made]

    # its life

    async def update(
        self,
        *,
        tags: Optional[Mapping[str, str]] = None,
        limits: Optional[types.Limits] = None,
        durability: Optional[types.Durability] = None,
        expires_at: Union[datetime, str, None, ServiceDefault] = SERVICE_DEFAULT,
    ) -> types.Machine:
        """Changes what is given; `tags` replaces all, `expires_at=None` takes an expiry away."""
        body = update_body(tags, limits, durability, expires_at)
        return await self._change(Call("PATCH", self._path(), body=body, repeatable=True))

    async def swap(self) -> types.Machine:
        """Moves it out of memory. The next instruction brings it back."""
        return await self._change(post(self._path("/swap"), repeatable=True))

    async def wake(self) -> types.Machine:
        """Brings it into memory."""
        return await self._change(post(self._path("/wake"), repeatable=True))

    async def remove(self) -> None:
        """Removes it and all it had."""
        await self._transport.json(Call("DELETE", self._path()))

    async def __aenter__(self) -> AsyncMachine:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.remove()

    async def _change(self, call: Call) -> types.Machine:
        return self._remember(await self._transport.ask(call, types.Machine))

    def _remember(self, info: types.Machine) -> types.Machine:
        self.info = info
        return info

    def _path(self, rest: str = "") -> str:
        return at(self.name, rest)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
