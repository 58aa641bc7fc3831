/**
 * What the service says and is told, as its OpenAPI document describes it. Times are RFC 3339.
 *
 * Written by `python3 sdk/generate`; change the document instead.
 *
 * @module
 */

export interface Accepted {
  instruction_seq: number;
  /** Whether something was interrupted for it. */
  interrupted: boolean;
  machine: Name;
}

export type Address = string;

/** What to take over from another machine. */
export interface AdoptRequest {
  /** Files, or directories with all that the machine changed in them. */
  files?: string[];
  /** Overwrite what both sides changed since they parted. */
  force?: boolean;
  /** The machine or checkpoint to take from. */
  from: string;
  variables?: string[];
}

/** What was taken over, or why nothing was. */
export interface Adopted {
  /**
   * What both sides changed since they parted. Without `force` nothing was taken because of
   * it.
   */
  conflicts: Conflict[];
  /** What could not be carried, and why. */
  failed: Record<string, string>;
  files: string[];
  /** The instruction of the log that stands for it; absent when nothing was taken. */
  seq?: number | null;
  variables: string[];
}

/** Where a line came through. */
export interface Ancestor {
  machine: Name;
  /** Whether the machine is gone. */
  removed?: boolean;
  /** The checkpoint that the branch started from; absent if nothing had run. */
  seq?: number | null;
}

/** Something too large for a result, kept as long as its machine. */
export interface Artifact {
  /** Whether it was cut all the same, at the largest size that is kept. */
  cut?: boolean;
  /** Names its contents; read it at `/v1/machine/{name}/artifact/{id}`. */
  id: string;
  /** Its MIME type. */
  kind: string;
  /** Of what: `output` (both streams as they came), `value`, or `display`. */
  name: string;
  /** In bytes. */
  size: number;
}

export interface ArtifactList {
  artifacts: Kept[];
}

/** How one branch's own part ended. */
export interface BranchEnd {
  /** Why it could not run. */
  error?: ErrorBody | null;
  /** Which branch, in the order they were asked for. */
  index: number;
  instruction?: Instruction | null;
  machine: Name;
  /** Lines of output. */
  output?: Chunk[];
}

/** A line of a branch call's stream. */
export type BranchLine =
  | {
    machines: Machine[];
    type: string;
  }
  | {
    /** Why it could not run. */
    error?: ErrorBody | null;
    /** Which branch, in the order they were asked for. */
    index: number;
    instruction?: Instruction | null;
    machine: Name;
    /** Lines of output. */
    output?: Chunk[];
    type: string;
  }
  | {
    type: string;
  };

export interface BranchRequest {
  /** How many; as many as there are names, or one, if absent. */
  count?: number | null;
  names?: Name[];
  /** Seed the program's own random generators anew. */
  reseed?: boolean;
  /** The state after this instruction; the state now, if absent. */
  seq?: number | null;
  /** Answer with a line of JSON for each end as it comes, instead of all together. */
  stream?: boolean;
  /** Added to those of the machine. */
  tags?: Record<string, string>;
  /** How long each may run; absent means the service's default, null no limit. */
  timeout_seconds?: number | null;
  /** What each branch runs at once, in turn; those beyond the end run nothing. */
  vary?: Vary[];
}

export interface Branches {
  /** How the parts of `vary` ended. */
  ends?: BranchEnd[];
  machines: Machine[];
}

/** A line of what a build says. */
export type BuildLine =
  | {
    done: number;
    step: string;
    total?: number | null;
  }
  | {
    say: string;
  }
  | {
    template: Template;
  }
  | {
    error: ErrorBody;
  };

export interface BuildTemplate {
  /** As TOML. */
  recipe: string;
}

export interface Cancelled {
  /** Whether it still waited. */
  cancelled: boolean;
}

export interface Candidate {
  /** Why it has no score. */
  error?: string | null;
  /** In the order they were given. */
  index: number;
  /** Its branch, which is gone unless it won or was to be kept. */
  machine: Name;
  score?: number | null;
}

export type Change = "added" | "removed" | "changed" | "unknown";

