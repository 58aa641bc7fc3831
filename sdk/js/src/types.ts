/**
 * Types of requests and responses, from the OpenAPI document. Times are RFC 3339.
 *
 * Written by `python3 sdk/generate`; change the document instead.
 *
 * @module
 */

export interface Accepted {
  instruction_seq: number;
  /** Whether another instruction was interrupted for it. */
  interrupted: boolean;
  machine: Name;
}

export type Address = string;

/** Variables and files to copy from another machine. */
export interface AdoptRequest {
  /**
   * Files, or directories with every file that the machine changed in them; relative paths
   * start at the machine's home.
   */
  files?: string[];
  /** Overwrite variables and files that both sides changed since their common ancestor. */
  force?: boolean;
  /** The machine or checkpoint to copy from. */
  from: string;
  variables?: string[];
}

/** The result of an adoption. */
export interface Adopted {
  /**
   * Variables and files that both sides changed. Without `force`, a conflict prevents the
   * adoption.
   */
  conflicts: Conflict[];
  /** Variables and files that could not be copied, and why. */
  failed: Record<string, string>;
  files: string[];
  /** The log entry of the adoption; absent if nothing was copied. */
  seq?: number | null;
  variables: string[];
}

/** An ancestor. */
export interface Ancestor {
  machine: Name;
  /** Whether the machine was deleted. */
  removed?: boolean;
  /** The checkpoint that the branch started from; absent if nothing had run before it. */
  seq?: number | null;
}

/** An answer to a call that waits. */
export interface ApprovalAnswer {
  /** `allow` or `deny`. */
  answer: ApprovalChoice;
  /** A sentence for the code, at most 1000 characters: the error of a denied call contains it. */
  note?: string | null;
}

export type ApprovalChoice = "allow" | "deny";

export interface ApprovalList {
  /** Calls that a person was asked about, the newest first. */
  approvals: ToolCall[];
}

/** A value too large for a result. It is kept as long as its machine. */
export interface Artifact {
  /** Whether it was truncated at the largest size that is kept. */
  cut?: boolean;
  /** Identifies the contents; read them at `/v1/machine/{name}/artifact/{id}`. */
  id: string;
  /** MIME type. */
  kind: string;
  /** The source: `output` (both streams, in order), `value`, or `display`. */
  name: string;
  /** Size in bytes. */
  size: number;
}

export interface ArtifactList {
  artifacts: Kept[];
}

/** The result of one branch. */
export interface BranchEnd {
  /** Why it could not run. */
  error?: ErrorBody | null;
  /** The branch's position in the request. */
  index: number;
  instruction?: Instruction | null;
  machine: Name;
  /** Output lines. */
  output?: Chunk[];
}

/** A line in the stream of a branch request. */
export type BranchLine =
  | {
    machines: Machine[];
    type: string;
  }
  | {
    /** Why it could not run. */
    error?: ErrorBody | null;
    /** The branch's position in the request. */
    index: number;
    instruction?: Instruction | null;
    machine: Name;
    /** Output lines. */
    output?: Chunk[];
    type: string;
  }
  | {
    type: string;
  };

export interface BranchRequest {
  /** The number of branches; by default as many as there are names, or one. */
  count?: number | null;
  names?: Name[];
  /** Network access of the branches; the machine's, if absent. */
  network?: Network | null;
  /** Reseed the program's own random generators. */
  reseed?: boolean;
  /** Start from the state after this instruction; by default, the current state. */
  seq?: number | null;
  /** Stream a line of JSON as each branch ends, instead of one answer for all. */
  stream?: boolean;
  /** Added to the machine's tags. */
  tags?: Record<string, string>;
  /** Time limit of each branch. Absent: the service's default. Null: no limit. */
  timeout_seconds?: number | null;
  /** The code and settings of each branch, in order. Branches beyond the end run nothing. */
  vary?: Vary[];
}

export interface Branches {
  /** The results of `vary`. */
  ends?: BranchEnd[];
  machines: Machine[];
}

/**
 * Amounts that are used up, since a policy with this budget applies. Machines that are held
 * to several policies have the lowest of each.
 */
export interface BudgetLimits {
  /** Branches that were made. */
  branches?: number | null;
  /** Processor time. The running instruction is interrupted, and its state kept. */
  cpu_seconds?: number | null;
  /** Instructions that were accepted. */
  instructions?: number | null;
  /** Calls of tools that policies allow or ask about. */
  tool_calls?: number | null;
  /** MiB in both directions together, counted from the start of the service. */
  traffic_mib?: number | null;
}

