"""What the service says, as the OpenAPI document of the service describes it.

Written by `python3 sdk/generate`; change the document instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Literal, Optional

from ._json import Model, each, time

Address = str

Change = Literal["added", "removed", "changed", "unknown"]

Durability = Literal["memory", "local"]

EventKind = Literal["machine.created", "machine.updated", "machine.removed", "machine.woken", "machine.swapped", "machine.pinned", "machine.fell_back", "machine.rolled_back", "instruction.queued", "instruction.started", "instruction.finished", "checkpoint.made", "file.put", "file.removed", "template.built", "template.removed", "service.started", "events.missed"]

FileChange = Literal["watching", "created", "changed", "written", "removed", "overflowed", "unwatched", "swapped", "gone"]

FileKind = Literal["file", "directory", "symlink", "other"]

Name = str

Network = Literal["none", "open"]

State = Literal["ready", "running", "swapped"]

Status = Literal["queued", "running", "done", "interrupted", "cancelled", "lost"]

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class Accepted(Model):
    instruction_seq: int
    interrupted: bool
    """Whether something was interrupted for it."""
    machine: Name

    @classmethod
    def from_json(cls, data: Any) -> Accepted:
        return cls(
            instruction_seq=data["instruction_seq"],
            interrupted=data["interrupted"],
            machine=data["machine"],
        )


@dataclass(frozen=True)
class Adopted(Model):
    """What was taken over, or why nothing was."""
    conflicts: List[Conflict]
    """What both sides changed since they parted. Without `force` nothing was taken because of
    it.
    """
    failed: Dict[str, str]
    """What could not be carried, and why."""
    files: List[str]
    variables: List[str]
    seq: Optional[int] = None
    """The instruction of the log that stands for it; absent when nothing was taken."""

    @classmethod
    def from_json(cls, data: Any) -> Adopted:
        return cls(
            conflicts=each(Conflict.from_json, data["conflicts"]),
            failed=dict(data["failed"]),
            files=list(data["files"]),
            variables=list(data["variables"]),
            seq=data.get("seq"),
        )


@dataclass(frozen=True)
class Ancestor(Model):
    """Where a line came through."""
    machine: Name
    removed: Optional[bool] = None
    """Whether the machine is gone."""
    seq: Optional[int] = None
    """The checkpoint that the branch started from; absent if nothing had run."""

    @classmethod
    def from_json(cls, data: Any) -> Ancestor:
        return cls(
            machine=data["machine"],
            removed=data.get("removed"),
            seq=data.get("seq"),
        )


@dataclass(frozen=True)
class Artifact(Model):
    """Something too large for a result, kept as long as its machine."""
    id: str
    """Names its contents; read it at `/v1/machine/{name}/artifact/{id}`."""
    kind: str
    """Its MIME type."""
    name: str
    """Of what: `output` (both streams as they came), `value`, or `display`."""
    size: int
    """In bytes."""
    cut: Optional[bool] = None
    """Whether it was cut all the same, at the largest size that is kept."""

    @classmethod
    def from_json(cls, data: Any) -> Artifact:
        return cls(
            id=data["id"],
            kind=data["kind"],
            name=data["name"],
            size=data["size"],
            cut=data.get("cut"),
        )


@dataclass(frozen=True)
class ArtifactList(Model):
    artifacts: List[Kept]

    @classmethod
    def from_json(cls, data: Any) -> ArtifactList:
        return cls(
            artifacts=each(Kept.from_json, data["artifacts"]),
        )


@dataclass(frozen=True)
class BranchEnd(Model):
    """How one branch's own part ended."""
    index: int
    """Which branch, in the order they were asked for."""
    machine: Name
    error: Optional[ErrorBody] = None
    """Why it could not run."""
    instruction: Optional[Instruction] = None
    output: List[Chunk] = field(default_factory=list)
    """Lines of output."""

    @classmethod
    def from_json(cls, data: Any) -> BranchEnd:
        return cls(
            index=data["index"],
            machine=data["machine"],
            error=None if data.get("error") is None else ErrorBody.from_json(data.get("error")),
            instruction=None if data.get("instruction") is None else Instruction.from_json(data.get("instruction")),
            output=each(Chunk.from_json, (data.get("output") or [])),
        )