export interface CheckStore {
  /** Put back what exists elsewhere. */
  mend?: boolean;
}

/** One line of output, without its newline. */
export interface Chunk {
  data: string;
  /** From 0 for each instruction, over both streams. */
  seq: number;
  stream: Stream;
}

/** Code as clients send it. */
export interface Code {
  code: string;
  /** Absent means the service's default, null no limit. */
  timeout_seconds?: number | null;
}

/** Two machines or checkpoints. */
export interface CompareRequest {
  left: string;
  right: string;
}

/** What differs between two states. */
export interface Comparison {
  /** The state both came from, if there is one. */
  base?: string | null;
  /** What was left out because there is too much of it, in words. */
  cut?: string[];
  files: FileDifference[];
  left: string;
  outputs: OutputDifference[];
  right: string;
  variables: VariableDifference[];
}

export interface Complete {
  code: string;
  /** Counted in characters; the end, if absent. */
  cursor?: number | null;
}

export interface Completions {
  names: string[];
  /** Where the names begin, counted in characters. */
  start: number;
}

export interface Conflict {
  /** `variable` or `file`. */
  kind: string;
  name: string;
  why: string;
}

/** What a machine and its checkpoints take on the disk. */
export interface DiskUse {
  checkpoints: number;
  /** What would be freed if this machine went. */
  own_bytes: number;
  /** What others need, too. */
  shared_bytes: number;
}

/** When an instruction's answer is sent. */
export type Durability = "memory" | "local";

/** The body of every error. */
export interface ErrorBody {
  /** Stable, for programs: `machine.not_found`. */
  code: string;
  /** What to do next. */
  hint?: string | null;
  /** The request this is about, as logs know it. */
  id?: string | null;
  /** What happened, on what. */
  message: string;
}

/** Something that changed. */
export interface Event {
  /** What else it is about: a path, a template, a parent, a reason. */
  about?: string | null;
  at: string;
  /** Later ones are higher; numbers may be left out. */
  id: number;
  kind: EventKind;
  machine?: Name | null;
  /** An instruction's number. */
  seq?: number | null;
  /** How an instruction ended. */
  status?: Status | null;
}

export type EventKind = "machine.created" | "machine.updated" | "machine.removed" | "machine.woken" | "machine.swapped" | "machine.pinned" | "machine.fell_back" | "machine.rolled_back" | "instruction.queued" | "instruction.started" | "instruction.finished" | "checkpoint.made" | "file.put" | "file.removed" | "template.built" | "template.removed" | "service.started" | "events.missed";

export interface ExecRequest {
  /** Overrides the machine's. */
  durability?: Durability | null;
  /** The same key again gives the same instruction instead of a second one. */
  idempotency_key?: string | null;
  instruction: Code;
  /** Interrupt what runs, and cancel what waits, first. */
  interrupt?: boolean;
}

export interface ExecResult {
  /** What was too large for the result, kept whole; absent if nothing was. */
  artifacts?: Artifact[];
  data?: Picture | null;
  /** The traceback; absent after success. */
  error?: string | null;
  runtime_ms: number;
  /** repr of the last expression, null if there is none; absent after a failure. */
  value?: string | null;
}

/** Candidates to try as branches. */
export interface ExploreRequest {
  candidates: Vary[];
  /** Leave the branches that lose; they are removed otherwise. */
  keep?: boolean;
  /** Lower is better instead. */
  minimize?: boolean;
  /** Seed the program's own random generators anew in each branch. */
  reseed?: boolean;
  /** A Python expression that each branch is scored with; higher is better. */
  score: string;
  /** The state to start from; the state now, if absent. */
  seq?: number | null;
  /**
   * How long each candidate, and each score, may take; absent means the service's default,
   * null no limit.
   */
  timeout_seconds?: number | null;
}

export interface Explored {
  /** The winner, under the machine's name; absent when no candidate could be scored. */
  best?: Machine | null;
  candidates: Candidate[];
  /** The machine as it was, under the winner's old name. */
  former?: Machine | null;
}

