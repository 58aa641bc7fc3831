//! Errors of machines: a code for programs, a message for people, and a hint.

use crate::files::FileError;
use stasis_api::Problem;
use stasis_secrets::SecretError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("no machine is named `{0}`")]
    NoMachine(String),
    #[error("machine `{machine}` has no instruction {seq}")]
    NoInstruction { machine: String, seq: u64 },
    #[error("`{machine}@{seq}` has no checkpoint")]
    NoCheckpoint { machine: String, seq: u64 },
    #[error(
        "cannot {what} {asked} of `{machine}`: {taken} instructions share one state, because they \
         ran grouped"
    )]
    Shared { what: &'static str, machine: String, asked: usize, taken: usize },
    #[error("{}", too_far(what, *has))]
    TooFar { what: &'static str, has: usize },
    /// The request is in order, and the machine is not in a state for it.
    #[error("{0}")]
    State(String),
    #[error("machine `{machine}` has no artifact {id:?}")]
    NoArtifact { machine: String, id: String },
    #[error("`{place}` has no file `/{path}`")]
    NoFile { place: String, path: String },
    #[error("machine `{0}` has instructions waiting")]
    Waiting(String),
    #[error("no template is named `{0}`")]
    NoTemplate(String),
    #[error("no policy is named `{0}`")]
    NoPolicy(String),
    #[error("no approval has the number {0}")]
    NoApproval(u64),
    #[error("approval {0} cannot be answered: it is {word}", word = .1.word())]
    ApprovalOver(u64, stasis_api::ToolCallState),
    #[error("policy `{0}` is used by {1} machines")]
    PolicyInUse(String, u64),
    #[error("policy `{0}` is the service's own, which applies to all machines")]
    PolicyOfHost(String),
    #[error("policy `{policy}` refuses {what}: {reason}")]
    PolicyRefuses { policy: String, what: String, reason: String },
    #[error("the policy cannot be read: {0}")]
    BadPolicy(#[from] stasis_policy::document::PolicyFault),
    #[error(transparent)]
    Secret(#[from] stasis_secrets::SecretError),
    #[error("template `{0}` is used by {1} machines")]
    TemplateInUse(String, u64),
    #[error("{0}")]
    Invalid(String),
    /// The request has its documented form; only a closer look at its content finds the fault.
    #[error("{0}")]
    Unusable(String),
    #[error("{0} of a branch cannot be more than its machine's")]
    WiderLimit(&'static str),
    #[error(transparent)]
    OutOfRange(#[from] stasis_api::OutOfRange),
    #[error("this host cannot run the machine: {0}")]
    Unfit(String),
    #[error(transparent)]
    Bundle(#[from] stasis_engine::BundleError),
    #[error("this host does not support {0}: {1}")]
    Unsupported(&'static str, &'static str),
    #[error("machine `{0}` already has {1} waiting instructions, the maximum")]
    QueueFull(String, usize),
    #[error("account `{account}` uses {used} {what}; its quota is {most}")]
    OverQuota { account: String, what: &'static str, used: u64, most: u64 },
    #[error("machine `{machine}`: {reason} (policy {policy}, {rule})")]
    BudgetUsed { machine: String, reason: String, policy: String, rule: String },
    #[error("machine `{0}` is being removed")]
    Removed(String),
    #[error("machine `{0}`: its process exited; the machine is back at its last checkpoint")]
    Ended(String),
    #[error("{0}")]
    InUse(String),
    #[error("machine `{machine}`: {what}")]
    Broken { machine: String, what: String },
    #[error("{machine}:{path}: {fault}")]
    File { machine: String, path: String, fault: FileError },
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error(transparent)]
    Engine(#[from] stasis_engine::Error),
    #[error(transparent)]
    Records(#[from] stasis_records::Error),
    #[error(transparent)]
    Template(#[from] stasis_template::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl From<stasis_engine::StoreError> for Error {
    fn from(error: stasis_engine::StoreError) -> Error {
        Error::Engine(error.into())
    }
}

impl From<stasis_engine::fault::Injected> for Error {
    fn from(error: stasis_engine::fault::Injected) -> Error {
        Error::Engine(error.into())
    }
}

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::NoMachine(_) => "machine.not_found",
            Error::NoInstruction { .. } => "instruction.not_found",
            Error::NoCheckpoint { .. } => "checkpoint.not_found",
            Error::Shared { .. } => "checkpoint.shared",
            Error::NoArtifact { .. } => "artifact.not_found",
            Error::NoFile { .. } => "file.not_found",
            Error::Waiting(_) => "machine.busy",
            Error::NoTemplate(_) => "template.not_found",
            Error::NoPolicy(_) => "policy.not_found",
            Error::NoApproval(_) => "approval.not_found",
            Error::ApprovalOver(..) => "approval.over",
            Error::PolicyInUse(..) | Error::PolicyOfHost(_) => "policy.in_use",
            Error::PolicyRefuses { .. } => "policy.refused",
            Error::BadPolicy(_) => "policy.invalid",
            Error::Secret(SecretError::NotFound(_)) => "secret.not_found",
            Error::Secret(SecretError::NoKey(_) | SecretError::KeyFile { .. }) => "secret.no_key",
            Error::Secret(SecretError::NotOpened(_)) => "secret.not_opened",
            Error::Secret(_) => "secret.invalid",
            Error::TemplateInUse(..) => "template.in_use",
            Error::Invalid(_) | Error::Unusable(_) => "request.invalid",
            Error::WiderLimit(_) => "branch.limit",
            Error::TooFar { .. } => "history.too_far",
            Error::State(_) => "machine.state",
            Error::OutOfRange(_) => stasis_api::OutOfRange::CODE,
            Error::Unfit(_) => "import.unfit",
            Error::Bundle(error) => error.code(),
            Error::Unsupported(..) => "request.unsupported",
            Error::QueueFull(..) => "machine.queue_full",
            Error::OverQuota { .. } => "account.over_quota",
            Error::BudgetUsed { .. } => "budget.used_up",
            Error::Removed(_) => "machine.removed",
            Error::Ended(_) => "machine.process_ended",
            Error::InUse(_) => "data.in_use",
            Error::Broken { .. } => "machine.broken",
            Error::File { fault, .. } => fault.code(),
            Error::Io { .. } => "host.io",
            Error::Engine(error) => error.code(),
            Error::Records(error) => error.code(),
            Error::Template(error) => error.code(),
        }
    }

    pub fn problem(&self) -> Problem {
        match self {
            Error::NoMachine(_)
            | Error::NoInstruction { .. }
            | Error::NoCheckpoint { .. }
            | Error::NoArtifact { .. }
            | Error::NoFile { .. }
            | Error::NoPolicy(_)
            | Error::Secret(SecretError::NotFound(_))
            | Error::NoApproval(_)
            | Error::NoTemplate(_) => Problem::NotFound,
            Error::Secret(
                SecretError::NoKey(_) | SecretError::KeyFile { .. } | SecretError::NotOpened(_),
            ) => Problem::Conflict,
            Error::File { fault, .. } => fault.problem(),
            Error::Invalid(_) | Error::OutOfRange(_) => Problem::Invalid,
            Error::Unusable(_) | Error::BadPolicy(_) | Error::Secret(_) | Error::Bundle(_) => {
                Problem::Unprocessable
            }
            // the program holds something that cannot be saved; the service works
            Error::Unfit(_) | Error::Engine(stasis_engine::Error::Refused { .. }) => {
                Problem::Conflict
            }
            Error::Unsupported(..) => Problem::Unsupported,
            Error::QueueFull(..) | Error::OverQuota { .. } => Problem::TooMany,
            Error::Waiting(_) | Error::Shared { .. } => Problem::Conflict,
            Error::TooFar { .. } | Error::State(_) | Error::WiderLimit(_) => Problem::Conflict,
            Error::PolicyInUse(..) | Error::PolicyOfHost(_) | Error::ApprovalOver(..) => {
                Problem::Conflict
            }
            Error::PolicyRefuses { .. } | Error::BudgetUsed { .. } => Problem::Forbidden,
            Error::Engine(stasis_engine::Error::TooLarge(_)) => Problem::TooLarge,
            Error::Removed(_) | Error::InUse(_) | Error::TemplateInUse(..) => Problem::Conflict,
            // caused by its own code
            Error::Ended(_) | Error::Engine(stasis_engine::Error::Gone) => Problem::Conflict,
            Error::Records(
                stasis_records::Error::NameTaken(_) | stasis_records::Error::Removed(_),
            ) => Problem::Conflict,
            Error::Records(stasis_records::Error::NoTemplate(_)) => Problem::NotFound,
            _ => Problem::Internal,
        }
    }

    /// The status on another product's surface. Its clients know few, and take the others for a
    /// failure of the service.
    pub fn surface_status(&self) -> u16 {
        match self.problem() {
            known @ (Problem::NotFound
            | Problem::TooMany
            | Problem::Unavailable
            | Problem::Invalid) => known.status(),
            Problem::Unprocessable => Problem::Invalid.status(),
            _ => Problem::Internal.status(),
        }
    }

    /// The next step for the caller.
    pub fn hint(&self) -> String {
        match self {
            Error::NoMachine(_) => "`stasis machine list` lists the machines",
            Error::NoInstruction { .. } => "`stasis history` lists the instructions",
            Error::NoCheckpoint { .. } => {
                "`stasis history` lists the states; grouped instructions share the state of the \
                 last one, and retention drops old states"
            }
            Error::Shared { .. } => {
                "repeat the call with `grouped` (`--grouped`) to take all of them"
            }
            Error::TooFar { what: "redo", .. } => {
                "redo goes forward over instructions that undo took back, until something new runs"
            }
            Error::TooFar { .. } => {
                "`stasis history` lists the instructions; retention drops old states"
            }
            Error::State(_) => "`stasis tree` shows a machine's ancestors and branches",
            Error::NoArtifact { .. } => "the result of an instruction names its artifacts",
            Error::NoFile { .. } => "list a directory of that state to see its files",
            Error::Waiting(_) => "wait for them to finish, or cancel them",
            Error::NoTemplate(_) => "`stasis template list` lists the templates",
            Error::TemplateInUse(..) => "remove those machines first",
            Error::NoPolicy(_) => "`stasis policy ls` lists policies, `stasis policy set` adds one",
            Error::NoApproval(_) => "`stasis approvals` lists the calls that wait",
            Error::ApprovalOver(..) => "a call is answered once: `stasis approvals --all`",
            Error::PolicyInUse(..) => "give those machines another network, or remove them",
            Error::PolicyOfHost(_) => "remove the setting `policy` of the service first",
            Error::PolicyRefuses { .. } => "see `stasis policy explain`, or have it changed",
            Error::BudgetUsed { .. } => "raise the budget in the policy, or remove it",
            Error::BadPolicy(_) => "`stasis policy check FILE` checks a file without a service",
            Error::Secret(error) => secret_hint(error),
            Error::Invalid(_) | Error::Unusable(_) | Error::OutOfRange(_) => {
                "/docs of a service shows the fields of each request"
            }
            Error::WiderLimit(_) => "raise the limit of the machine first, or leave this one out",
            Error::Unfit(_) => "import it on a host like the one that exported it",
            Error::Bundle(error) => error.hint(),
            Error::Unsupported(..) => "`stasis doctor` reports what is missing and how to fix it",
            Error::QueueFull(..) => "wait for one to finish, or cancel waiting ones",
            Error::OverQuota { what, .. } => match *what {
                "MB of memory" => "idle machines are being swapped out: try again",
                "instructions" | "MB of code that waits" => {
                    "wait for some to finish, or cancel waiting ones"
                }
                _ => "remove machines you do not need",
            },
            Error::Removed(_) => "create a new one, or use another name",
            Error::Ended(_) => "try again; the machine's log says why it exited",
            Error::InUse(_) => "use the service that has it, stop it, or choose another --data-dir",
            Error::Broken { .. } => "try again: the machine is back at its last checkpoint",
            Error::File { fault, .. } => fault.hint(),
            Error::Io { .. } => "check the permissions and free space of the data directory",
            Error::Engine(error) => error.hint(),
            Error::Records(error) => error.hint(),
            Error::Template(error) => error.hint(),
        }
        .into()
    }
}

fn too_far(what: &str, has: usize) -> String {
    match has {
        0 => format!("there is nothing to {what}"),
        has => format!("cannot {what} more than {has} instructions: there are no others"),
    }
}

stasis_sys::error_context!(Error);

fn secret_hint(error: &SecretError) -> &'static str {
    match error {
        SecretError::NotFound(_) => "`stasis secret ls` lists the secrets",
        SecretError::NoKey(_) | SecretError::KeyFile { .. } => {
            "set STASIS_SECRET_KEY for the service, or give it a home directory to keep a key in"
        }
        SecretError::NotOpened(_) => {
            "start the service with the key it had, or set the secret anew"
        }
        _ => "`stasis secret set --help` shows what a secret has",
    }
}
