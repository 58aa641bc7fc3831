"""Types of the service, from its OpenAPI document.

Written by `python3 sdk/generate`; change the document instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Literal, Optional

from ._json import Model, each, time

Address = str

Change = Literal["added", "removed", "changed", "unknown"]

Checkpoints = Literal["exact", "grouped"]

Durability = Literal["memory", "local"]

EventKind = Literal["machine.created", "machine.updated", "machine.removed", "machine.woken", "machine.swapped", "machine.pinned", "machine.fell_back", "machine.rolled_back", "machine.redone", "instruction.queued", "instruction.started", "instruction.finished", "checkpoint.made", "file.put", "file.removed", "template.built", "template.removed", "network.refused", "approval.requested", "approval.answered", "policy.changed", "policy.removed", "service.started", "events.missed"]

FileChange = Literal["watching", "created", "changed", "written", "removed", "overflowed", "unwatched", "swapped", "gone"]

FileKind = Literal["file", "directory", "symlink", "other"]

Name = str

Network = str

OlderCheckpoints = Literal["removed", "thinned", "all"]

PolicyVerdict = Literal["allow", "ask", "deny"]

SecretKind = Literal["value", "oauth"]

State = Literal["ready", "running", "swapped"]

Status = Literal["queued", "running", "done", "failed", "interrupted", "cancelled", "lost"]

Stream = Literal["stdout", "stderr"]

ToolCallState = Literal["waiting", "approved", "running", "completed", "failed", "denied", "expired", "cancelled", "unknown"]


@dataclass(frozen=True)
class Accepted(Model):
    instruction_seq: int
    interrupted: bool
    """Whether another instruction was interrupted for it."""
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
    """The result of an adoption."""
    conflicts: List[Conflict]
    """Variables and files that both sides changed. Without `force`, a conflict prevents the
    adoption.
    """
    failed: Dict[str, str]
    """Variables and files that could not be copied, and why."""
    files: List[str]
    variables: List[str]
    seq: Optional[int] = None
    """The log entry of the adoption; absent if nothing was copied."""

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
    """An ancestor."""
    machine: Name
    removed: Optional[bool] = None
    """Whether the machine was deleted."""
    seq: Optional[int] = None
    """The checkpoint that the branch started from; absent if nothing had run before it."""

    @classmethod
    def from_json(cls, data: Any) -> Ancestor:
        return cls(
            machine=data["machine"],
            removed=data.get("removed"),
            seq=data.get("seq"),
        )


@dataclass(frozen=True)
class ApprovalList(Model):
    approvals: List[ToolCall]
    """Calls that a person was asked about, the newest first."""

    @classmethod
    def from_json(cls, data: Any) -> ApprovalList:
        return cls(
            approvals=each(ToolCall.from_json, data["approvals"]),
        )


@dataclass(frozen=True)
class Artifact(Model):
    """A value too large for a result. It is kept as long as its machine."""
    id: str
    """Identifies the contents; read them at `/v1/machine/{name}/artifact/{id}`."""
    kind: str
    """MIME type."""
    name: str
    """The source: `output` (both streams, in order), `value`, or `display`."""
    size: int
    """Size in bytes."""
    cut: Optional[bool] = None
    """Whether it was truncated at the largest size that is kept."""

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
    """The result of one branch."""
    index: int
    """The branch's position in the request."""
    machine: Name
    error: Optional[ErrorBody] = None
    """Why it could not run."""
    instruction: Optional[Instruction] = None
    output: List[Chunk] = field(default_factory=list)
    """Output lines."""

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
    """A line in the stream of a branch request."""
    machines: List[Machine] = field(default_factory=list)
    type: Optional[str] = None
    error: Optional[ErrorBody] = None
    """Why it could not run."""
    index: Optional[int] = None
    """The branch's position in the request."""
    instruction: Optional[Instruction] = None
    machine: Optional[Name] = None
    output: List[Chunk] = field(default_factory=list)
    """Output lines."""

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
    """The results of `vary`."""

    @classmethod
    def from_json(cls, data: Any) -> Branches:
        return cls(
            machines=each(Machine.from_json, data["machines"]),
            ends=each(BranchEnd.from_json, (data.get("ends") or [])),
        )