/** A line of a build's progress. */
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
  /** The recipe as TOML. */
  recipe: string;
}

export interface Cancelled {
  /** Whether the instruction was still waiting. */
  cancelled: boolean;
}

export interface Candidate {
  /** Why it has no score. */
  error?: string | null;
  /** The candidate's position in the request. */
  index: number;
  /** The branch; it was removed unless it won or `keep` is set. */
  machine: Name;
  score?: number | null;
}

export type Change = "added" | "removed" | "changed" | "unknown";

export interface CheckStore {
  /** Repair damaged pages of which another copy exists. */
  repair?: boolean;
}

/** Which instructions have a state of their own. */
export type Checkpoints = "exact" | "grouped";

/** One line of output, without its newline. */
export interface Chunk {
  data: string;
  /** The prompt of code that waits for a line of input; otherwise absent. */
  prompt?: boolean;
  /** Counted from 0 for each instruction, over both streams. */
  seq: number;
  stream: Stream;
}

/** Code as clients send it. */
export interface Code {
  code: string;
  /** Absent: the service's default. Null: no limit. */
  timeout_seconds?: number | null;
}

/** Two machines or checkpoints. */
export interface CompareRequest {
  left: string;
  right: string;
}

/** The differences between two states. */
export interface Comparison {
  /** The common ancestor of both states, if there is one. */
  base?: string | null;
  /** Descriptions of differences omitted because there are too many. */
  cut?: string[];
  files: FileDifference[];
  left: string;
  outputs: OutputDifference[];
  right: string;
  variables: VariableDifference[];
}

export interface Complete {
  code: string;
  /** The cursor's position in characters; the end, if absent. */
  cursor?: number | null;
}

export interface Completions {
  names: string[];
  /** The position in characters where the names begin. */
  start: number;
}

export interface Conflict {
  /** `variable` or `file`. */
  kind: string;
  name: string;
  why: string;
}

/** Disk use of a machine and its checkpoints. */
export interface DiskUse {
  checkpoints: number;
  /** Bytes that deleting this machine would free. */
  own_bytes: number;
  /** Which of them are kept: the machine's rule, or the service's. */
  retention?: Retention;
  /** Bytes that other machines need too. */
  shared_bytes: number;
}

/** When an instruction's answer is sent. */
export type Durability = "memory" | "local";

/** The body of every error. */
export interface ErrorBody {
  /** A stable code for programs, such as `machine.not_found`. */
  code: string;
  /** The next step. */
  hint?: string | null;
  /** The id of the request, as it appears in the logs. */
  id?: string | null;
  /** The failure, and its cause. */
  message: string;
}

/** A change. */
export interface Event {
  /** Details: a path, a template, a parent, or a reason. */
  about?: string | null;
  at: string;
  /** Numbers grow; some may be missing. */
  id: number;
  kind: EventKind;
  machine?: Name | null;
  /** The refused access. */
  refused?: RefusedAccess | null;
  /** The number of the instruction. */
  seq?: number | null;
  /** How the instruction ended. */
  status?: Status | null;
}

export type EventKind = "machine.created" | "machine.updated" | "machine.removed" | "machine.woken" | "machine.swapped" | "machine.pinned" | "machine.fell_back" | "machine.rolled_back" | "machine.redone" | "instruction.queued" | "instruction.started" | "instruction.finished" | "checkpoint.made" | "file.put" | "file.removed" | "template.built" | "template.removed" | "network.refused" | "approval.requested" | "approval.answered" | "policy.changed" | "policy.removed" | "service.started" | "events.missed";

export interface ExecRequest {
  /** Overrides the machine's. */
  checkpoints?: Checkpoints | null;
  /** Overrides the machine's. */
  durability?: Durability | null;
  /** A request with the same key returns the same instruction instead of a second one. */
  idempotency_key?: string | null;
  /** Whether the client answers the code's calls of `input()`. Without it they fail. */
  input?: boolean;
  instruction: Code;
  /** First interrupt the running instruction and cancel those that wait. */
  interrupt?: boolean;
}

