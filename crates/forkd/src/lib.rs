//! forkd's terms for machines: its snapshots are templates and machines kept for branching, its
//! sandboxes are machines, its workspaces named machines.
//!
//!   routes ─┐
//!           ├─► Forkd ─► Host
//!   tools  ─┘
//!
//! Both surfaces are here, HTTP (`routes`) and MCP (`tools`). `server` and `mcp` only connect them:
//! each implements one trait (`Carrier`, `ToolTable`).
//!
//! forkd's additional data of a machine is in its tags (`forkd.*`). A failure is a status and a
//! message, as its clients expect; statuses are those of the original, also where another would be
//! better.

#![forbid(unsafe_code)]

mod command;
mod error;
mod routes;
mod sandboxes;
mod snapshots;
mod tools;
mod views;
mod workspaces;

pub use command::{Completed, EvalAnswer, Job, SandboxCommand};
pub use error::{Error, Result};
pub use routes::{Carrier, ForkdCaller, ForkdEvent, is_own, routes, routes_alone};
pub use sandboxes::Spawn;
pub use snapshots::{CreateSnapshot, SandboxBranchRequest};
pub use tools::{
    INSTRUCTIONS, Look, Started, ToolEffect, ToolLook, ToolTable, ToolText, ToolWork, tools,
};
pub use views::{Ping, SandboxInfo, SnapshotDetail, SnapshotInfo, WorkspaceInfo};
pub use workspaces::CreateWorkspace;

use parking_lot::{Mutex, MutexGuard};
use stasis_machine::{Host, Machine};
use std::collections::HashSet;
use std::sync::Arc;

/// Branches under way at once.
pub const BRANCHES_AT_ONCE: usize = 64;

/// Tags that mark a machine's role for forkd.
pub(crate) const KIND: &str = "forkd.kind";
pub(crate) const TAG: &str = "forkd.tag";
pub(crate) const FROM: &str = "forkd.from";
pub(crate) const PARENT_TAG: &str = "forkd.parent_tag";
pub(crate) const PAUSE: &str = "forkd.pause_ms";
pub(crate) const DIFF: &str = "forkd.diff_bytes";
pub(crate) const WORKSPACE: &str = "forkd.workspace";
pub(crate) const SUSPENDED: &str = "forkd.suspended";

/// forkd's surface over a host.
#[derive(Clone)]
pub struct Forkd {
    pub(crate) host: Arc<Host>,
    /// Tags that are being made, by account.
    making: Arc<Mutex<HashSet<(String, String)>>>,
}

impl Forkd {
    pub fn new(host: Arc<Host>) -> Forkd {
        Forkd { host, making: Arc::default() }
    }

    /// Machines of an account that are a kind of thing to forkd.
    pub(crate) fn of_kind(&self, account: &str, kind: &str) -> Vec<Arc<Machine>> {
        let mut all = self.host.machines();
        all.retain(|one| one.account() == account && tag(one, KIND).as_deref() == Some(kind));
        all.reverse();
        all
    }

    fn making(&self) -> MutexGuard<'_, HashSet<(String, String)>> {
        self.making.lock()
    }

    /// Branches under way.
    pub fn in_flight(&self) -> usize {
        self.making().len()
    }

    /// A tag for one maker at a time.
    pub(crate) fn reserve(&self, account: &str, tag: &str) -> Result<Reserved<'_>> {
        let mut making = self.making();
        if making.len() >= BRANCHES_AT_ONCE {
            let said = format!(
                "daemon is at its branch concurrency cap ({BRANCHES_AT_ONCE}); retry shortly"
            );
            return Err(Error::new(503, said));
        }
        let key = (account.to_owned(), tag.to_owned());
        if !making.insert(key.clone()) {
            let said = format!("branch for tag '{tag}' is already in progress; wait for it");
            return Err(Error::new(409, said));
        }
        Ok(Reserved { forkd: self, key })
    }
}

pub(crate) struct Reserved<'a> {
    forkd: &'a Forkd,
    key: (String, String),
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.forkd.making().remove(&self.key);
    }
}

pub(crate) fn tag(machine: &Arc<Machine>, key: &str) -> Option<String> {
    machine.describe().tags.get(key).cloned()
}

/// forkd's rule for tags and workspace names.
pub(crate) fn check_tag(tag: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&tag.len()) && tag.chars().all(plain) {
        return Ok(());
    }
    let shown: String = tag.chars().take(80).collect();
    Err(Error::new(400, format!("invalid tag {shown:?}: 1-64 characters of [A-Za-z0-9_-]")))
}