export interface Failure {
  message: string;
  /** The exception's class, or a code of ours such as `machine.out_of_memory`. */
  name: string;
  traceback: string;
}

/** All families. */
export interface Families {
  families: Relative[];
}

export type FileChange = "watching" | "created" | "changed" | "written" | "removed" | "overflowed" | "unwatched" | "swapped" | "gone";

/** Which files differ, by number and by name. */
export interface FileChanges {
  added: number;
  changed: number;
  /** The first of them. */
  names: string[];
  removed: number;
}

export interface FileDifference {
  change: Change;
  /** As `diff -u` writes it, for text that is not too long. */
  diff?: string | null;
  left_size?: number | null;
  path: string;
  right_size?: number | null;
}

/** Something that happened to a file that is watched. */
export interface FileEvent {
  kind: FileChange;
  /**
   * The name in the watched directory, or the path below it; of the watched thing itself, if
   * absent.
   */
  name?: string | null;
}

/** What is known of a file without reading it. */
export interface FileInfo {
  kind: FileKind;
  /** Its permissions, in octal. */
  mode: string;
  modified_at: string;
  path: string;
  /** In bytes. */
  size: number;
  /** Where a symbolic link points. */
  target?: string | null;
}

export type FileKind = "file" | "directory" | "symlink" | "other";

/** A page of a directory, by name. */
export interface FileList {
  files: FileInfo[];
  /** What to give as `cursor` for the next page; null at the end. */
  next?: string | null;
  path: string;
}

/** A file in a machine or a checkpoint. */
export interface FileView {
  kind: FileKind;
  mode: number;
  modified_at: string;
  /** Below the root, without a leading slash. */
  path: string;
  size: number;
}

export interface FileViews {
  files: FileView[];
}

/** Which machines to list. A machine has to meet all that is said. */
export interface Filter {
  created_after?: string | null;
  created_before?: string | null;
  /** What `next` of the page before said. */
  cursor?: string | null;
  /** At most this many; 1000 unless told. */
  limit?: number | null;
  memory_mb_max?: number | null;
  /** Bounds on the memory a machine may use. */
  memory_mb_min?: number | null;
  state?: State | null;
  tags?: Record<string, string>;
}

export interface Health {
  status: string;
  /** Whether machines can be made. */
  templates_ready: boolean;
  version: string;
}

export interface History {
  checkpoints: Point[];
}

export interface Instruction {
  code: string;
  finished_at?: string | null;
  outcome?: Outcome | null;
  /** How many lines of output it has. */
  outputs: number;
  queued_at: string;
  receipt?: Receipt | null;
  /** Whether it was undone by a later rollback. */
  rolled_back?: boolean;
  seq: number;
  started_at?: string | null;
  status: Status;
}

export interface InstructionList {
  instructions: Instruction[];
}

export interface Interrupted {
  /** Whether something ran. */
  interrupted: boolean;
}

/** An artifact and the instruction it is of. */
export interface Kept {
  /** Whether it was cut all the same, at the largest size that is kept. */
  cut?: boolean;
  /** Names its contents; read it at `/v1/machine/{name}/artifact/{id}`. */
  id: string;
  /** Its MIME type. */
  kind: string;
  /** Of what: `output` (both streams as they came), `value`, or `display`. */
  name: string;
  /** In bytes. */
  size: number;
  seq: number;
}

/** A name for a checkpoint; null takes it away. */
export interface LabelRequest {
  label?: string | null;
  seq: number;
}

/** What a machine may use; absent means the template's or the service's default. */
export interface Limits {
  cpus?: number | null;
  disk_mb?: number | null;
  memory_mb?: number | null;
  pids?: number | null;
}

/** A machine among its relatives. */
export interface Lineage {
  /** From the machine's parent to the first of the line. */
  ancestors: Ancestor[];
  children: Relative[];
  /** The whole family, from its first member that is still there. */
  tree: Relative;
}