export interface ExecResult {
  /** Values too large for the result, kept whole; absent if there are none. */
  artifacts?: Artifact[];
  data?: Picture | null;
  /** The traceback; absent after success. */
  error?: string | null;
  runtime_ms: number;
  /** The repr of the last expression, null if it has no value; absent after a failure. */
  value?: string | null;
}

/** The answer of a machine's policies to a request, and the deciding rule. */
export interface Explanation {
  /** The policy that decides; absent, if no policy does. */
  policy?: string | null;
  /** Why. */
  reason: string;
  /** The rule that decides, such as `network.allow "*.example.com"`. */
  rule?: string | null;
  verdict: PolicyVerdict;
}

/** Candidates to try as branches. */
export interface ExploreRequest {
  candidates: Vary[];
  /** Keep the losing branches and the previous machine; by default they are removed. */
  keep?: boolean;
  /** Prefer lower scores. */
  minimize?: boolean;
  /** Reseed the program's own random generators in each branch. */
  reseed?: boolean;
  /** An expression that scores each branch, in the machine's language; higher is better. */
  score: string;
  /** Start from the state after this instruction; by default, the current state. */
  seq?: number | null;
  /**
   * Time limit of each candidate and of each score. Absent: the service's default. Null: no
   * limit.
   */
  timeout_seconds?: number | null;
}

export interface Explored {
  /** The winner, under the machine's name; absent if no candidate got a score. */
  best?: Machine | null;
  candidates: Candidate[];
  /** The previous machine, under the winner's old name; absent if it was removed. */
  former?: Machine | null;
}

export interface Failure {
  message: string;
  /** The exception's class, or a code such as `machine.out_of_memory`. */
  name: string;
  traceback: string;
}

/** All families. */
export interface Families {
  families: Relative[];
}

export type FileChange = "watching" | "created" | "changed" | "written" | "removed" | "overflowed" | "unwatched" | "swapped" | "gone";

/** Changed files: their numbers and names. */
export interface FileChanges {
  added: number;
  changed: number;
  /** The names of the first ones. */
  names: string[];
  removed: number;
}

export interface FileDifference {
  change: Change;
  /** A unified diff, for text files up to a size limit. */
  diff?: string | null;
  left_size?: number | null;
  path: string;
  right_size?: number | null;
}

/** A change of a watched file. */
export interface FileEvent {
  kind: FileChange;
  /**
   * The path below the watched directory; absent if the watched file or directory itself
   * changed.
   */
  name?: string | null;
}

/** A file's metadata. */
export interface FileInfo {
  kind: FileKind;
  /** Permissions, in octal. */
  mode: string;
  modified_at: string;
  path: string;
  /** Size in bytes. */
  size: number;
  /** Where a symbolic link points. */
  target?: string | null;
}

export type FileKind = "file" | "directory" | "symlink" | "other";

/** A page of a directory, sorted by name. */
export interface FileList {
  files: FileInfo[];
  /** The `cursor` for the next page; null on the last page. */
  next?: string | null;
  path: string;
}

/** A file in a machine or a checkpoint. */
export interface FileView {
  kind: FileKind;
  mode: number;
  modified_at: string;
  /** Absolute path. */
  path: string;
  size: number;
}

export interface FileViews {
  files: FileView[];
}

/** A filter for machines. A machine must match every condition. */
export interface Filter {
  created_after?: string | null;
  created_before?: string | null;
  /** The `next` of the previous page. */
  cursor?: string | null;
  /** The most machines to return; 1000 by default. */
  limit?: number | null;
  memory_mb_max?: number | null;
  /** Bounds on the memory a machine may use. */
  memory_mb_min?: number | null;
  state?: State | null;
  tags?: Record<string, string>;
}

export interface Health {
  status: string;
  /** Whether machines can be created. */
  templates_ready: boolean;
  version: string;
}

export interface History {
  checkpoints: Point[];
}

/** A module that the host fetched for an import. Its bytes are pinned by their hash. */
export interface ImportedModule {
  /** The hash of the fetched data: `sha512-` or `sha256-`, and base64. */
  integrity: string;
  /** Its exact name, such as `npm:left-pad@1.3.0`, or its address. */
  name: string;
}

/** A line of input for code that asked for one. */
export interface InputLine {
  /** The line, without its newline; `null` means end of input. */
  line?: string | null;
}

export interface InputTaken {
  /** Whether the instruction was waiting for a line. */
  taken: boolean;
}