@dataclass(frozen=True)
class BranchLine(Model):
    """A line of a branch call's stream."""
    machines: List[Machine] = field(default_factory=list)
    type: Optional[str] = None
    error: Optional[ErrorBody] = None
    """Why it could not run."""
    index: Optional[int] = None
    """Which branch, in the order they were asked for."""
    instruction: Optional[Instruction] = None
    machine: Optional[Name] = None
    output: List[Chunk] = field(default_factory=list)
    """Lines of output."""

    @classmethod
    def from_json(cls, data: Any) -> BranchLine:
        return cls(
            machines=each(Machine.from_json, (data.get("machines") or [])),
            type=data.get("type"),
            error=None if data.get("error") is None else ErrorBody.from_json(data.get("error")),
            index=data.get("index"),
            instruction=None if data.get("instruction") is None else Instruction.from_json(data.get("instruction")),
            machine=data.get("machine"),
            output=each(Chunk.from_json, (data.get("output") or [])),
        )


@dataclass(frozen=True)
class Branches(Model):
    machines: List[Machine]
    ends: List[BranchEnd] = field(default_factory=list)
    """How the parts of `vary` ended."""

    @classmethod
    def from_json(cls, data: Any) -> Branches:
        return cls(
            machines=each(Machine.from_json, data["machines"]),
            ends=each(BranchEnd.from_json, (data.get("ends") or [])),
        )


@dataclass(frozen=True)
class BuildLine(Model):
    """A line of what a build says."""
    done: Optional[int] = None
    step: Optional[str] = None
    total: Optional[int] = None
    say: Optional[str] = None
    template: Optional[Template] = None
    error: Optional[ErrorBody] = None

    @classmethod
    def from_json(cls, data: Any) -> BuildLine:
        return cls(
            done=data.get("done"),
            step=data.get("step"),
            total=data.get("total"),
            say=data.get("say"),
            template=None if data.get("template") is None else Template.from_json(data.get("template")),
            error=None if data.get("error") is None else ErrorBody.from_json(data.get("error")),
        )


@dataclass(frozen=True)
class Cancelled(Model):
    cancelled: bool
    """Whether it still waited."""

    @classmethod
    def from_json(cls, data: Any) -> Cancelled:
        return cls(
            cancelled=data["cancelled"],
        )


@dataclass(frozen=True)
class Candidate(Model):
    index: int
    """In the order they were given."""
    machine: Name
    """Its branch, which is gone unless it won or was to be kept."""
    error: Optional[str] = None
    """Why it has no score."""
    score: Optional[float] = None

    @classmethod
    def from_json(cls, data: Any) -> Candidate:
        return cls(
            index=data["index"],
            machine=data["machine"],
            error=data.get("error"),
            score=data.get("score"),
        )


@dataclass(frozen=True)
class Chunk(Model):
    """One line of output, without its newline."""
    data: str
    seq: int
    """From 0 for each instruction, over both streams."""
    stream: Stream

    @classmethod
    def from_json(cls, data: Any) -> Chunk:
        return cls(
            data=data["data"],
            seq=data["seq"],
            stream=data["stream"],
        )


@dataclass(frozen=True)
class Comparison(Model):
    """What differs between two states."""
    files: List[FileDifference]
    left: str
    outputs: List[OutputDifference]
    right: str
    variables: List[VariableDifference]
    base: Optional[str] = None
    """The state both came from, if there is one."""
    cut: List[str] = field(default_factory=list)
    """What was left out because there is too much of it, in words."""

    @classmethod
    def from_json(cls, data: Any) -> Comparison:
        return cls(
            files=each(FileDifference.from_json, data["files"]),
            left=data["left"],
            outputs=each(OutputDifference.from_json, data["outputs"]),
            right=data["right"],
            variables=each(VariableDifference.from_json, data["variables"]),
            base=data.get("base"),
            cut=list((data.get("cut") or [])),
        )


@dataclass(frozen=True)
class Completions(Model):
    names: List[str]
    start: int
    """Where the names begin, counted in characters."""

    @classmethod
    def from_json(cls, data: Any) -> Completions:
        return cls(
            names=list(data["names"]),
            start=data["start"],
        )