export interface Machine {
  /** The last checkpoint on disk; absent before the first instruction. */
  checkpoint?: Address | null;
  created_at: string;
  durability: Durability;
  expires_at?: string | null;
  /** Whether instructions run or wait. */
  has_pending_instruction: boolean;
  has_pending_instructions: boolean;
  /** How many instructions it was given. */
  instructions: number;
  limits: Limits;
  name: Name;
  network: Network;
  parent?: Parent | null;
  /** Why it cannot leave memory, if so. */
  pinned?: string | null;
  /** Which checkpoints are kept, if not those of the service's rule. */
  retention?: Retention | null;
  /** Whether it is in memory. */
  running: boolean;
  state: State;
  tags: Record<string, string>;
  template: string;
}

/** A page of machines, newest first. */
export interface MachineList {
  machines: Machine[];
  /** What to give as `cursor` for the next page; null at the end. */
  next?: string | null;
}

/** A machine that was made. */
export interface Made {
  machine: Machine;
  machine_name: Name;
}

export interface MadeToken {
  account: string;
  created_at: string;
  id: string;
  name?: string | null;
  scopes: string[];
  /** `id.secret`: shown this once. */
  token: string;
}

/**
 * 1 to 64 of `A-Z a-z 0-9 _ -`, the first a letter or digit; never `new`, which means "make
 * one".
 */
export type Name = string;

export type Network = "none" | "open";

/** What to make. */
export interface NewMachine {
  durability?: Durability;
  env?: Record<string, string>;
  expires_at?: string | null;
  limits?: Limits;
  /** The same as `limits.memory_mb`. */
  memory_mb?: number | null;
  name?: Name | null;
  network?: Network;
  /** Which checkpoints are kept; the service's rule, if absent. */
  retention?: Retention | null;
  tags?: Record<string, string>;
  /** A template's name; the default one otherwise. */
  template?: string | null;
}

export interface NewToken {
  /** The caller's own unless told. */
  account?: string | null;
  name?: string | null;
  /** `machines` unless told; also `templates`, `tokens`, `host`. */
  scopes?: string[] | null;
}

/** How an instruction ended. */
export interface Outcome {
  /** What was left out, kept whole beside the result. */
  artifacts?: Artifact[];
  /** What was left out because it was too large, in words. */
  cut?: string | null;
  /** The last expression's value in every form it offers. */
  data?: Record<string, unknown> | null;
  error?: Failure | null;
  runtime_ms: number;
  /** What was shown on the way: figures, `display(...)`. */
  shown?: Shown[];
  /** Variables that were bound, unbound or changed in place, as far as was seen. */
  touched?: string[];
  /** repr of the last expression. */
  value?: string | null;
}

export interface Output {
  code: string;
  /** Lines of both streams, perhaps cut. */
  output: string;
  /** The value, or the error's last line. */
  result?: string | null;
  seq: number;
}

/** Instructions of both sides since they parted, side by side, where what they gave differs. */
export interface OutputDifference {
  left?: Output | null;
  right?: Output | null;
}

export interface Outputs {
  chunks: Chunk[];
  /** Whether no more will come after these. */
  over: boolean;
}

/** Where a branch came from. */
export interface Parent {
  machine: Name;
  /** The checkpoint it started from; absent for a machine that had run nothing. */
  seq?: number | null;
}

export interface Picture {
  /** Base64. */
  png: string;
}

/** A state that can be gone back to. */
export interface Point {
  at: string;
  /** What it added to the store. */
  bytes: number;
  /** The code of that instruction. */
  code: string;
  /** Files that differ from the checkpoint before; absent when that was not asked for. */
  files?: FileChanges | null;
  label?: string | null;
  /** The instruction it is the state after. */
  seq: number;
  /** Variables that the instructions since the checkpoint before touched. */
  variables?: string[];
}

export interface PromoteRequest {
  /** Whose name to take; the parent's, if absent. */
  onto?: Name | null;
}

/** What exchanged names. */
export interface Promoted {
  /** What had the name before, under the branch's old one. */
  former: Machine;
  /** The branch, under its new name. */
  machine: Machine;
}