export interface Instruction {
  code: string;
  finished_at?: string | null;
  outcome?: Outcome | null;
  /** The number of output lines. */
  outputs: number;
  queued_at: string;
  receipt?: Receipt | null;
  /** Whether a later rollback undid it. */
  rolled_back?: boolean;
  seq: number;
  started_at?: string | null;
  status: Status;
}

export interface InstructionList {
  instructions: Instruction[];
}

export interface Interrupted {
  /** Whether an instruction was running. */
  interrupted: boolean;
}

/** An artifact and its instruction. */
export interface Kept {
  /** Whether it was truncated at the largest size that is kept. */
  cut?: boolean;
  /** Identifies the contents; read them at `/v1/machine/{name}/artifact/{id}`. */
  id: string;
  /** MIME type. */
  kind: string;
  /** The source: `output` (both streams, in order), `value`, or `display`. */
  name: string;
  /** Size in bytes. */
  size: number;
  seq: number;
}

/** A label for a checkpoint; null removes it. */
export interface LabelRequest {
  /** 1 to 200 bytes. */
  label?: string | null;
  seq: number;
}

/** Resource limits; an absent limit is the template's or the service's default. */
export interface Limits {
  cpus?: number | null;
  disk_mb?: number | null;
  memory_mb?: number | null;
  pids?: number | null;
}

/** A machine's ancestors and branches. */
export interface Lineage {
  /** The ancestors, from the parent to the first machine. */
  ancestors: Ancestor[];
  children: Relative[];
  /** The whole tree, from the oldest ancestor that still exists. */
  tree: Relative;
}

export interface Machine {
  /** The last checkpoint on disk; absent before the first instruction. */
  checkpoint?: Address | null;
  checkpoints?: Checkpoints;
  created_at: string;
  durability: Durability;
  expires_at?: string | null;
  /** Whether instructions run or wait. */
  has_pending_instruction: boolean;
  has_pending_instructions: boolean;
  /** The number of instructions submitted to it. */
  instructions: number;
  limits: Limits;
  /**
   * Acknowledged instructions whose effects were lost with the memory, and why; absent once a
   * later instruction has ended.
   */
  lost?: string | null;
  name: Name;
  /** Network access, effective when the machine next comes into memory. */
  network: Network;
  parent?: Parent | null;
  /** Why the machine cannot leave memory, if it cannot. */
  pinned?: string | null;
  /** The checkpoints to keep, if they differ from the service's rule. */
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
  /** The `cursor` for the next page; null on the last page. */
  next?: string | null;
}

/** A secret that the policies of a machine grant, as its code knows it. */
export interface MachineSecret {
  hosts: string[];
  name: string;
  /** The text that code writes instead of the value. */
  placeholder: string;
  variable: string;
}

export interface MachineSecrets {
  secrets: MachineSecret[];
}

/** A new machine. */
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
  /** `id.secret`: shown only once. */
  token: string;
}

/**
 * 1 to 64 characters of `A-Z a-z 0-9 _ -`, the first a letter or digit; never `new`, which
 * means "create one".
 */
export type Name = string;

/**
 * The addresses that a machine may reach: `none` (loopback only), `open` (addresses outside
 * the host, over TCP and UDP; never the host itself) or `policy:NAME` (those that this
 * policy allows).
 */
export type Network = string;

/** A machine to create. */
export interface NewMachine {
  checkpoints?: Checkpoints;
  durability?: Durability;
  env?: Record<string, string>;
  expires_at?: string | null;
  limits?: Limits;
  /** The same as `limits.memory_mb`. */
  memory_mb?: number | null;
  name?: Name | null;
  /** Network access; the service's default, if absent. */
  network?: Network | null;
  /** The checkpoints to keep; the service's rule, if absent. */
  retention?: Retention | null;
  tags?: Record<string, string>;
  /** The name of a template; the default template, if absent. */
  template?: string | null;
}

export interface NewToken {
  /** The caller's account by default. */
  account?: string | null;
  name?: string | null;
  /** `machines` by default; also `templates`, `tokens`, `host`, `secrets`, `approve`. */
  scopes?: string[] | null;
}

/** OAuth client credentials. */
export interface OauthClient {
  client_id: string;
  client_secret: string;
  /** Seconds before the end of a token at which it is renewed; 30, if absent. */
  refresh_buffer_secs?: number | null;
  scope?: string | null;
  /** Where tokens are obtained: an `https:` or `http:` URL. */
  token_url: string;
}

