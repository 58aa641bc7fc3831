"""A machine: run code, inspect, go back, branch."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, AsyncIterator, List, Mapping, Optional, Sequence, Type, Union

from .. import types
from .._json import decode
from .._requests import (
    LONG_SILENCE,
    SERVICE_DEFAULT,
    Call,
    Candidate,
    Seconds,
    ServiceDefault,
    at,
    branch_body,
    exec_call,
    get,
    post,
    segment,
    timed,
    update_body,
    variation,
    word,
)
from .._show import OnOutput, nowhere, to_own_streams
from ..result import Result
from .events import listen
from .files import AsyncFiles, download, resumed, save
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
        """The last description from the service, if any."""

    # running code

    async def exec(
        self,
        code: str,
        *,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
        interrupt: bool = False,
        durability: Optional[types.Durability] = None,
        checkpoints: Optional[types.Checkpoints] = None,
        idempotency_key: Optional[str] = None,
    ) -> AsyncInstruction:
        """Submits code, and does not wait.

        `timeout_seconds=None` removes the time limit. `interrupt` first interrupts the running
        instruction and cancels waiting ones.
        """
        call = exec_call(
            self.name, code, timeout_seconds, interrupt, durability, checkpoints, idempotency_key
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
        checkpoints: Optional[types.Checkpoints] = None,
        idempotency_key: Optional[str] = None,
    ) -> Result:
        """Runs code to its end. Output appears as it arrives, on this process's own streams.

        An error of the code is part of the result; `run(...).check()` raises it. Ctrl-C or a
        cancelled task interrupts the code; the machine's state is kept.
        """
        instruction = await self.exec(
            code,
            timeout_seconds=timeout_seconds,
            interrupt=interrupt,
            durability=durability,
            checkpoints=checkpoints,
            idempotency_key=idempotency_key,
        )
        tell = on_output or (nowhere if quiet else to_own_streams)
        try:
            return await instruction.wait(tell, wait_seconds)
        except asyncio.CancelledError:
            await instruction.stop()
            raise

    def instruction(self, seq: int) -> AsyncInstruction:
        """An earlier instruction."""
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
        """Interrupts the running instruction and keeps the state; whether one ran."""
        asked = post(self._path("/interrupt"))
        return (await self._transport.ask(asked, types.Interrupted)).interrupted

    # looking

    async def refresh(self) -> types.Machine:
        """Its current description from the service."""
        return self._remember(await self._transport.ask(get(self._path()), types.Machine))

    async def variables(self) -> List[types.Var]:
        """Variables of the session."""
        return (await self._transport.ask(get(self._path("/vars")), types.VarList)).vars

    async def complete(self, code: str, cursor: Optional[int] = None) -> types.Completions:
        """Completions at the cursor; at the end by default."""
        call = post(self._path("/complete"), {"code": code, "cursor": cursor}, repeatable=True)
        return await self._transport.ask(call, types.Completions)

    def events(
        self, *, kind: Optional[str] = None, after: Optional[int] = None
    ) -> AsyncIterator[types.Event]:
        """Changes of this machine, as in the client's `events`."""
        return listen(self._transport, self.name, None, kind, after)

    # files

    @property
    def files(self) -> AsyncFiles:
        """Its files."""
        return AsyncFiles(self._transport, self.name)

    async def artifacts(self) -> List[types.Kept]:
        """Artifacts, which are values too large for results, oldest first."""
        asked = get(self._path("/artifact"))
        return (await self._transport.ask(asked, types.ArtifactList)).artifacts

    def artifact(
        self, id: str, start: int = 0, end: Optional[int] = None
    ) -> AsyncIterator[bytes]:
        """The bytes of an artifact as they arrive."""
        call = get(self._path(f"/artifact/{segment(id)}"))
        return resumed(self._transport, call, start, end)

    async def calls(self) -> List[types.ToolCall]:
        """Its calls of tools with verdicts and answers, newest first."""
        asked = get(self._path("/calls"))
        return (await self._transport.ask(asked, types.ToolCallList)).calls

    # going back, and elsewhere

    async def history(self, *, files: bool = False) -> List[types.Point]:
        """States to return to, oldest first; optionally with the files each changed."""
        asked = get(self._path("/history"), files=word(True) if files else None)
        return (await self._transport.ask(asked, types.History)).checkpoints

    async def label(self, seq: int, label: Optional[str]) -> List[types.Point]:
        """Sets or removes the label of a state; returns the new history."""
        call = post(self._path("/label"), {"seq": seq, "label": label}, repeatable=True)
        return (await self._transport.ask(call, types.History)).checkpoints

    async def lineage(self) -> types.Lineage:
        """Its ancestors, its branches, and its whole family."""
        return await self._transport.ask(get(self._path("/lineage")), types.Lineage)

    async def disk(self) -> types.DiskUse:
        """Disk use of the machine and its checkpoints."""
        return await self._transport.ask(get(self._path("/disk")), types.DiskUse)

    def at(self, seq: int) -> AsyncPast:
        """The state after an instruction, to inspect without going back."""
        return AsyncPast(self._transport, self.name, seq)

    async def undo(self, n: int = 1, *, grouped: bool = False) -> types.Machine:
        """Undoes the last `n` instructions. If they share a state with others (grouped
        instructions), this is refused unless `grouped` includes those."""
        return await self._change(post(self._path("/undo"), {"n": n, "grouped": grouped}))

    async def redo(self, n: int = 1, *, grouped: bool = False) -> types.Machine:
        """Redoes `n` undone instructions, as long as nothing new ran."""
        return await self._change(post(self._path("/redo"), {"n": n, "grouped": grouped}))

    async def rollback(self, seq: Optional[int]) -> types.Machine:
        """Returns to the state after instruction `seq`, or with None to the beginning."""
        return await self._change(post(self._path("/rollback"), {"seq": seq}, repeatable=True))

    async def branch(
        self,
        name: Optional[str] = None,
        *,
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
        network: Optional[types.Network] = None,
    ) -> AsyncMachine:
        """A new machine that continues from this one's state, or from that after `seq`."""
        body = branch_body([name] if name else [], 1, seq, tags, reseed)
        if network is not None:
            body["network"] = network
        return (await self._branch(body))[0]

    async def branches(
        self,
        count: Optional[int] = None,
        *,
        names: Sequence[str] = (),
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
    ) -> List[AsyncMachine]:
        """Several branches in one call: this many, or with these names."""
        return await self._branch(branch_body(list(names), count, seq, tags, reseed))

    async def vary(
        self,
        candidates: Sequence[Candidate],
        *,
        names: Sequence[str] = (),
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
    ) -> AsyncIterator[types.BranchEnd]:
        """Creates a branch for each candidate and runs them in parallel; yields results as branches
        finish.

        A candidate is code, or a mapping with `code`, `variables`, `tags` and `limits`.
        """
        body = branch_body(list(names), None, seq, tags, reseed)
        body = {**body, "vary": [variation(one) for one in candidates], "stream": True}
        if not names:
            body["count"] = len(candidates)
        body = timed(body, timeout_seconds)
        call = Call("POST", self._path("/branch"), body=body, timeout=LONG_SILENCE)
        async for line in self._transport.lines(call):
            said = decode(types.BranchLine, json.loads(line))
            if said.type == "end":
                yield decode(types.BranchEnd, json.loads(line))
            if said.type == "over":
                return

    async def explore(
        self,
        candidates: Sequence[Candidate],
        score: str,
        *,
        minimize: bool = False,
        keep: bool = False,
        seq: Optional[int] = None,
        reseed: bool = False,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
    ) -> types.Explored:
        """Runs candidates as branches and keeps the one with the best score under this name.

        `score` is an expression that each branch evaluates. `keep` keeps the losing branches, and
        the original machine.
        """
        body = {
            "candidates": [variation(one) for one in candidates],
            "score": score,
            "minimize": minimize,
            "keep": keep,
            "reseed": reseed,
            "seq": seq,
        }
        body = timed(body, timeout_seconds)
        call = Call("POST", self._path("/explore"), body=body, timeout=LONG_SILENCE)
        return await self._transport.ask(call, types.Explored)

    async def adopt(
        self,
        source: Union[str, AsyncMachine],
        variables: Sequence[str] = (),
        files: Sequence[str] = (),
        *,
        force: bool = False,
    ) -> types.Adopted:
        """Copies variables and files from another machine, or a checkpoint of one.

        Names that both sides changed since they parted are conflicts: nothing is copied without
        `force`.
        """
        origin = source if isinstance(source, str) else source.name
        body = {"from": origin, "variables": list(variables), "files": list(files)}
        call = Call(
            "POST", self._path("/adopt"), body={**body, "force": force}, timeout=LONG_SILENCE
        )
        return await self._transport.ask(call, types.Adopted)

    async def promote(self, onto: Union[str, AsyncMachine, None] = None) -> AsyncMachine:
        """Exchanges names with the parent, or another machine; returns the machine that had the
        name."""
        promoted = await self._promote(onto, False)
        return AsyncMachine(self._transport, promoted.former.name, promoted.former)

    async def _promote(
        self, onto: Union[str, AsyncMachine, None], remove: bool
    ) -> types.Promoted:
        target = onto if onto is None or isinstance(onto, str) else onto.name
        call = post(self._path("/promote"), {"onto": target, "remove": remove})
        promoted = await self._transport.ask(call, types.Promoted)
        self.name = promoted.machine.name
        self.info = promoted.machine
        return promoted

    def export(self, *, history: bool = False, root: bool = True) -> AsyncIterator[bytes]:
        """Exports it as one file, in pieces: its current state, or all its checkpoints and its log.

        `root=False` leaves out the files of its template, for a host that has them.
        """
        query = {"history": word(history), "root": word(root)}
        call = Call("GET", self._path("/export"), query=query, timeout=LONG_SILENCE)
        return download(self._transport, call)

    async def export_to(
        self, local: Union[str, PathLike[str]], *, history: bool = False, root: bool = True
    ) -> None:
        """Exports it to a local file, which gets its name when it is complete."""
        await save(self.export(history=history, root=root), local)

    def attempt(self, *, reseed: bool = False, keep: bool = False) -> AsyncAttempt:
        """A branch for a `with` block: if the block succeeds, the branch replaces the machine.

        The old machine is then removed, unless `keep` is set or it ran something meanwhile.
        """
        return AsyncAttempt(self, reseed, keep)

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
        checkpoints: Optional[types.Checkpoints] = None,
        network: Optional[types.Network] = None,
        expires_at: Union[datetime, str, None, ServiceDefault] = SERVICE_DEFAULT,
        retention: Union[types.Retention, None, ServiceDefault] = SERVICE_DEFAULT,
    ) -> types.Machine:
        """Changes the given settings; `tags` replaces all, `expires_at=None` removes the expiry.

        `network` takes effect at the next wake. `retention=None` restores the service's rule.
        """
        body = update_body(tags, limits, durability, checkpoints, network, expires_at, retention)
        return await self._change(Call("PATCH", self._path(), body=body, repeatable=True))

    async def swap(self) -> types.Machine:
        """Moves it out of memory. The next instruction brings it back."""
        return await self._change(post(self._path("/swap"), repeatable=True))

    async def wake(self) -> types.Machine:
        """Brings it into memory."""
        return await self._change(post(self._path("/wake"), repeatable=True))

    async def remove(self) -> None:
        """Removes it with all its data."""
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