@dataclass(frozen=True)
class BudgetLimits(Model):
    """Amounts that are used up, since a policy with this budget applies. Machines that are
    held to several policies have the lowest of each.
    """
    branches: Optional[int] = None
    """Branches that were made."""
    cpu_seconds: Optional[int] = None
    """Processor time. The running instruction is interrupted, and its state kept."""
    instructions: Optional[int] = None
    """Instructions that were accepted."""
    tool_calls: Optional[int] = None
    """Calls of tools that policies allow or ask about."""
    traffic_mib: Optional[int] = None
    """MiB in both directions together, counted from the start of the service."""

    @classmethod
    def from_json(cls, data: Any) -> BudgetLimits:
        return cls(
            branches=data.get("branches"),
            cpu_seconds=data.get("cpu_seconds"),
            instructions=data.get("instructions"),
            tool_calls=data.get("tool_calls"),
            traffic_mib=data.get("traffic_mib"),
        )


@dataclass(frozen=True)
class BuildLine(Model):
    """A line of a build's progress."""
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
    """Whether the instruction was still waiting."""

    @classmethod
    def from_json(cls, data: Any) -> Cancelled:
        return cls(
            cancelled=data["cancelled"],
        )


@dataclass(frozen=True)
class Candidate(Model):
    index: int
    """The candidate's position in the request."""
    machine: Name
    """The branch; it was removed unless it won or `keep` is set."""
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
    """Counted from 0 for each instruction, over both streams."""
    stream: Stream
    prompt: Optional[bool] = None
    """The prompt of code that waits for a line of input; otherwise absent."""

    @classmethod
    def from_json(cls, data: Any) -> Chunk:
        return cls(
            data=data["data"],
            seq=data["seq"],
            stream=data["stream"],
            prompt=data.get("prompt"),
        )


@dataclass(frozen=True)
class Comparison(Model):
    """The differences between two states."""
    files: List[FileDifference]
    left: str
    outputs: List[OutputDifference]
    right: str
    variables: List[VariableDifference]
    base: Optional[str] = None
    """The common ancestor of both states, if there is one."""
    cut: List[str] = field(default_factory=list)
    """Descriptions of differences omitted because there are too many."""

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
    """The position in characters where the names begin."""

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
    """Disk use of a machine and its checkpoints."""
    checkpoints: int
    own_bytes: int
    """Bytes that deleting this machine would free."""
    shared_bytes: int
    """Bytes that other machines need too."""
    retention: Optional[Retention] = None
    """Which of them are kept: the machine's rule, or the service's."""

    @classmethod
    def from_json(cls, data: Any) -> DiskUse:
        return cls(
            checkpoints=data["checkpoints"],
            own_bytes=data["own_bytes"],
            shared_bytes=data["shared_bytes"],
            retention=None if data.get("retention") is None else Retention.from_json(data.get("retention")),
        )


@dataclass(frozen=True)
class ErrorBody(Model):
    """The body of every error."""
    code: str
    """A stable code for programs, such as `machine.not_found`."""
    message: str
    """The failure, and its cause."""
    hint: Optional[str] = None
    """The next step."""
    id: Optional[str] = None
    """The id of the request, as it appears in the logs."""

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
    """A change."""
    at: datetime
    id: int
    """Numbers grow; some may be missing."""
    kind: EventKind
    about: Optional[str] = None
    """Details: a path, a template, a parent, or a reason."""
    machine: Optional[Name] = None
    refused: Optional[RefusedAccess] = None
    """The refused access."""
    seq: Optional[int] = None
    """The number of the instruction."""
    status: Optional[Status] = None
    """How the instruction ended."""

    @classmethod
    def from_json(cls, data: Any) -> Event:
        return cls(
            at=time(data["at"]),
            id=data["id"],
            kind=data["kind"],
            about=data.get("about"),
            machine=data.get("machine"),
            refused=None if data.get("refused") is None else RefusedAccess.from_json(data.get("refused")),
            seq=data.get("seq"),
            status=data.get("status"),
        )