/** The rule for checkpoints that are neither among the newest nor young. */
export type OlderCheckpoints = "removed" | "thinned" | "all";

/** How an instruction ended. */
export interface Outcome {
  /** The omitted values, kept whole beside the result. */
  artifacts?: Artifact[];
  /** Descriptions of values omitted because they were too large. */
  cut?: string | null;
  /** The value of the last expression in every format it offers. */
  data?: Record<string, unknown> | null;
  error?: Failure | null;
  runtime_ms: number;
  /** Content displayed while the code ran: figures, `display(...)`. */
  shown?: Shown[];
  /** Variables that were bound, unbound or changed in place, as far as the agent can tell. */
  touched?: string[];
  /** The repr of the last expression. */
  value?: string | null;
}

export interface Output {
  code: string;
  /** Output of both streams, possibly truncated. */
  output: string;
  /** The value, or the error's last line. */
  result?: string | null;
  seq: number;
}

/** Instructions since the common ancestor, side by side, where their results differ. */
export interface OutputDifference {
  left?: Output | null;
  right?: Output | null;
}

export interface Outputs {
  chunks: Chunk[];
  /** Whether these are the last. */
  over: boolean;
}

/** The origin of a branch. */
export interface Parent {
  machine: Name;
  /** The checkpoint it started from; absent if the parent had run nothing. */
  seq?: number | null;
}

export interface Picture {
  /** The image in base64. */
  png: string;
}

/** A saved state that the machine can return to. */
export interface Point {
  at: string;
  /** Bytes it added to the store. */
  bytes: number;
  /** The code of that instruction. */
  code: string;
  /** Files changed since the previous checkpoint; absent unless requested. */
  files?: FileChanges | null;
  label?: string | null;
  /** The number of the instruction that produced this state. */
  seq: number;
  /** Variables touched since the previous checkpoint. */
  variables?: string[];
}

/** A named policy of the service. */
export interface Policy {
  changed_at: string;
  document: PolicyDocument;
  name: Name;
}

/**
 * A request, and the answer that is expected. It has one of `fetch`, `import`, `secret`,
 * `tool`, `create`, `file` and `command`.
 */
export interface PolicyCase {
  /** The arguments of `tool`, as the text of a JSON object. */
  arguments?: string | null;
  /** A command of the shell that a client starts. */
  command?: string | null;
  /** A template that a machine is created from. */
  create?: string | null;
  expect: PolicyVerdict;
  /** A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`. */
  fetch?: string | null;
  /** A file that a client uses: `read PATH`, or `write PATH`. */
  file?: string | null;
  /** A module: `npm:`, `jsr:` or `https:`. */
  import?: string | null;
  /** The method of `fetch`; `GET`, if absent. */
  method?: string | null;
  /** A secret and the host that gets it: `NAME@HOST`, or `NAME@HOST:PORT`. */
  secret?: string | null;
  /** A tool: `SERVER.TOOL`. */
  tool?: string | null;
}

/**
 * A policy: what it does not allow is denied. The order of rules does not matter: `deny`
 * beats `ask`, and `ask` beats `allow`. A machine is held to every policy that applies to
 * it, and gets what all of them allow.
 */