@dataclass(frozen=True)
class Conflict(Model):
    kind: str
    """`variable` or `file`."""
    name: str
    why: str

    @classmethod
    def from_json(cls, data: Any) -> Conflict:
        return cls(
            kind=data["kind"],
            name=data["name"],
            why=data["why"],
        )


@dataclass(frozen=True)
class DiskUse(Model):
    """What a machine and its checkpoints take on the disk."""
    checkpoints: int
    own_bytes: int
    """What would be freed if this machine went."""
    shared_bytes: int
    """What others need, too."""

    @classmethod
    def from_json(cls, data: Any) -> DiskUse:
        return cls(
            checkpoints=data["checkpoints"],
            own_bytes=data["own_bytes"],
            shared_bytes=data["shared_bytes"],
        )


@dataclass(frozen=True)
class ErrorBody(Model):
    """The body of every error."""
    code: str
    """Stable, for programs: `machine.not_found`."""
    message: str
    """What happened, on what."""
    hint: Optional[str] = None
    """What to do next."""
    id: Optional[str] = None
    """The request this is about, as logs know it."""

    @classmethod
    def from_json(cls, data: Any) -> ErrorBody:
        return cls(
            code=data["code"],
            message=data["message"],
            hint=data.get("hint"),
            id=data.get("id"),
        )


@dataclass(frozen=True)
class Event(Model):
    """Something that changed."""
    at: datetime
    id: int
    """Later ones are higher; numbers may be left out."""
    kind: EventKind
    about: Optional[str] = None
    """What else it is about: a path, a template, a parent, a reason."""
    machine: Optional[Name] = None
    seq: Optional[int] = None
    """An instruction's number."""
    status: Optional[Status] = None
    """How an instruction ended."""

    @classmethod
    def from_json(cls, data: Any) -> Event:
        return cls(
            at=time(data["at"]),
            id=data["id"],
            kind=data["kind"],
            about=data.get("about"),
            machine=data.get("machine"),
            seq=data.get("seq"),
            status=data.get("status"),
        )


@dataclass(frozen=True)
class ExecResult(Model):
    runtime_ms: int
    artifacts: List[Artifact] = field(default_factory=list)
    """What was too large for the result, kept whole; absent if nothing was."""
    data: Optional[Picture] = None
    error: Optional[str] = None
    """The traceback; absent after success."""
    value: Optional[str] = None
    """repr of the last expression, null if there is none; absent after a failure."""

    @classmethod
    def from_json(cls, data: Any) -> ExecResult:
        return cls(
            runtime_ms=data["runtime_ms"],
            artifacts=each(Artifact.from_json, (data.get("artifacts") or [])),
            data=None if data.get("data") is None else Picture.from_json(data.get("data")),
            error=data.get("error"),
            value=data.get("value"),
        )


@dataclass(frozen=True)
class Explored(Model):
    candidates: List[Candidate]
    best: Optional[Machine] = None
    """The winner, under the machine's name; absent when no candidate could be scored."""
    former: Optional[Machine] = None
    """The machine as it was, under the winner's old name."""

    @classmethod
    def from_json(cls, data: Any) -> Explored:
        return cls(
            candidates=each(Candidate.from_json, data["candidates"]),
            best=None if data.get("best") is None else Machine.from_json(data.get("best")),
            former=None if data.get("former") is None else Machine.from_json(data.get("former")),
        )


@dataclass(frozen=True)
class Failure(Model):
    message: str
    name: str
    """The exception's class, or a code of ours such as `machine.out_of_memory`."""
    traceback: str

    @classmethod
    def from_json(cls, data: Any) -> Failure:
        return cls(
            message=data["message"],
            name=data["name"],
            traceback=data["traceback"],
        )


@dataclass(frozen=True)
class Families(Model):
    """All families."""
    families: List[Relative]

    @classmethod
    def from_json(cls, data: Any) -> Families:
        return cls(
            families=each(Relative.from_json, data["families"]),
        )


@dataclass(frozen=True)
class FileChanges(Model):
    """Which files differ, by number and by name."""
    added: int
    changed: int
    names: List[str]
    """The first of them."""
    removed: int

    @classmethod
    def from_json(cls, data: Any) -> FileChanges:
        return cls(
            added=data["added"],
            changed=data["changed"],
            names=list(data["names"]),
            removed=data["removed"],
        )