@dataclass(frozen=True)
class ExecResult(Model):
    runtime_ms: int
    artifacts: List[Artifact] = field(default_factory=list)
    """Values too large for the result, kept whole; absent if there are none."""
    data: Optional[Picture] = None
    error: Optional[str] = None
    """The traceback; absent after success."""
    value: Optional[str] = None
    """The repr of the last expression, null if it has no value; absent after a failure."""

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
class Explanation(Model):
    """The answer of a machine's policies to a request, and the deciding rule."""
    reason: str
    """Why."""
    verdict: PolicyVerdict
    policy: Optional[str] = None
    """The policy that decides; absent, if no policy does."""
    rule: Optional[str] = None
    """The rule that decides, such as `network.allow "*.example.com"`."""

    @classmethod
    def from_json(cls, data: Any) -> Explanation:
        return cls(
            reason=data["reason"],
            verdict=data["verdict"],
            policy=data.get("policy"),
            rule=data.get("rule"),
        )


@dataclass(frozen=True)
class Explored(Model):
    candidates: List[Candidate]
    best: Optional[Machine] = None
    """The winner, under the machine's name; absent if no candidate got a score."""
    former: Optional[Machine] = None
    """The previous machine, under the winner's old name; absent if it was removed."""

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
    """The exception's class, or a code such as `machine.out_of_memory`."""
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
    """Changed files: their numbers and names."""
    added: int
    changed: int
    names: List[str]
    """The names of the first ones."""
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
    """A unified diff, for text files up to a size limit."""
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
    """A change of a watched file."""
    kind: FileChange
    name: Optional[str] = None
    """The path below the watched directory; absent if the watched file or directory itself
    changed.
    """

    @classmethod
    def from_json(cls, data: Any) -> FileEvent:
        return cls(
            kind=data["kind"],
            name=data.get("name"),
        )


@dataclass(frozen=True)
class FileInfo(Model):
    """A file's metadata."""
    kind: FileKind
    mode: str
    """Permissions, in octal."""
    modified_at: datetime
    path: str
    size: int
    """Size in bytes."""
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
    """A page of a directory, sorted by name."""
    files: List[FileInfo]
    path: str
    next: Optional[str] = None
    """The `cursor` for the next page; null on the last page."""

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
    """Absolute path."""
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
    """Whether machines can be created."""
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
class ImportedModule(Model):
    """A module that the host fetched for an import. Its bytes are pinned by their hash."""
    integrity: str
    """The hash of the fetched data: `sha512-` or `sha256-`, and base64."""
    name: str
    """Its exact name, such as `npm:left-pad@1.3.0`, or its address."""

    @classmethod
    def from_json(cls, data: Any) -> ImportedModule:
        return cls(
            integrity=data["integrity"],
            name=data["name"],
        )


@dataclass(frozen=True)
class InputTaken(Model):
    taken: bool
    """Whether the instruction was waiting for a line."""

    @classmethod
    def from_json(cls, data: Any) -> InputTaken:
        return cls(
            taken=data["taken"],
        )


@dataclass(frozen=True)
class Instruction(Model):
    code: str
    outputs: int
    """The number of output lines."""
    queued_at: datetime
    seq: int
    status: Status
    finished_at: Optional[datetime] = None
    outcome: Optional[Outcome] = None
    receipt: Optional[Receipt] = None
    rolled_back: Optional[bool] = None
    """Whether a later rollback undid it."""
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
    """Whether an instruction was running."""

    @classmethod
    def from_json(cls, data: Any) -> Interrupted:
        return cls(
            interrupted=data["interrupted"],
        )