export interface PolicyDocument {
  /** What all machines of an account that are held to the policy may use up together. */
  account_budget?: BudgetLimits;
  /** Accounts whose machines are all held to this policy, beside their own. */
  accounts?: string[];
  /** What a machine and all its branches may use up together. */
  budget?: BudgetLimits;
  /**
   * Commands that clients have the service start, such as `git log *`, or `pip install pandas`
   * for an installation of packages. Without this section the policy does not restrict them.
   * Code in a machine starts programs itself, which no such rule prevents.
   */
  commands?: PolicyRules | null;
  /** The purpose of the policy. */
  description?: string | null;
  /**
   * Files that clients read and write through the service, such as `/home/user/*` or `read
   * /etc/hosts`. Without this section the policy does not restrict them. Code in a machine
   * opens its files itself, which no such rule prevents.
   */
  files?: PolicyRules | null;
  /**
   * Requests of HTTP, such as `GET,HEAD api.example.com/v1/*` or `POST *.example.com:8443`. A
   * host with such a rule is connected to; each request is judged by its method and path.
   */
  http?: PolicyRules;
  /**
   * Templates that machines are created from, such as `python` or `team-*`. Without this
   * section the policy does not restrict them; with it, and without rules, it allows none.
   */
  machines?: PolicyRules | null;
  /**
   * Modules that the service fetches for imports, such as `npm:lodash` or `jsr:@std/*`, or the
   * beginning of an `https:` address and `*`.
   */
  modules?: PolicyRules;
  /**
   * Hosts that machines connect to, such as `api.example.com`, `*.example.com:443,8443`,
   * `10.1.0.0/16:5432` or `time.example.com:123/udp`.
   */
  network?: PolicyRules;
  /**
   * Rego, for what the other rules cannot say: package `stasis` with rules `allow`, `ask` and
   * `deny`. They count as rules of this policy. `input` has `subject`, `action` and `object`.
   */
  rego?: string | null;
  /**
   * Secrets that requests of machines carry, such as `GITHUB@api.github.com`, or `GITHUB` for
   * every host that the secret is bound to.
   */
  secrets?: PolicyRules;
  /** Templates whose machines are all held to this policy, beside their own. */
  templates?: string[];
  /** Requests and the expected answers, for `stasis policy test`. */
  test?: PolicyCase[];
  /**
   * Tools that code calls, such as `github.create_issue`, `github.list_*` or
   * `github.create_issue repo=acme/*`.
   */
  tools?: PolicyRules;
  /** How much each machine sends and receives. */
  traffic?: TrafficLimits;
}

export interface PolicyList {
  policies: Policy[];
}

/** Rules of one kind. */
export interface PolicyRules {
  allow?: string[];
  /**
   * A call of a tool waits until a person allows it. Everything else is refused, with the
   * reason that a person has to allow it: the policy has to be changed.
   */
  ask?: string[];
  deny?: string[];
}

export type PolicyVerdict = "allow" | "ask" | "deny";

export interface PromoteRequest {
  /** The machine whose name to take; the parent, if absent. */
  onto?: Name | null;
  /**
   * Remove the machine that had the name, unless it ran an instruction after the branch was
   * made.
   */
  remove?: boolean;
}

/** Two machines that exchanged their names. */
export interface Promoted {
  /** The machine that had the name before, under the branch's old name. */
  former: Machine;
  /** The branch, under its new name. */
  machine: Machine;
  /** Whether that machine was removed. */
  removed?: boolean;
}

/** The machine's state after an instruction. */
export interface Receipt {
  /** The instruction's address. */
  address: Address;
  /** The newest checkpoint on disk when this was written. */
  durable?: Address | null;
  /** Whether the state includes this instruction and all before it. */
  intact: boolean;
  /** Which effects were lost, and why. */
  lost?: string | null;
  /** Modules that the host fetched for the instruction's imports, at most 1000. */
  modules?: ImportedModule[];
  /** Notes for programs: the machine was woken, reseeded, or its sockets were reset. */
  notes?: string[];
}

/** A refused connection, name, import, file or command. */
export interface RefusedAccess {
  /** The requested access, such as `tcp api.example.com:443 (203.0.113.7)`. */
  access: string;
  /** The policy that decided; absent, if the service's own rules did. */
  policy?: string | null;
  reason: string;
  rule?: string | null;
  /** Further refusals of the machine that were not reported because there were too many. */
  unreported?: number;
  verdict: PolicyVerdict;
}