@dataclass(frozen=True)
class FileDifference(Model):
    change: Change
    path: str
    diff: Optional[str] = None
    """As `diff -u` writes it, for text that is not too long."""
    left_size: Optional[int] = None
    right_size: Optional[int] = None

    @classmethod
    def from_json(cls, data: Any) -> FileDifference:
        return cls(
            change=data["change"],
            path=data["path"],
            diff=data.get("diff"),
            left_size=data.get("left_size"),
            right_size=data.get("right_size"),
        )


@dataclass(frozen=True)
class FileEvent(Model):
    """Something that happened to a file that is watched."""
    kind: FileChange
    name: Optional[str] = None
    """The name in the watched directory, or the path below it; of the watched thing itself, if
    absent.
    """

    @classmethod
    def from_json(cls, data: Any) -> FileEvent:
        return cls(
            kind=data["kind"],
            name=data.get("name"),
        )


@dataclass(frozen=True)
class FileInfo(Model):
    """What is known of a file without reading it."""
    kind: FileKind
    mode: str
    """Its permissions, in octal."""
    modified_at: datetime
    path: str
    size: int
    """In bytes."""
    target: Optional[str] = None
    """Where a symbolic link points."""

    @classmethod
    def from_json(cls, data: Any) -> FileInfo:
        return cls(
            kind=data["kind"],
            mode=data["mode"],
            modified_at=time(data["modified_at"]),
            path=data["path"],
            size=data["size"],
            target=data.get("target"),
        )


@dataclass(frozen=True)
class FileList(Model):
    """A page of a directory, by name."""
    files: List[FileInfo]
    path: str
    next: Optional[str] = None
    """What to give as `cursor` for the next page; null at the end."""

    @classmethod
    def from_json(cls, data: Any) -> FileList:
        return cls(
            files=each(FileInfo.from_json, data["files"]),
            path=data["path"],
            next=data.get("next"),
        )


@dataclass(frozen=True)
class FileView(Model):
    """A file in a machine or a checkpoint."""
    kind: FileKind
    mode: int
    modified_at: datetime
    path: str
    """Below the root, without a leading slash."""
    size: int

    @classmethod
    def from_json(cls, data: Any) -> FileView:
        return cls(
            kind=data["kind"],
            mode=data["mode"],
            modified_at=time(data["modified_at"]),
            path=data["path"],
            size=data["size"],
        )


@dataclass(frozen=True)
class FileViews(Model):
    files: List[FileView]

    @classmethod
    def from_json(cls, data: Any) -> FileViews:
        return cls(
            files=each(FileView.from_json, data["files"]),
        )


@dataclass(frozen=True)
class Health(Model):
    status: str
    templates_ready: bool
    """Whether machines can be made."""
    version: str

    @classmethod
    def from_json(cls, data: Any) -> Health:
        return cls(
            status=data["status"],
            templates_ready=data["templates_ready"],
            version=data["version"],
        )


@dataclass(frozen=True)
class History(Model):
    checkpoints: List[Point]

    @classmethod
    def from_json(cls, data: Any) -> History:
        return cls(
            checkpoints=each(Point.from_json, data["checkpoints"]),
        )


@dataclass(frozen=True)
class Instruction(Model):
    code: str
    outputs: int
    """How many lines of output it has."""
    queued_at: datetime
    seq: int
    status: Status
    finished_at: Optional[datetime] = None
    outcome: Optional[Outcome] = None
    receipt: Optional[Receipt] = None
    rolled_back: Optional[bool] = None
    """Whether it was undone by a later rollback."""
    started_at: Optional[datetime] = None

    @classmethod
    def from_json(cls, data: Any) -> Instruction:
        return cls(
            code=data["code"],
            outputs=data["outputs"],
            queued_at=time(data["queued_at"]),
            seq=data["seq"],
            status=data["status"],
            finished_at=None if data.get("finished_at") is None else time(data.get("finished_at")),
            outcome=None if data.get("outcome") is None else Outcome.from_json(data.get("outcome")),
            receipt=None if data.get("receipt") is None else Receipt.from_json(data.get("receipt")),
            rolled_back=data.get("rolled_back"),
            started_at=None if data.get("started_at") is None else time(data.get("started_at")),
        )