@dataclass(frozen=True)
class Kept(Model):
    """An artifact and its instruction."""
    id: str
    """Identifies the contents; read them at `/v1/machine/{name}/artifact/{id}`."""
    kind: str
    """MIME type."""
    name: str
    """The source: `output` (both streams, in order), `value`, or `display`."""
    size: int
    """Size in bytes."""
    seq: int
    cut: Optional[bool] = None
    """Whether it was truncated at the largest size that is kept."""

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
    """Resource limits; an absent limit is the template's or the service's default."""
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
    """A machine's ancestors and branches."""
    ancestors: List[Ancestor]
    """The ancestors, from the parent to the first machine."""
    children: List[Relative]
    tree: Relative
    """The whole tree, from the oldest ancestor that still exists."""

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
    """The number of instructions submitted to it."""
    limits: Limits
    name: Name
    network: Network
    """Network access, effective when the machine next comes into memory."""
    running: bool
    """Whether it is in memory."""
    state: State
    tags: Dict[str, str]
    template: str
    checkpoint: Optional[Address] = None
    """The last checkpoint on disk; absent before the first instruction."""
    checkpoints: Optional[Checkpoints] = None
    expires_at: Optional[datetime] = None
    lost: Optional[str] = None
    """Acknowledged instructions whose effects were lost with the memory, and why; absent once
    a later instruction has ended.
    """
    parent: Optional[Parent] = None
    pinned: Optional[str] = None
    """Why the machine cannot leave memory, if it cannot."""
    retention: Optional[Retention] = None
    """The checkpoints to keep, if they differ from the service's rule."""

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
            checkpoints=data.get("checkpoints"),
            expires_at=None if data.get("expires_at") is None else time(data.get("expires_at")),
            lost=data.get("lost"),
            parent=None if data.get("parent") is None else Parent.from_json(data.get("parent")),
            pinned=data.get("pinned"),
            retention=None if data.get("retention") is None else Retention.from_json(data.get("retention")),
        )


@dataclass(frozen=True)
class MachineList(Model):
    """A page of machines, newest first."""
    machines: List[Machine]
    next: Optional[str] = None
    """The `cursor` for the next page; null on the last page."""

    @classmethod
    def from_json(cls, data: Any) -> MachineList:
        return cls(
            machines=each(Machine.from_json, data["machines"]),
            next=data.get("next"),
        )


@dataclass(frozen=True)
class MachineSecret(Model):
    """A secret that the policies of a machine grant, as its code knows it."""
    hosts: List[str]
    name: str
    placeholder: str
    """The text that code writes instead of the value."""
    variable: str

    @classmethod
    def from_json(cls, data: Any) -> MachineSecret:
        return cls(
            hosts=list(data["hosts"]),
            name=data["name"],
            placeholder=data["placeholder"],
            variable=data["variable"],
        )


@dataclass(frozen=True)
class MachineSecrets(Model):
    secrets: List[MachineSecret]

    @classmethod
    def from_json(cls, data: Any) -> MachineSecrets:
        return cls(
            secrets=each(MachineSecret.from_json, data["secrets"]),
        )


@dataclass(frozen=True)
class Made(Model):
    """A new machine."""
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
    """`id.secret`: shown only once."""
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
    """The omitted values, kept whole beside the result."""
    cut: Optional[str] = None
    """Descriptions of values omitted because they were too large."""
    data: Optional[Dict[str, Any]] = None
    """The value of the last expression in every format it offers."""
    error: Optional[Failure] = None
    shown: List[Shown] = field(default_factory=list)
    """Content displayed while the code ran: figures, `display(...)`."""
    touched: List[str] = field(default_factory=list)
    """Variables that were bound, unbound or changed in place, as far as the agent can tell."""
    value: Optional[str] = None
    """The repr of the last expression."""

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
    """Output of both streams, possibly truncated."""
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
    """Instructions since the common ancestor, side by side, where their results differ."""
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
    """Whether these are the last."""

    @classmethod
    def from_json(cls, data: Any) -> Outputs:
        return cls(
            chunks=each(Chunk.from_json, data["chunks"]),
            over=data["over"],
        )


