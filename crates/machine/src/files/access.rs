//! Whether a client may use a file: the machine's policies decide, where they have rules about
//! files.
//!
//!   path as written ─► decide ─► opened ─► path that its links led to ─► decide
//!
//! The second question is needed because code in the machine makes the links. Code itself is not
//! asked about: it opens its files without the service. The service's own work on files, such as
//! the trees of mcp-v8's runs, is not a client's.

use super::{FileError, MachineFiles};
use crate::error::{Error, Result};
use crate::machine::Machine;
use stasis_api::RefusedAccess;
use stasis_policy::commands::CommandText;
use stasis_policy::decide::{Access, Decision};
use stasis_policy::files::{FileOperation, FileUse};
use stasis_sys::below;
use std::os::fd::{AsFd, BorrowedFd};

/// Characters of a refused access that its event has.
const LONGEST_TOLD: usize = 500;

/// Who uses a machine's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileUser {
    /// Someone outside, who is held to the machine's policies.
    Client,
    /// The service, for work of its own.
    Service,
}

/// A use of files, for which paths are judged.
#[derive(Clone, Copy)]
pub(super) struct FileAccess<'a> {
    pub machine: &'a Machine,
    pub user: FileUser,
    pub operation: FileOperation,
    /// With everything below the path.
    pub below: bool,
}

impl Machine {
    pub(super) fn reading(&self, user: FileUser) -> FileAccess<'_> {
        FileAccess { machine: self, user, operation: FileOperation::Read, below: false }
    }

    pub(super) fn writing(&self, user: FileUser) -> FileAccess<'_> {
        FileAccess { machine: self, user, operation: FileOperation::Write, below: false }
    }

    /// Whether a client may read a file of an earlier state of the machine. No link is followed
    /// there.
    pub(crate) fn may_read_past(&self, path: &str) -> Result<()> {
        let judged = self.reading(FileUser::Client).judge(path);
        judged.map(drop).map_err(|fault| self.fault(path, fault))
    }

    /// The same for one of many files, without an event.
    pub(crate) fn shows_past(&self, path: &str) -> bool {
        if self.policy_levels().is_empty() {
            return true;
        }
        let path = format!("/{}", path.trim_start_matches('/'));
        let what = FileUse { operation: FileOperation::Read, path: &path, below: false };
        self.decide_inside(&Access::File(what)).is_allowed()
    }

    /// Whether a client may have the service start a command. Commands that code starts itself are
    /// not asked about.
    pub fn may_start(&self, command: CommandText<'_>) -> Result<()> {
        let decision = self.decide_inside(&Access::Command(command));
        if decision.is_allowed() {
            return Ok(());
        }
        let explained = decision.explain();
        self.refuse("command", &command.text(), &decision);
        Err(Error::PolicyRefuses {
            policy: explained.policy.unwrap_or_default(),
            what: "the command".into(),
            reason: explained.reason,
        })
    }

    fn refuse(&self, what: &str, object: &str, decision: &Decision) {
        let explained = decision.explain();
        let access = format!("{what} {object}").chars().take(LONGEST_TOLD).collect();
        self.tell_refused(RefusedAccess {
            access,
            verdict: explained.verdict,
            reason: explained.reason,
            policy: explained.policy,
            rule: explained.rule,
            unreported: 0,
        });
    }
}

impl FileAccess<'_> {
    /// Judges a path; whether a policy has rules about it.
    pub fn judge(&self, path: &str) -> std::result::Result<bool, FileError> {
        let FileAccess { machine, user, operation, below } = *self;
        if user == FileUser::Service {
            return Ok(false);
        }
        let what = FileUse { operation, path, below };
        let decision = machine.decide_inside(&Access::File(what));
        if let Decision::Allow(by) = decision {
            return Ok(by.is_some());
        }
        machine.refuse(&operation.to_string(), path, &decision);
        let explained = decision.explain();
        Err(FileError::Refused { policy: explained.policy, reason: explained.reason })
    }

    /// Judges the place where a path led, and below it a name, if a policy has rules about it.
    pub fn judge_place(
        &self,
        files: &MachineFiles,
        place: BorrowedFd,
        name: Option<&str>,
    ) -> std::result::Result<(), FileError> {
        let found = files.path_of(place)?;
        let path = match name {
            Some(name) => format!("{}/{name}", found.trim_end_matches('/')),
            None => found,
        };
        self.judge(&path).map(drop)
    }
}

impl MachineFiles {
    /// The path of an open file or directory, as the machine names it.
    fn path_of(&self, file: BorrowedFd) -> std::result::Result<String, FileError> {
        let root = below::path_of(self.inside.root.as_fd())?;
        let path = below::path_of(file)?;
        let own = path.strip_prefix(root.trim_end_matches('/'));
        match own.filter(|own| own.is_empty() || own.starts_with('/')) {
            Some("") => Ok("/".into()),
            Some(own) => Ok(own.to_owned()),
            None => Err(FileError::Elsewhere),
        }
    }
}
