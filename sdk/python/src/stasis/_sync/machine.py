# Written by `python3 sdk/generate` from _async/machine.py; change that instead.

"""A machine: run code, look, go back, branch."""

from __future__ import annotations

import json
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Type, Union

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
from .files import Files, download, resumed, save
from .instruction import Instruction
from .transport import Transport

PAGE = 1000


class Machine:
    """A machine by name. As a context manager it removes the machine at the end."""

    def __init__(
        self, transport: Transport, name: str, info: Optional[types.Machine] = None
    ) -> None:
        self._transport = transport
        self.name = name
        self.info = info
        """What the service last said of it, if it said anything."""

    # running code

    def exec(
        self,
        code: str,
        *,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
        interrupt: bool = False,
        durability: Optional[types.Durability] = None,
        checkpoints: Optional[types.Checkpoints] = None,
        idempotency_key: Optional[str] = None,
    ) -> Instruction:
        """Gives it code to run, and does not wait.

        `timeout_seconds=None` lets the code take as long as it likes. `interrupt` ends what runs
        and cancels what waits first.
        """
        call = exec_call(
            self.name, code, timeout_seconds, interrupt, durability, checkpoints, idempotency_key
        )
        accepted = self._transport.ask(call, types.Accepted)
        instruction = self.instruction(accepted.instruction_seq)
        instruction.interrupted = accepted.interrupted
        return instruction

    def run(
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
        """Runs code to its end. Output appears while it comes, on this process's own streams.

        An error of the code is part of the result; `run(...).check()` raises it. Whoever stops
        waiting (Ctrl-C, a cancelled task) interrupts the code; the machine's state is kept.
        """
        instruction = self.exec(
            code,
            timeout_seconds=timeout_seconds,
            interrupt=interrupt,
            durability=durability,
            checkpoints=checkpoints,
            idempotency_key=idempotency_key,
        )
        tell = on_output or (nowhere if quiet else to_own_streams)
        try:
            return instruction.wait(tell, wait_seconds)
        except KeyboardInterrupt:
            instruction.stop()
            raise

    def instruction(self, seq: int) -> Instruction:
        """An instruction that it was given before."""
        return Instruction(self._transport, self.name, seq)

    def instructions(
        self, start: int = 0, *, page_size: int = PAGE
    ) -> Iterator[types.Instruction]:
        """All instructions from number `start` on, oldest first."""
        while True:
            asked = get(self._path("/exec"), from_=start, limit=page_size)
            page = (self._transport.ask(asked, types.InstructionList)).instructions
            for instruction in page:
                yield instruction
            if not page:
                return
            start = page[-1].seq + 1

    def interrupt(self) -> bool:
        """Interrupts what runs and keeps the state; whether something ran."""
        asked = post(self._path("/interrupt"))
        return (self._transport.ask(asked, types.Interrupted)).interrupted

    # looking

    def refresh(self) -> types.Machine:
        """What the service says of it now."""
        return self._remember(self._transport.ask(get(self._path()), types.Machine))

    def variables(self) -> List[types.Var]:
        """Variables of the session."""
        return (self._transport.ask(get(self._path("/vars")), types.VarList)).vars

    def complete(self, code: str, cursor: Optional[int] = None) -> types.Completions:
        """Names that could stand where the cursor is; at the end unless told."""
        call = post(self._path("/complete"), {"code": code, "cursor": cursor}, repeatable=True)
        return self._transport.ask(call, types.Completions)

    def events(
        self, *, kind: Optional[str] = None, after: Optional[int] = None
    ) -> Iterator[types.Event]:
        """What changes about it, as `events` of the client tells."""
        return listen(self._transport, self.name, None, kind, after)

    # files

    @property
    def files(self) -> Files:
        """Its files."""
        return Files(self._transport, self.name)

    def artifacts(self) -> List[types.Kept]:
        """What was too large for results, oldest first."""
        asked = get(self._path("/artifact"))
        return (self._transport.ask(asked, types.ArtifactList)).artifacts

    def artifact(
        self, id: str, start: int = 0, end: Optional[int] = None
    ) -> Iterator[bytes]:
        """The bytes of an artifact as they come."""
        call = get(self._path(f"/artifact/{segment(id)}"))
        return resumed(self._transport, call, start, end)

    # going back, and elsewhere

    def history(self, *, files: bool = False) -> List[types.Point]:
        """States that can be gone back to, oldest first; with the files each changed if asked."""
        asked = get(self._path("/history"), files=word(True) if files else None)
        return (self._transport.ask(asked, types.History)).checkpoints

    def label(self, seq: int, label: Optional[str]) -> List[types.Point]:
        """Names the state after an instruction, or takes its name away; the history then."""
        call = post(self._path("/label"), {"seq": seq, "label": label}, repeatable=True)
        return (self._transport.ask(call, types.History)).checkpoints

    def lineage(self) -> types.Lineage:
        """Its ancestors, its branches, and its whole family."""
        return self._transport.ask(get(self._path("/lineage")), types.Lineage)

    def disk(self) -> types.DiskUse:
        """What it and its checkpoints take on the disk."""
        return self._transport.ask(get(self._path("/disk")), types.DiskUse)

    def at(self, seq: int) -> Past:
        """The state after an instruction, to look at without going back."""
        return Past(self._transport, self.name, seq)

    def undo(self, n: int = 1, *, grouped: bool = False) -> types.Machine:
        """Takes the last `n` instructions back. If they share a state with others, which grouped
        instructions do, this is refused unless `grouped` says to take those along."""
        return self._change(post(self._path("/undo"), {"n": n, "grouped": grouped}))

    def redo(self, n: int = 1, *, grouped: bool = False) -> types.Machine:
        """Redoes `n` instructions that were undone, as long as nothing new ran."""
        return self._change(post(self._path("/redo"), {"n": n, "grouped": grouped}))

    def rollback(self, seq: Optional[int]) -> types.Machine:
        """Back to the state after instruction `seq`, or with None to the beginning."""
        return self._change(post(self._path("/rollback"), {"seq": seq}, repeatable=True))

    def branch(
        self,
        name: Optional[str] = None,
        *,
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
        network: Optional[types.Network] = None,
    ) -> Machine:
        """A new machine that goes on from this one's state, or from that after `seq`."""
        body = branch_body([name] if name else [], 1, seq, tags, reseed)
        if network is not None:
            body["network"] = network
        return (self._branch(body))[0]

    def branches(
        self,
        count: Optional[int] = None,
        *,
        names: Sequence[str] = (),
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
    ) -> List[Machine]:
        """Several branches in one call: so many, or these."""
        return self._branch(branch_body(list(names), count, seq, tags, reseed))

    def vary(
        self,
        candidates: Sequence[Candidate],
        *,
        names: Sequence[str] = (),
        seq: Optional[int] = None,
        tags: Optional[Mapping[str, str]] = None,
        reseed: bool = False,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
    ) -> Iterator[types.BranchEnd]:
        """A branch for each candidate, all at once; how each ended, in the order they end.

        A candidate is code, or a mapping with `code`, `variables`, `tags` and `limits`.
        """
        body = branch_body(list(names), None, seq, tags, reseed)
        body = {**body, "vary": [variation(one) for one in candidates], "stream": True}
        if not names:
            body["count"] = len(candidates)
        body = timed(body, timeout_seconds)
        call = Call("POST", self._path("/branch"), body=body, timeout=LONG_SILENCE)
        for line in self._transport.lines(call):
            said = decode(types.BranchLine, json.loads(line))
            if said.type == "end":
                yield decode(types.BranchEnd, json.loads(line))
            if said.type == "over":
                return

    def explore(
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
        """Tries candidates as branches and keeps the one with the best score under this name.

        `score` is an expression that each branch is asked for. `keep` keeps those that
        lose, and the machine as it was.
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
        return self._transport.ask(call, types.Explored)

    def adopt(
        self,
        source: Union[str, Machine],
        variables: Sequence[str] = (),
        files: Sequence[str] = (),
        *,
        force: bool = False,
    ) -> types.Adopted:
        """Takes variables and files over from another machine, or a checkpoint of one.

        What both sides changed since they parted is a conflict, and nothing is taken without
        `force`.
        """
        origin = source if isinstance(source, str) else source.name
        body = {"from": origin, "variables": list(variables), "files": list(files)}
        call = Call(
            "POST", self._path("/adopt"), body={**body, "force": force}, timeout=LONG_SILENCE
        )
        return self._transport.ask(call, types.Adopted)

    def promote(self, onto: Union[str, Machine, None] = None) -> Machine:
        """Takes the parent's name, or another's, which gets this one's; the machine that had it."""
        promoted = self._promote(onto, False)
        return Machine(self._transport, promoted.former.name, promoted.former)

    def _promote(
        self, onto: Union[str, Machine, None], remove: bool
    ) -> types.Promoted:
        target = onto if onto is None or isinstance(onto, str) else onto.name
        call = post(self._path("/promote"), {"onto": target, "remove": remove})
        promoted = self._transport.ask(call, types.Promoted)
        self.name = promoted.machine.name
        self.info = promoted.machine
        return promoted

    def export(self, *, history: bool = False, root: bool = True) -> Iterator[bytes]:
        """It as one file, piece by piece: its state now, or all its checkpoints and its log.

        With `root=False` without the files of its template, for a host that has them.
        """
        query = {"history": word(history), "root": word(root)}
        call = Call("GET", self._path("/export"), query=query, timeout=LONG_SILENCE)
        return download(self._transport, call)

    def export_to(
        self, local: Union[str, PathLike[str]], *, history: bool = False, root: bool = True
    ) -> None:
        """Writes it to a file of this computer, which has its name only once it is whole."""
        save(self.export(history=history, root=root), local)

    def attempt(self, *, reseed: bool = False, keep: bool = False) -> Attempt:
        """A branch to work on in a `with` block: what it did counts if the block ends well.

        The machine as it was is then removed, unless `keep` says otherwise or it ran something
        meanwhile.
        """
        return Attempt(self, reseed, keep)

    def _branch(self, body: object) -> List[Machine]:
        call = post(self._path("/branch"), body)
        made = (self._transport.ask(call, types.Branches)).machines
        return [Machine(self._transport, info.name, info) for info in made]

    # its life

    def update(
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
        """Changes what is given; `tags` replaces all, `expires_at=None` takes an expiry away.

        `network` counts from the next wake on. `retention=None` goes back to the service's rule.
        """
        body = update_body(tags, limits, durability, checkpoints, network, expires_at, retention)
        return self._change(Call("PATCH", self._path(), body=body, repeatable=True))

    def swap(self) -> types.Machine:
        """Moves it out of memory. The next instruction brings it back."""
        return self._change(post(self._path("/swap"), repeatable=True))

    def wake(self) -> types.Machine:
        """Brings it into memory."""
        return self._change(post(self._path("/wake"), repeatable=True))

    def remove(self) -> None:
        """Removes it and all it had."""
        self._transport.json(Call("DELETE", self._path()))

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.remove()

    def _change(self, call: Call) -> types.Machine:
        return self._remember(self._transport.ask(call, types.Machine))

    def _remember(self, info: types.Machine) -> types.Machine:
        self.info = info
        return info

    def _path(self, rest: str = "") -> str:
        return at(self.name, rest)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Past:
    """A machine's state after an instruction, to look at."""

    def __init__(self, transport: Transport, machine: str, seq: int) -> None:
        self._transport = transport
        self._machine = machine
        self.seq = seq

    def variables(self) -> List[types.Var]:
        """Variables as they were."""
        return (self._transport.ask(get(self._path("/vars")), types.VarList)).vars

    def files(self, path: str) -> List[types.FileView]:
        """A directory as it was."""
        asked = get(self._path("/files"), path=path)
        return (self._transport.ask(asked, types.FileViews)).files

    def read(self, path: str) -> bytes:
        """A file as it was."""
        asked = get(self._path("/file"), path=path)
        return b"".join([piece for piece in resumed(self._transport, asked, 0, None)])

    def _path(self, rest: str) -> str:
        return at(self._machine, f"/at/{self.seq}{rest}")


class Attempt:
    """A branch that takes its parent's name at the end of a block, or goes if the block fails."""

    def __init__(self, machine: Machine, reseed: bool, keep: bool) -> None:
        self._machine = machine
        self._reseed = reseed
        self._keep = keep
        self._discarded = False
        self.former: Optional[Machine] = None
        """The machine as it was before, under the branch's name, if it was kept."""

    def discard(self) -> None:
        """The block ends well, and yet the branch goes."""
        self._discarded = True

    @property
    def branch(self) -> Machine:
        return self._branch

    def run(self, code: str, **options: Any) -> Result:
        """As `run` of a machine, on the branch; an error of the code is raised."""
        return (self._branch.run(code, **options)).check()

    def __enter__(self) -> Attempt:
        self._branch = self._machine.branch(reseed=self._reseed)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if error is not None or self._discarded:
            self._branch.remove()
        else:
            promoted = self._branch._promote(self._machine, not self._keep)
            if not promoted.removed:
                former = promoted.former
                self.former = Machine(self._machine._transport, former.name, former)