@dataclass(frozen=True)
class Parent(Model):
    """The origin of a branch."""
    machine: Name
    seq: Optional[int] = None
    """The checkpoint it started from; absent if the parent had run nothing."""

    @classmethod
    def from_json(cls, data: Any) -> Parent:
        return cls(
            machine=data["machine"],
            seq=data.get("seq"),
        )


@dataclass(frozen=True)
class Picture(Model):
    png: str
    """The image in base64."""

    @classmethod
    def from_json(cls, data: Any) -> Picture:
        return cls(
            png=data["png"],
        )


@dataclass(frozen=True)
class Point(Model):
    """A saved state that the machine can return to."""
    at: datetime
    bytes: int
    """Bytes it added to the store."""
    code: str
    """The code of that instruction."""
    seq: int
    """The number of the instruction that produced this state."""
    files: Optional[FileChanges] = None
    """Files changed since the previous checkpoint; absent unless requested."""
    label: Optional[str] = None
    variables: List[str] = field(default_factory=list)
    """Variables touched since the previous checkpoint."""

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
class Policy(Model):
    """A named policy of the service."""
    changed_at: datetime
    document: PolicyDocument
    name: Name

    @classmethod
    def from_json(cls, data: Any) -> Policy:
        return cls(
            changed_at=time(data["changed_at"]),
            document=PolicyDocument.from_json(data["document"]),
            name=data["name"],
        )


@dataclass(frozen=True)
class PolicyCase(Model):
    """A request, and the answer that is expected. It has one of `fetch`, `import`, `secret`,
    `tool`, `create`, `file` and `command`.
    """
    expect: PolicyVerdict
    arguments: Optional[str] = None
    """The arguments of `tool`, as the text of a JSON object."""
    command: Optional[str] = None
    """A command of the shell that a client starts."""
    create: Optional[str] = None
    """A template that a machine is created from."""
    fetch: Optional[str] = None
    """A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`."""
    file: Optional[str] = None
    """A file that a client uses: `read PATH`, or `write PATH`."""
    import_: Optional[str] = None
    """A module: `npm:`, `jsr:` or `https:`."""
    method: Optional[str] = None
    """The method of `fetch`; `GET`, if absent."""
    secret: Optional[str] = None
    """A secret and the host that gets it: `NAME@HOST`, or `NAME@HOST:PORT`."""
    tool: Optional[str] = None
    """A tool: `SERVER.TOOL`."""

    @classmethod
    def from_json(cls, data: Any) -> PolicyCase:
        return cls(
            expect=data["expect"],
            arguments=data.get("arguments"),
            command=data.get("command"),
            create=data.get("create"),
            fetch=data.get("fetch"),
            file=data.get("file"),
            import_=data.get("import"),
            method=data.get("method"),
            secret=data.get("secret"),
            tool=data.get("tool"),
        )