/** A machine with its branches. */
export interface Relative {
  children: Relative[];
  /** The checkpoint of the parent that it started from. */
  from?: number | null;
  machine: Name;
  /** Its last checkpoint. */
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
 * The checkpoints to keep: the newest, those that branches started from, and every
 * checkpoint that one of the rules selects. Without `last` and `seconds` all are kept.
 */
export interface Retention {
  /** Keep those with a label. */
  labelled?: boolean;
  /** Keep this many of the newest. */
  last?: number | null;
  /** The rule for all others. */
  older?: OlderCheckpoints;
  /** Keep those younger than this. */
  seconds?: number | null;
}

export interface Rollback {
  /** Return to the state after this instruction; null means the initial state. */
  seq: number | null;
}

/** A secret without its value. */
export interface Secret {
  changed_at: string;
  hosts: string[];
  kind: SecretKind;
  name: string;
  /** The variable that has the placeholder, in machines whose policy grants the secret. */
  variable: string;
}

export type SecretKind = "value" | "oauth";

export interface SecretList {
  secrets: Secret[];
}

/** A secret to keep. It has either `value` or `oauth`. */
export interface SetSecret {
  /**
   * Hosts whose requests get the value: `api.example.com`, `*.example.com` or `HOST:PORT`.
   * Without a port the value goes out over TLS on port 443 only.
   */
  hosts: string[];
  /** Client credentials; requests get a token that the service obtains with them. */
  oauth?: OauthClient | null;
  /** The value: printable ASCII, at most 16 KiB. It is never shown again. */
  value?: string | null;
}

/** Content displayed while an instruction ran. */
export interface Shown {
  /** The number of output lines before it. */
  after: number;
  data: Record<string, unknown>;
}

export type State = "ready" | "running" | "swapped";

export type Status = "queued" | "running" | "done" | "failed" | "interrupted" | "cancelled" | "lost";

/** How far to undo or redo. */
export interface StepRequest {
  /** Include instructions that share a state with these. Without it, such a step is refused. */
  grouped?: boolean;
  /** The number of instructions; one by default. */
  n?: number | null;
}

/** The result of a check of the store. */
export interface StoreChecked {
  /** Whether everything was checked. */
  complete: boolean;
  findings: StoreFinding[];
}

export interface StoreFinding {
  /** Machines and templates that need the damaged data. */
  affects: string[];
  code: string;
  repaired: boolean;
  what: string;
}

/** The result of a garbage collection. */
export interface StoreFreed {
  bytes: number;
  images: number;
  layers: number;
  packs: number;
}

/** The size of the image store. */
export interface StoreStats {
  /** Disk space in total, and the part of it that extracted files take. */
  bytes: number;
  cold_packs: number;
  /** Bytes saved by compression, and by images that share pages. */
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
  /** The hash of everything it was built from. */
  digest: string;
  /** The image machines start from. */
  image: string;
  /** The language of its instructions, such as `python`. */
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

/** A token without its secret. */
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

/** A call of a tool by an instruction. */
export interface ToolCall {
  answered_at?: string | null;
  /** The account that answered, and the id of its token. */
  answered_by?: string | null;
  /** The arguments as JSON text; of a long one, the beginning. */
  arguments: string;
  called_at: string;
  /** Why there was no result. */
  error?: string | null;
  /** When a call without an answer is denied. */
  expires_at?: string | null;
  finished_at?: string | null;
  id: number;
  machine: Name;
  /** The comment of that person for the code. */
  note?: string | null;
  /** Why: the rule, or the lack of one. */
  reason: string;
  /** The number of the instruction. */
  seq: number;
  server: string;
  state: ToolCallState;
  tool: string;
  /** The answer of the machine's policies. */
  verdict: PolicyVerdict;
}

export interface ToolCallList {
  /** The newest first. */
  calls: ToolCall[];
}

/** How far a call of a tool is. */
export type ToolCallState = "waiting" | "approved" | "running" | "completed" | "failed" | "denied" | "expired" | "cancelled" | "unknown";

/**
 * Limits of one machine's traffic. A machine that is held to several policies has the lowest
 * of each.
 */
export interface TrafficLimits {
  /** TCP connections at once; never more than 256. */
  connections?: number | null;
  /** KiB per second, in both directions together. A faster machine is slowed down. */
  kib_per_s?: number | null;
  /**
   * MiB in both directions together, of a machine and all its branches, since the service
   * started. After that connections are reset, and new ones refused.
   */
  total_mib?: number | null;
}

/** Changes to a machine; absent fields stay as they are. */
export interface Update {
  checkpoints?: Checkpoints | null;
  durability?: Durability | null;
  /** `null` removes the expiry. */
  expires_at?: string | null;
  limits?: Limits | null;
  /** Network access, effective when the machine next comes into memory. */
  network?: Network | null;
  /** The checkpoints to keep; `null` restores the service's rule. */
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
  /** Shape or length, if it has one. */
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

/** Code and settings of one branch. Limits may not exceed the machine's own. */
export interface Vary {
  /** Code to run when the branch starts. */
  code?: string | null;
  limits?: Limits;
  /** Added to the tags of the request. */
  tags?: Record<string, string>;
  /** Variables to set before the code runs, as JSON values. */
  variables?: Record<string, unknown>;
}

export interface Whoami {
  account: string;
  scopes?: string[];
}