@dataclass(frozen=True)
class InstructionList(Model):
    instructions: List[Instruction]

    @classmethod
    def from_json(cls, data: Any) -> InstructionList:
        return cls(
            instructions=each(Instruction.from_json, data["instructions"]),
        )


@dataclass(frozen=True)
class Interrupted(Model):
    interrupted: bool
    """Whether something ran."""

    @classmethod
    def from_json(cls, data: Any) -> Interrupted:
        return cls(
            interrupted=data["interrupted"],
        )


@dataclass(frozen=True)
class Kept(Model):
    """An artifact and the instruction it is of."""
    id: str
    """Names its contents; read it at `/v1/machine/{name}/artifact/{id}`."""
    kind: str
    """Its MIME type."""
    name: str
    """Of what: `output` (both streams as they came), `value`, or `display`."""
    size: int
    """In bytes."""
    seq: int
    cut: Optional[bool] = None
    """Whether it was cut all the same, at the largest size that is kept."""

    @classmethod
    def from_json(cls, data: Any) -> Kept:
        return cls(
            id=data["id"],
            kind=data["kind"],
            name=data["name"],
            size=data["size"],
            seq=data["seq"],
            cut=data.get("cut"),
        )


@dataclass(frozen=True)
class Limits(Model):
    """What a machine may use; absent means the template's or the service's default."""
    cpus: Optional[float] = None
    disk_mb: Optional[int] = None
    memory_mb: Optional[int] = None
    pids: Optional[int] = None

    @classmethod
    def from_json(cls, data: Any) -> Limits:
        return cls(
            cpus=data.get("cpus"),
            disk_mb=data.get("disk_mb"),
            memory_mb=data.get("memory_mb"),
            pids=data.get("pids"),
        )


@dataclass(frozen=True)
class Lineage(Model):
    """A machine among its relatives."""
    ancestors: List[Ancestor]
    """From the machine's parent to the first of the line."""
    children: List[Relative]
    tree: Relative
    """The whole family, from its first member that is still there."""

    @classmethod
    def from_json(cls, data: Any) -> Lineage:
        return cls(
            ancestors=each(Ancestor.from_json, data["ancestors"]),
            children=each(Relative.from_json, data["children"]),
            tree=Relative.from_json(data["tree"]),
        )


@dataclass(frozen=True)
class Machine(Model):
    created_at: datetime
    durability: Durability
    has_pending_instruction: bool
    """Whether instructions run or wait."""
    has_pending_instructions: bool
    instructions: int
    """How many instructions it was given."""
    limits: Limits
    name: Name
    network: Network
    running: bool
    """Whether it is in memory."""
    state: State
    tags: Dict[str, str]
    template: str
    checkpoint: Optional[Address] = None
    """The last checkpoint on disk; absent before the first instruction."""
    expires_at: Optional[datetime] = None
    parent: Optional[Parent] = None
    pinned: Optional[str] = None
    """Why it cannot leave memory, if so."""
    retention: Optional[Retention] = None
    """Which checkpoints are kept, if not those of the service's rule."""

    @classmethod
    def from_json(cls, data: Any) -> Machine:
        return cls(
            created_at=time(data["created_at"]),
            durability=data["durability"],
            has_pending_instruction=data["has_pending_instruction"],
            has_pending_instructions=data["has_pending_instructions"],
            instructions=data["instructions"],
            limits=Limits.from_json(data["limits"]),
            name=data["name"],
            network=data["network"],
            running=data["running"],
            state=data["state"],
            tags=dict(data["tags"]),
            template=data["template"],
            checkpoint=data.get("checkpoint"),
            expires_at=None if data.get("expires_at") is None else time(data.get("expires_at")),
            parent=None if data.get("parent") is None else Parent.from_json(data.get("parent")),
            pinned=data.get("pinned"),
            retention=None if data.get("retention") is None else Retention.from_json(data.get("retention")),
        )


@dataclass(frozen=True)
class MachineList(Model):
    """A page of machines, newest first."""
    machines: List[Machine]
    next: Optional[str] = None
    """What to give as `cursor` for the next page; null at the end."""

    @classmethod
    def from_json(cls, data: Any) -> MachineList:
        return cls(
            machines=each(Machine.from_json, data["machines"]),
            next=data.get("next"),
        )