/** What holds of the machine's state after an instruction. */
export interface Receipt {
  /** The instruction's address. */
  address: Address;
  /** The newest checkpoint on disk when this was written. */
  durable?: Address | null;
  /** Whether the state is that after this instruction and all before it. */
  intact: boolean;
  /** What was lost, and why. */
  lost?: string | null;
  /** What else a program should know: it was woken, reseeded, its sockets were reset. */
  notes?: string[];
}

/** A machine with its branches. */
export interface Relative {
  children: Relative[];
  /** The checkpoint of its parent that it started from. */
  from?: number | null;
  machine: Name;
  /** Its own last checkpoint. */
  seq?: number | null;
}

export interface Removed {
  removed: string;
}

export interface ResultBody {
  instruction_id: number;
  instruction_seq: number;
  result: ExecResult;
}

/**
 * Which checkpoints are kept. The newest always is; of the others, one that any rule asks
 * for. Without `last` and `seconds` all are kept.
 */
export interface Retention {
  /** Those with a label. */
  labelled?: boolean;
  /** This many of the newest. */
  last?: number | null;
  /** Those younger than this. */
  seconds?: number | null;
}

export interface Rollback {
  /** The state after this instruction; null for the beginning. */
  seq: number | null;
}

/** Something shown while an instruction ran. */
export interface Shown {
  /** How many lines of output came before it. */
  after: number;
  data: Record<string, unknown>;
}

export type State = "ready" | "running" | "swapped";

export type Status = "queued" | "running" | "done" | "interrupted" | "cancelled" | "lost";

/** What a check found. */
export interface StoreChecked {
  /** Whether all was looked at. */
  complete: boolean;
  findings: StoreFinding[];
}

export interface StoreFinding {
  /** Machines and templates that need what is damaged. */
  affects: string[];
  code: string;
  mended: boolean;
  what: string;
}

/** What a collection freed. */
export interface StoreFreed {
  bytes: number;
  images: number;
  layers: number;
  packs: number;
}

/** What the store takes. */
export interface StoreStats {
  /** Space on the disk: all of it, and what laid out files take of it. */
  bytes: number;
  cold_packs: number;
  /** What compression saves, and what images save by sharing pages. */
  compressed_bytes: number;
  dead_pages: number;
  dropped_pages: number;
  images: number;
  layer_bytes: number;
  layers: number;
  live_pages: number;
  packs: number;
  shared_bytes: number;
  unreadable_packs: number;
}

export type Stream = "stdout" | "stderr";

export interface Template {
  created_at: string;
  /** Hash of everything it was made from. */
  digest: string;
  /** The image machines start from. */
  image: string;
  /** `python`, later also others. */
  language: string;
  name: string;
  /** The recipe it was built from, as TOML. */
  recipe: string;
  /** Its root file system. */
  root: string;
  /** The language's version. */
  version: string;
}

export interface TemplateList {
  templates: Template[];
}

/** A token as lists show it: never its secret. */
export interface Token {
  account: string;
  created_at: string;
  id: string;
  name?: string | null;
  scopes: string[];
}

export interface TokenList {
  tokens: Token[];
}

/** What to change on a machine; what is absent stays. */
export interface Update {
  durability?: Durability | null;
  /** `null` takes an expiry away. */
  expires_at?: string | null;
  limits?: Limits | null;
  /** Which checkpoints are kept; `null` goes back to the service's rule. */
  retention?: Retention | null;
  /** Replaces all tags. */
  tags?: Record<string, string> | null;
}

/** A variable of a session. */
export interface Var {
  bytes?: number | null;
  kind: string;
  name: string;
  repr: string;
  /** Shape or length, where there is one. */
  shape?: string | null;
}

export interface VarList {
  vars: Var[];
}

export interface VariableDifference {
  change: Change;
  left?: Var | null;
  name: string;
  right?: Var | null;
}

/** What to change on branches; never wider than the machine's own. */
export interface Vary {
  /** Run at once. */
  code?: string | null;
  limits?: Limits;
  /** Added to those of the request. */
  tags?: Record<string, string>;
  /** Variables to set before that, as JSON values. */
  variables?: Record<string, unknown>;
}

export interface Whoami {
  account: string;
  scopes?: string[];
}