@dataclass(frozen=True)
class PolicyDocument(Model):
    """A policy: what it does not allow is denied. The order of rules does not matter: `deny`
    beats `ask`, and `ask` beats `allow`. A machine is held to every policy that applies to
    it, and gets what all of them allow.
    """
    account_budget: Optional[BudgetLimits] = None
    """What all machines of an account that are held to the policy may use up together."""
    accounts: List[str] = field(default_factory=list)
    """Accounts whose machines are all held to this policy, beside their own."""
    budget: Optional[BudgetLimits] = None
    """What a machine and all its branches may use up together."""
    commands: Optional[PolicyRules] = None
    """Commands that clients have the service start, such as `git log *`, or `pip install
    pandas` for an installation of packages. Without this section the policy does not
    restrict them. Code in a machine starts programs itself, which no such rule prevents.
    """
    description: Optional[str] = None
    """The purpose of the policy."""
    files: Optional[PolicyRules] = None
    """Files that clients read and write through the service, such as `/home/user/*` or `read
    /etc/hosts`. Without this section the policy does not restrict them. Code in a machine
    opens its files itself, which no such rule prevents.
    """
    http: Optional[PolicyRules] = None
    """Requests of HTTP, such as `GET,HEAD api.example.com/v1/*` or `POST *.example.com:8443`.
    A host with such a rule is connected to; each request is judged by its method and path.
    """
    machines: Optional[PolicyRules] = None
    """Templates that machines are created from, such as `python` or `team-*`. Without this
    section the policy does not restrict them; with it, and without rules, it allows none.
    """
    modules: Optional[PolicyRules] = None
    """Modules that the service fetches for imports, such as `npm:lodash` or `jsr:@std/*`, or
    the beginning of an `https:` address and `*`.
    """
    network: Optional[PolicyRules] = None
    """Hosts that machines connect to, such as `api.example.com`, `*.example.com:443,8443`,
    `10.1.0.0/16:5432` or `time.example.com:123/udp`.
    """
    rego: Optional[str] = None
    """Rego, for what the other rules cannot say: package `stasis` with rules `allow`, `ask`
    and `deny`. They count as rules of this policy. `input` has `subject`, `action` and
    `object`.
    """
    secrets: Optional[PolicyRules] = None
    """Secrets that requests of machines carry, such as `GITHUB@api.github.com`, or `GITHUB`
    for every host that the secret is bound to.
    """
    templates: List[str] = field(default_factory=list)
    """Templates whose machines are all held to this policy, beside their own."""
    test: List[PolicyCase] = field(default_factory=list)
    """Requests and the expected answers, for `stasis policy test`."""
    tools: Optional[PolicyRules] = None
    """Tools that code calls, such as `github.create_issue`, `github.list_*` or
    `github.create_issue repo=acme/*`.
    """
    traffic: Optional[TrafficLimits] = None
    """How much each machine sends and receives."""

    @classmethod
    def from_json(cls, data: Any) -> PolicyDocument:
        return cls(
            account_budget=None if data.get("account_budget") is None else BudgetLimits.from_json(data.get("account_budget")),
            accounts=list((data.get("accounts") or [])),
            budget=None if data.get("budget") is None else BudgetLimits.from_json(data.get("budget")),
            commands=None if data.get("commands") is None else PolicyRules.from_json(data.get("commands")),
            description=data.get("description"),
            files=None if data.get("files") is None else PolicyRules.from_json(data.get("files")),
            http=None if data.get("http") is None else PolicyRules.from_json(data.get("http")),
            machines=None if data.get("machines") is None else PolicyRules.from_json(data.get("machines")),
            modules=None if data.get("modules") is None else PolicyRules.from_json(data.get("modules")),
            network=None if data.get("network") is None else PolicyRules.from_json(data.get("network")),
            rego=data.get("rego"),
            secrets=None if data.get("secrets") is None else PolicyRules.from_json(data.get("secrets")),
            templates=list((data.get("templates") or [])),
            test=each(PolicyCase.from_json, (data.get("test") or [])),
            tools=None if data.get("tools") is None else PolicyRules.from_json(data.get("tools")),
            traffic=None if data.get("traffic") is None else TrafficLimits.from_json(data.get("traffic")),
        )


@dataclass(frozen=True)
class PolicyList(Model):
    policies: List[Policy]

    @classmethod
    def from_json(cls, data: Any) -> PolicyList:
        return cls(
            policies=each(Policy.from_json, data["policies"]),
        )


@dataclass(frozen=True)
class PolicyRules(Model):
    """Rules of one kind."""
    allow: List[str] = field(default_factory=list)
    ask: List[str] = field(default_factory=list)
    """A call of a tool waits until a person allows it. Everything else is refused, with the
    reason that a person has to allow it: the policy has to be changed.
    """
    deny: List[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Any) -> PolicyRules:
        return cls(
            allow=list((data.get("allow") or [])),
            ask=list((data.get("ask") or [])),
            deny=list((data.get("deny") or [])),
        )