class AsyncPast:
    """A machine's state after an instruction, read-only."""

    def __init__(self, transport: AsyncTransport, machine: str, seq: int) -> None:
        self._transport = transport
        self._machine = machine
        self.seq = seq

    async def variables(self) -> List[types.Var]:
        """Variables of that state."""
        return (await self._transport.ask(get(self._path("/vars")), types.VarList)).vars

    async def files(self, path: str) -> List[types.FileView]:
        """A directory of that state."""
        asked = get(self._path("/files"), path=path)
        return (await self._transport.ask(asked, types.FileViews)).files

    async def read(self, path: str) -> bytes:
        """A file of that state."""
        asked = get(self._path("/file"), path=path)
        return b"".join([piece async for piece in resumed(self._transport, asked, 0, None)])

    def _path(self, rest: str) -> str:
        return at(self._machine, f"/at/{self.seq}{rest}")


class AsyncAttempt:
    """A branch that replaces its parent at the end of a block, or is removed if the block fails."""

    def __init__(self, machine: AsyncMachine, reseed: bool, keep: bool) -> None:
        self._machine = machine
        self._reseed = reseed
        self._keep = keep
        self._discarded = False
        self.former: Optional[AsyncMachine] = None
        """The old machine, under the branch's name, if it was kept."""

    def discard(self) -> None:
        """Discards the branch although the block succeeds."""
        self._discarded = True

    @property
    def branch(self) -> AsyncMachine:
        return self._branch

    async def run(self, code: str, **options: Any) -> Result:
        """Like a machine's `run`, on the branch; raises an error of the code."""
        return (await self._branch.run(code, **options)).check()

    async def __aenter__(self) -> AsyncAttempt:
        self._branch = await self._machine.branch(reseed=self._reseed)
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if error is not None or self._discarded:
            await self._branch.remove()
        else:
            promoted = await self._branch._promote(self._machine, not self._keep)
            if not promoted.removed:
                former = promoted.former
                self.former = AsyncMachine(self._machine._transport, former.name, former)
