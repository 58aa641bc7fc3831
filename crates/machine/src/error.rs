//! What can go wrong with a machine: a code for programs, a sentence for people, and what to do.

use crate::files::Fault;
use stasis_api::Problem;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is no machine named `{0}`")]
    NoMachine(String),
    #[error("machine `{machine}` has no instruction {seq}")]
    NoInstruction { machine: String, seq: u64 },
    #[error("`{machine}@{seq}` has no checkpoint")]
    NoCheckpoint { machine: String, seq: u64 },
    #[error("machine `{machine}` has no artifact {id:?}")]
    NoArtifact { machine: String, id: String },
    #[error("`{place}` has no file `/{path}`")]
    NoFile { place: String, path: String },
    #[error("machine `{0}` has instructions waiting")]
    Waiting(String),
    #[error("there is no template named `{0}`")]
    NoTemplate(String),
    #[error("template `{0}` is used by {1} machines")]
    TemplateInUse(String, u64),
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    OutOfRange(#[from] stasis_api::OutOfRange),
    #[error("the machine does not fit here: {0}")]
    Unfit(String),
    #[error(transparent)]
    Bundle(#[from] stasis_engine::BundleError),
    #[error("{0} is not possible here: {1}")]
    Unsupported(&'static str, &'static str),
    #[error("machine `{0}` has {1} instructions waiting, as many as may wait")]
    QueueFull(String, usize),
    #[error("account `{account}` has {used} {what}, and may have {most}")]
    OverQuota { account: String, what: &'static str, used: u64, most: u64 },
    #[error("machine `{0}` is being removed")]
    Removed(String),
    #[error("machine `{0}`: its process ended; it is back at its last checkpoint")]
    Ended(String),
    #[error("{0}")]
    InUse(String),
    #[error("machine `{machine}`: {what}")]
    Broken { machine: String, what: String },
    #[error("{machine}:{path}: {fault}")]
    File { machine: String, path: String, fault: Fault },
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error(transparent)]
    Engine(#[from] stasis_engine::Error),
    #[error(transparent)]
    Store(#[from] stasis_store::Error),
    #[error(transparent)]
    Template(#[from] stasis_template::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::NoMachine(_) => "machine.not_found",
            Error::NoInstruction { .. } => "instruction.not_found",
            Error::NoCheckpoint { .. } => "checkpoint.not_found",
            Error::NoArtifact { .. } => "artifact.not_found",
            Error::NoFile { .. } => "file.not_found",
            Error::Waiting(_) => "machine.busy",
            Error::NoTemplate(_) => "template.not_found",
            Error::TemplateInUse(..) => "template.in_use",
            Error::Invalid(_) => "request.invalid",
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
            Error::Store(error) => error.code(),
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
            | Error::NoTemplate(_) => Problem::NotFound,
            Error::File { fault, .. } => fault.problem(),
            Error::Invalid(_) | Error::OutOfRange(_) | Error::Bundle(_) => Problem::Invalid,
            // what its code holds stands against it: nothing of ours is broken
            Error::Unfit(_) | Error::Engine(stasis_engine::Error::Refused { .. }) => {
                Problem::Conflict
            }
            Error::Unsupported(..) => Problem::Unsupported,
            Error::QueueFull(..) | Error::OverQuota { .. } => Problem::TooMany,
            Error::Waiting(_) => Problem::Conflict,
            Error::Engine(stasis_engine::Error::TooLarge(_)) => Problem::TooLarge,
            Error::Removed(_) | Error::InUse(_) | Error::TemplateInUse(..) => Problem::Conflict,
            // its own code did that
            Error::Ended(_) | Error::Engine(stasis_engine::Error::Gone) => Problem::Conflict,
            Error::Store(stasis_store::Error::NameTaken(_) | stasis_store::Error::Removed(_)) => {
                Problem::Conflict
            }
            Error::Store(stasis_store::Error::NoTemplate(_)) => Problem::NotFound,
            _ => Problem::Internal,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Error::NoMachine(_) => "`stasis machine list` shows those there are",
            Error::NoInstruction { .. } => "`stasis history` shows those there are",
            Error::NoCheckpoint { .. } => {
                "instructions that follow each other at once share the checkpoint of the last; \
                 `durability: local` keeps one for each"
            }
            Error::NoArtifact { .. } => "the result of an instruction names its artifacts",
            Error::NoFile { .. } => "list a directory of that state to see what it has",
            Error::Waiting(_) => "wait until they are over, or cancel them",
            Error::NoTemplate(_) => "`stasis template list` shows those there are",
            Error::TemplateInUse(..) => "remove those machines first",
            Error::Invalid(_) | Error::OutOfRange(_) => {
                "/docs of a service shows what each request takes"
            }
            Error::Unfit(_) => "import it on a host like the one it comes from",
            Error::Bundle(error) => error.hint(),
            Error::Unsupported(..) => "`stasis doctor` says what is missing, and what mends it",
            Error::QueueFull(..) => "wait for one to end, or cancel what waits",
            Error::OverQuota { what, .. } => match *what {
                "MB of memory" => "machines that do nothing are moved out of memory: try again",
                "instructions" | "MB of code that waits" => {
                    "wait for some to end, or cancel what waits"
                }
                _ => "remove machines that are not needed",
            },
            Error::Removed(_) => "make another one, or use another name",
            Error::Ended(_) => "try again; the log says why it ended",
            Error::InUse(_) => "use the service that has it, end it, or name another --data-dir",
            Error::Broken { .. } => "ask again: the machine is back at its last checkpoint",
            Error::File { fault, .. } => fault.hint(),
            Error::Io { .. } => "look at the data directory: its rights, and room on its disk",
            Error::Engine(error) => error.hint(),
            Error::Store(error) => error.hint(),
            Error::Template(error) => error.hint(),
        }
        .into()
    }
}

/// Adds to an error of the system what was being done.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