@dataclass(frozen=True)
class Made(Model):
    """A machine that was made."""
    machine: Machine
    machine_name: Name

    @classmethod
    def from_json(cls, data: Any) -> Made:
        return cls(
            machine=Machine.from_json(data["machine"]),
            machine_name=data["machine_name"],
        )


@dataclass(frozen=True)
class MadeToken(Model):
    account: str
    created_at: datetime
    id: str
    scopes: List[str]
    token: str
    """`id.secret`: shown this once."""
    name: Optional[str] = None

    @classmethod
    def from_json(cls, data: Any) -> MadeToken:
        return cls(
            account=data["account"],
            created_at=time(data["created_at"]),
            id=data["id"],
            scopes=list(data["scopes"]),
            token=data["token"],
            name=data.get("name"),
        )


@dataclass(frozen=True)
class Outcome(Model):
    """How an instruction ended."""
    runtime_ms: float
    artifacts: List[Artifact] = field(default_factory=list)
    """What was left out, kept whole beside the result."""
    cut: Optional[str] = None
    """What was left out because it was too large, in words."""
    data: Optional[Dict[str, Any]] = None
    """The last expression's value in every form it offers."""
    error: Optional[Failure] = None
    shown: List[Shown] = field(default_factory=list)
    """What was shown on the way: figures, `display(...)`."""
    touched: List[str] = field(default_factory=list)
    """Variables that were bound, unbound or changed in place, as far as was seen."""
    value: Optional[str] = None
    """repr of the last expression."""

    @classmethod
    def from_json(cls, data: Any) -> Outcome:
        return cls(
            runtime_ms=data["runtime_ms"],
            artifacts=each(Artifact.from_json, (data.get("artifacts") or [])),
            cut=data.get("cut"),
            data=None if data.get("data") is None else dict(data.get("data")),
            error=None if data.get("error") is None else Failure.from_json(data.get("error")),
            shown=each(Shown.from_json, (data.get("shown") or [])),
            touched=list((data.get("touched") or [])),
            value=data.get("value"),
        )


@dataclass(frozen=True)
class Output(Model):
    code: str
    output: str
    """Lines of both streams, perhaps cut."""
    seq: int
    result: Optional[str] = None
    """The value, or the error's last line."""

    @classmethod
    def from_json(cls, data: Any) -> Output:
        return cls(
            code=data["code"],
            output=data["output"],
            seq=data["seq"],
            result=data.get("result"),
        )


@dataclass(frozen=True)
class OutputDifference(Model):
    """Instructions of both sides since they parted, side by side, where what they gave
    differs.
    """
    left: Optional[Output] = None
    right: Optional[Output] = None

    @classmethod
    def from_json(cls, data: Any) -> OutputDifference:
        return cls(
            left=None if data.get("left") is None else Output.from_json(data.get("left")),
            right=None if data.get("right") is None else Output.from_json(data.get("right")),
        )


@dataclass(frozen=True)
class Outputs(Model):
    chunks: List[Chunk]
    over: bool
    """Whether no more will come after these."""

    @classmethod
    def from_json(cls, data: Any) -> Outputs:
        return cls(
            chunks=each(Chunk.from_json, data["chunks"]),
            over=data["over"],
        )


@dataclass(frozen=True)
class Parent(Model):
    """Where a branch came from."""
    machine: Name
    seq: Optional[int] = None
    """The checkpoint it started from; absent for a machine that had run nothing."""

    @classmethod
    def from_json(cls, data: Any) -> Parent:
        return cls(
            machine=data["machine"],
            seq=data.get("seq"),
        )


@dataclass(frozen=True)
class Picture(Model):
    png: str
    """Base64."""

    @classmethod
    def from_json(cls, data: Any) -> Picture:
        return cls(
            png=data["png"],
        )


@dataclass(frozen=True)
class Point(Model):
    """A state that can be gone back to."""
    at: datetime
    bytes: int
    """What it added to the store."""
    code: str
    """The code of that instruction."""
    seq: int
    """The instruction it is the state after."""
    files: Optional[FileChanges] = None
    """Files that differ from the checkpoint before; absent when that was not asked for."""
    label: Optional[str] = None
    variables: List[str] = field(default_factory=list)
    """Variables that the instructions since the checkpoint before touched."""

    @classmethod
    def from_json(cls, data: Any) -> Point:
        return cls(
            at=time(data["at"]),
            bytes=data["bytes"],
            code=data["code"],
            seq=data["seq"],
            files=None if data.get("files") is None else FileChanges.from_json(data.get("files")),
            label=data.get("label"),
            variables=list((data.get("variables") or [])),
        )