@dataclass(frozen=True)
class Promoted(Model):
    """Two machines that exchanged their names."""
    former: Machine
    """The machine that had the name before, under the branch's old name."""
    machine: Machine
    """The branch, under its new name."""
    removed: Optional[bool] = None
    """Whether that machine was removed."""

    @classmethod
    def from_json(cls, data: Any) -> Promoted:
        return cls(
            former=Machine.from_json(data["former"]),
            machine=Machine.from_json(data["machine"]),
            removed=data.get("removed"),
        )


@dataclass(frozen=True)
class Receipt(Model):
    """The machine's state after an instruction."""
    address: Address
    """The instruction's address."""
    intact: bool
    """Whether the state includes this instruction and all before it."""
    durable: Optional[Address] = None
    """The newest checkpoint on disk when this was written."""
    lost: Optional[str] = None
    """Which effects were lost, and why."""
    modules: List[ImportedModule] = field(default_factory=list)
    """Modules that the host fetched for the instruction's imports, at most 1000."""
    notes: List[str] = field(default_factory=list)
    """Notes for programs: the machine was woken, reseeded, or its sockets were reset."""

    @classmethod
    def from_json(cls, data: Any) -> Receipt:
        return cls(
            address=data["address"],
            intact=data["intact"],
            durable=data.get("durable"),
            lost=data.get("lost"),
            modules=each(ImportedModule.from_json, (data.get("modules") or [])),
            notes=list((data.get("notes") or [])),
        )


@dataclass(frozen=True)
class RefusedAccess(Model):
    """A refused connection, name, import, file or command."""
    access: str
    """The requested access, such as `tcp api.example.com:443 (203.0.113.7)`."""
    reason: str
    verdict: PolicyVerdict
    policy: Optional[str] = None
    """The policy that decided; absent, if the service's own rules did."""
    rule: Optional[str] = None
    unreported: Optional[int] = None
    """Further refusals of the machine that were not reported because there were too many."""

    @classmethod
    def from_json(cls, data: Any) -> RefusedAccess:
        return cls(
            access=data["access"],
            reason=data["reason"],
            verdict=data["verdict"],
            policy=data.get("policy"),
            rule=data.get("rule"),
            unreported=data.get("unreported"),
        )


@dataclass(frozen=True)
class Relative(Model):
    """A machine with its branches."""
    children: List[Relative]
    machine: Name
    from_: Optional[int] = None
    """The checkpoint of the parent that it started from."""
    seq: Optional[int] = None
    """Its last checkpoint."""

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
    """The checkpoints to keep: the newest, those that branches started from, and every
    checkpoint that one of the rules selects. Without `last` and `seconds` all are kept.
    """
    labelled: Optional[bool] = None
    """Keep those with a label."""
    last: Optional[int] = None
    """Keep this many of the newest."""
    older: Optional[OlderCheckpoints] = None
    """The rule for all others."""
    seconds: Optional[int] = None
    """Keep those younger than this."""

    @classmethod
    def from_json(cls, data: Any) -> Retention:
        return cls(
            labelled=data.get("labelled"),
            last=data.get("last"),
            older=data.get("older"),
            seconds=data.get("seconds"),
        )


@dataclass(frozen=True)
class Secret(Model):
    """A secret without its value."""
    changed_at: datetime
    hosts: List[str]
    kind: SecretKind
    name: str
    variable: str
    """The variable that has the placeholder, in machines whose policy grants the secret."""

    @classmethod
    def from_json(cls, data: Any) -> Secret:
        return cls(
            changed_at=time(data["changed_at"]),
            hosts=list(data["hosts"]),
            kind=data["kind"],
            name=data["name"],
            variable=data["variable"],
        )


@dataclass(frozen=True)
class SecretList(Model):
    secrets: List[Secret]

    @classmethod
    def from_json(cls, data: Any) -> SecretList:
        return cls(
            secrets=each(Secret.from_json, data["secrets"]),
        )


