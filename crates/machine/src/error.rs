//! Errors of machines: a code for programs, a message for people, and a hint.

use crate::files::FileError;
use stasis_api::Problem;

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
    #[error("policy `{0}` is used by {1} machines")]
    PolicyInUse(String, u64),
    #[error("policy `{0}` is the one that the service holds all machines to")]
    PolicyOfHost(String),
    #[error("the policy cannot be read: {0}")]
    BadPolicy(#[from] stasis_policy::document::PolicyFault),
    #[error("template `{0}` is used by {1} machines")]
    TemplateInUse(String, u64),
    #[error("{0}")]
    Invalid(String),
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
            Error::PolicyInUse(..) | Error::PolicyOfHost(_) => "policy.in_use",
            Error::BadPolicy(_) => "policy.invalid",
            Error::TemplateInUse(..) => "template.in_use",
            Error::Invalid(_) | Error::TooFar { .. } => "request.invalid",
            Error::OutOfRange(_) => stasis_api::OutOfRange::CODE,
            Error::Unfit(_) => "import.unfit",
            Error::Bundle(error) => error.code(),
            Error::Unsupported(..) => "request.unsupported",
            Error::QueueFull(..) => "machine.queue_full",
            Error::OverQuota { .. } => "account.over_quota",
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
            | Error::NoTemplate(_) => Problem::NotFound,
            Error::File { fault, .. } => fault.problem(),
            Error::Invalid(_)
            | Error::TooFar { .. }
            | Error::OutOfRange(_)
            | Error::BadPolicy(_)
            | Error::Bundle(_) => Problem::Invalid,
            // what its code holds stands against it: nothing of ours is broken
            Error::Unfit(_) | Error::Engine(stasis_engine::Error::Refused { .. }) => {
                Problem::Conflict
            }
            Error::Unsupported(..) => Problem::Unsupported,
            Error::QueueFull(..) | Error::OverQuota { .. } => Problem::TooMany,
            Error::Waiting(_) | Error::Shared { .. } => Problem::Conflict,
            Error::PolicyInUse(..) | Error::PolicyOfHost(_) => Problem::Conflict,
            Error::Engine(stasis_engine::Error::TooLarge(_)) => Problem::TooLarge,
            Error::Removed(_) | Error::InUse(_) | Error::TemplateInUse(..) => Problem::Conflict,
            // its own code did that
            Error::Ended(_) | Error::Engine(stasis_engine::Error::Gone) => Problem::Conflict,
            Error::Records(
                stasis_records::Error::NameTaken(_) | stasis_records::Error::Removed(_),
            ) => Problem::Conflict,
            Error::Records(stasis_records::Error::NoTemplate(_)) => Problem::NotFound,
            _ => Problem::Internal,
        }
    }

    /// What to do next.
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
            Error::NoArtifact { .. } => "the result of an instruction names its artifacts",
            Error::NoFile { .. } => "list a directory of that state to see its files",
            Error::Waiting(_) => "wait for them to finish, or cancel them",
            Error::NoTemplate(_) => "`stasis template list` lists the templates",
            Error::TemplateInUse(..) => "remove those machines first",
            Error::NoPolicy(_) => {
                "`stasis policy ls` lists the policies; `stasis policy set` adds one"
            }
            Error::PolicyInUse(..) => "give those machines another network, or remove them",
            Error::PolicyOfHost(_) => "remove the setting `policy` of the service first",
            Error::BadPolicy(_) => "`stasis policy check FILE` checks a file without a service",
            Error::Invalid(_) | Error::OutOfRange(_) => {
                "/docs of a service shows the fields of each request"
            }
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

/// Adds to an error of the system what was being done.
pub(crate) trait ErrorContext<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ErrorContext<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