@dataclass(frozen=True)
class Promoted(Model):
    """What exchanged names."""
    former: Machine
    """What had the name before, under the branch's old one."""
    machine: Machine
    """The branch, under its new name."""

    @classmethod
    def from_json(cls, data: Any) -> Promoted:
        return cls(
            former=Machine.from_json(data["former"]),
            machine=Machine.from_json(data["machine"]),
        )


@dataclass(frozen=True)
class Receipt(Model):
    """What holds of the machine's state after an instruction."""
    address: Address
    """The instruction's address."""
    intact: bool
    """Whether the state is that after this instruction and all before it."""
    durable: Optional[Address] = None
    """The newest checkpoint on disk when this was written."""
    lost: Optional[str] = None
    """What was lost, and why."""
    notes: List[str] = field(default_factory=list)
    """What else a program should know: it was woken, reseeded, its sockets were reset."""

    @classmethod
    def from_json(cls, data: Any) -> Receipt:
        return cls(
            address=data["address"],
            intact=data["intact"],
            durable=data.get("durable"),
            lost=data.get("lost"),
            notes=list((data.get("notes") or [])),
        )


@dataclass(frozen=True)
class Relative(Model):
    """A machine with its branches."""
    children: List[Relative]
    machine: Name
    from_: Optional[int] = None
    """The checkpoint of its parent that it started from."""
    seq: Optional[int] = None
    """Its own last checkpoint."""

    @classmethod
    def from_json(cls, data: Any) -> Relative:
        return cls(
            children=each(Relative.from_json, data["children"]),
            machine=data["machine"],
            from_=data.get("from"),
            seq=data.get("seq"),
        )


@dataclass(frozen=True)
class Removed(Model):
    removed: str

    @classmethod
    def from_json(cls, data: Any) -> Removed:
        return cls(
            removed=data["removed"],
        )


@dataclass(frozen=True)
class ResultBody(Model):
    instruction_id: int
    instruction_seq: int
    result: ExecResult

    @classmethod
    def from_json(cls, data: Any) -> ResultBody:
        return cls(
            instruction_id=data["instruction_id"],
            instruction_seq=data["instruction_seq"],
            result=ExecResult.from_json(data["result"]),
        )


@dataclass(frozen=True)
class Retention(Model):
    """Which checkpoints are kept. The newest always is; of the others, one that any rule asks
    for. Without `last` and `seconds` all are kept.
    """
    labelled: Optional[bool] = None
    """Those with a label."""
    last: Optional[int] = None
    """This many of the newest."""
    seconds: Optional[int] = None
    """Those younger than this."""

    @classmethod
    def from_json(cls, data: Any) -> Retention:
        return cls(
            labelled=data.get("labelled"),
            last=data.get("last"),
            seconds=data.get("seconds"),
        )


@dataclass(frozen=True)
class Shown(Model):
    """Something shown while an instruction ran."""
    after: int
    """How many lines of output came before it."""
    data: Dict[str, Any]

    @classmethod
    def from_json(cls, data: Any) -> Shown:
        return cls(
            after=data["after"],
            data=dict(data["data"]),
        )


@dataclass(frozen=True)
class StoreChecked(Model):
    """What a check found."""
    complete: bool
    """Whether all was looked at."""
    findings: List[StoreFinding]

    @classmethod
    def from_json(cls, data: Any) -> StoreChecked:
        return cls(
            complete=data["complete"],
            findings=each(StoreFinding.from_json, data["findings"]),
        )


@dataclass(frozen=True)
class StoreFinding(Model):
    affects: List[str]
    """Machines and templates that need what is damaged."""
    code: str
    mended: bool
    what: str

    @classmethod
    def from_json(cls, data: Any) -> StoreFinding:
        return cls(
            affects=list(data["affects"]),
            code=data["code"],
            mended=data["mended"],
            what=data["what"],
        )