@dataclass(frozen=True)
class Shown(Model):
    """Content displayed while an instruction ran."""
    after: int
    """The number of output lines before it."""
    data: Dict[str, Any]

    @classmethod
    def from_json(cls, data: Any) -> Shown:
        return cls(
            after=data["after"],
            data=dict(data["data"]),
        )


@dataclass(frozen=True)
class StoreChecked(Model):
    """The result of a check of the store."""
    complete: bool
    """Whether everything was checked."""
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
    """Machines and templates that need the damaged data."""
    code: str
    repaired: bool
    what: str

    @classmethod
    def from_json(cls, data: Any) -> StoreFinding:
        return cls(
            affects=list(data["affects"]),
            code=data["code"],
            repaired=data["repaired"],
            what=data["what"],
        )


@dataclass(frozen=True)
class StoreFreed(Model):
    """The result of a garbage collection."""
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
    """The size of the image store."""
    bytes: int
    """Disk space in total, and the part of it that extracted files take."""
    cold_packs: int
    compressed_bytes: int
    """Bytes saved by compression, and by images that share pages."""
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
    """The hash of everything it was built from."""
    image: str
    """The image machines start from."""
    language: str
    """The language of its instructions, such as `python`."""
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
    """A token without its secret."""
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
class ToolCall(Model):
    """A call of a tool by an instruction."""
    arguments: str
    """The arguments as JSON text; of a long one, the beginning."""
    called_at: datetime
    id: int
    machine: Name
    reason: str
    """Why: the rule, or the lack of one."""
    seq: int
    """The number of the instruction."""
    server: str
    state: ToolCallState
    tool: str
    verdict: PolicyVerdict
    """The answer of the machine's policies."""
    answered_at: Optional[datetime] = None
    answered_by: Optional[str] = None
    """The account that answered, and the id of its token."""
    error: Optional[str] = None
    """Why there was no result."""
    expires_at: Optional[datetime] = None
    """When a call without an answer is denied."""
    finished_at: Optional[datetime] = None
    note: Optional[str] = None
    """The comment of that person for the code."""

    @classmethod
    def from_json(cls, data: Any) -> ToolCall:
        return cls(
            arguments=data["arguments"],
            called_at=time(data["called_at"]),
            id=data["id"],
            machine=data["machine"],
            reason=data["reason"],
            seq=data["seq"],
            server=data["server"],
            state=data["state"],
            tool=data["tool"],
            verdict=data["verdict"],
            answered_at=None if data.get("answered_at") is None else time(data.get("answered_at")),
            answered_by=data.get("answered_by"),
            error=data.get("error"),
            expires_at=None if data.get("expires_at") is None else time(data.get("expires_at")),
            finished_at=None if data.get("finished_at") is None else time(data.get("finished_at")),
            note=data.get("note"),
        )


@dataclass(frozen=True)
class ToolCallList(Model):
    calls: List[ToolCall]
    """The newest first."""

    @classmethod
    def from_json(cls, data: Any) -> ToolCallList:
        return cls(
            calls=each(ToolCall.from_json, data["calls"]),
        )


@dataclass(frozen=True)
class TrafficLimits(Model):
    """Limits of one machine's traffic. A machine that is held to several policies has the
    lowest of each.
    """
    connections: Optional[int] = None
    """TCP connections at once; never more than 256."""
    kib_per_s: Optional[int] = None
    """KiB per second, in both directions together. A faster machine is slowed down."""
    total_mib: Optional[int] = None
    """MiB in both directions together, of a machine and all its branches, since the service
    started. After that connections are reset, and new ones refused.
    """

    @classmethod
    def from_json(cls, data: Any) -> TrafficLimits:
        return cls(
            connections=data.get("connections"),
            kib_per_s=data.get("kib_per_s"),
            total_mib=data.get("total_mib"),
        )


@dataclass(frozen=True)
class Var(Model):
    """A variable of a session."""
    kind: str
    name: str
    repr: str
    bytes: Optional[int] = None
    shape: Optional[str] = None
    """Shape or length, if it has one."""

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