@dataclass(frozen=True)
class StoreFreed(Model):
    """What a collection freed."""
    bytes: int
    images: int
    layers: int
    packs: int

    @classmethod
    def from_json(cls, data: Any) -> StoreFreed:
        return cls(
            bytes=data["bytes"],
            images=data["images"],
            layers=data["layers"],
            packs=data["packs"],
        )


@dataclass(frozen=True)
class StoreStats(Model):
    """What the store takes."""
    bytes: int
    """Space on the disk: all of it, and what laid out files take of it."""
    cold_packs: int
    compressed_bytes: int
    """What compression saves, and what images save by sharing pages."""
    dead_pages: int
    dropped_pages: int
    images: int
    layer_bytes: int
    layers: int
    live_pages: int
    packs: int
    shared_bytes: int
    unreadable_packs: int

    @classmethod
    def from_json(cls, data: Any) -> StoreStats:
        return cls(
            bytes=data["bytes"],
            cold_packs=data["cold_packs"],
            compressed_bytes=data["compressed_bytes"],
            dead_pages=data["dead_pages"],
            dropped_pages=data["dropped_pages"],
            images=data["images"],
            layer_bytes=data["layer_bytes"],
            layers=data["layers"],
            live_pages=data["live_pages"],
            packs=data["packs"],
            shared_bytes=data["shared_bytes"],
            unreadable_packs=data["unreadable_packs"],
        )


@dataclass(frozen=True)
class Template(Model):
    created_at: datetime
    digest: str
    """Hash of everything it was made from."""
    image: str
    """The image machines start from."""
    language: str
    """`python`, later also others."""
    name: str
    recipe: str
    """The recipe it was built from, as TOML."""
    root: str
    """Its root file system."""
    version: str
    """The language's version."""

    @classmethod
    def from_json(cls, data: Any) -> Template:
        return cls(
            created_at=time(data["created_at"]),
            digest=data["digest"],
            image=data["image"],
            language=data["language"],
            name=data["name"],
            recipe=data["recipe"],
            root=data["root"],
            version=data["version"],
        )


@dataclass(frozen=True)
class TemplateList(Model):
    templates: List[Template]

    @classmethod
    def from_json(cls, data: Any) -> TemplateList:
        return cls(
            templates=each(Template.from_json, data["templates"]),
        )


@dataclass(frozen=True)
class Token(Model):
    """A token as lists show it: never its secret."""
    account: str
    created_at: datetime
    id: str
    scopes: List[str]
    name: Optional[str] = None

    @classmethod
    def from_json(cls, data: Any) -> Token:
        return cls(
            account=data["account"],
            created_at=time(data["created_at"]),
            id=data["id"],
            scopes=list(data["scopes"]),
            name=data.get("name"),
        )


@dataclass(frozen=True)
class TokenList(Model):
    tokens: List[Token]

    @classmethod
    def from_json(cls, data: Any) -> TokenList:
        return cls(
            tokens=each(Token.from_json, data["tokens"]),
        )


@dataclass(frozen=True)
class Var(Model):
    """A variable of a session."""
    kind: str
    name: str
    repr: str
    bytes: Optional[int] = None
    shape: Optional[str] = None
    """Shape or length, where there is one."""

    @classmethod
    def from_json(cls, data: Any) -> Var:
        return cls(
            kind=data["kind"],
            name=data["name"],
            repr=data["repr"],
            bytes=data.get("bytes"),
            shape=data.get("shape"),
        )


@dataclass(frozen=True)
class VarList(Model):
    vars: List[Var]

    @classmethod
    def from_json(cls, data: Any) -> VarList:
        return cls(
            vars=each(Var.from_json, data["vars"]),
        )


@dataclass(frozen=True)
class VariableDifference(Model):
    change: Change
    name: str
    left: Optional[Var] = None
    right: Optional[Var] = None

    @classmethod
    def from_json(cls, data: Any) -> VariableDifference:
        return cls(
            change=data["change"],
            name=data["name"],
            left=None if data.get("left") is None else Var.from_json(data.get("left")),
            right=None if data.get("right") is None else Var.from_json(data.get("right")),
        )


@dataclass(frozen=True)
class Whoami(Model):
    account: str
    scopes: List[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Any) -> Whoami:
        return cls(
            account=data["account"],
            scopes=list((data.get("scopes") or [])),
        )
