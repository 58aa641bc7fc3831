//! Workspaces: named sandboxes that can be suspended and resumed. Nothing is lost: a suspended one
//! is a swapped-out machine with its state.

use crate::error::{Error, Result};
use crate::sandboxes::{SANDBOX, Spawn};
use crate::views::WorkspaceInfo;
use crate::{Forkd, SUSPENDED, WORKSPACE, check_tag, tag};
use serde::Deserialize;
use stasis_api::Update;
use stasis_machine::Machine;
use std::sync::Arc;

#[derive(Debug, Clone, Deserialize)]
pub struct CreateWorkspace {
    pub name: String,
    pub snapshot_tag: String,
    #[serde(default)]
    pub memory_limit_mib: Option<u64>,
}

impl Forkd {
    fn workspaces(&self, account: &str) -> Vec<Arc<Machine>> {
        let all = self.of_kind(account, SANDBOX).into_iter();
        all.filter(|one| tag(one, WORKSPACE).is_some()).collect()
    }

    fn workspace(&self, account: &str, name: &str) -> Result<Arc<Machine>> {
        let mut all = self.workspaces(account).into_iter();
        let found = all.find(|one| tag(one, WORKSPACE).as_deref() == Some(name));
        found.ok_or_else(|| Error::new(404, format!("workspace {name} not found")))
    }

    fn view(machine: &Arc<Machine>) -> WorkspaceInfo {
        let name = tag(machine, WORKSPACE).unwrap_or_default();
        WorkspaceInfo::of(machine, &name, tag(machine, SUSPENDED).is_some())
    }

    pub fn list_workspaces(&self, account: &str) -> Vec<WorkspaceInfo> {
        self.workspaces(account).iter().map(Forkd::view).collect()
    }

    pub fn create_workspace(&self, account: &str, ask: &CreateWorkspace) -> Result<WorkspaceInfo> {
        check_tag(&ask.name)?;
        check_tag(&ask.snapshot_tag)?;
        let _reserved = self.reserve(account, &format!("workspace {}", ask.name))?;
        if self.workspace(account, &ask.name).is_ok() {
            return Err(Error::new(409, format!("workspace {} already exists", ask.name)));
        }
        let spawn = Spawn {
            snapshot_tag: ask.snapshot_tag.clone(),
            n: 1,
            memory_limit_mib: ask.memory_limit_mib,
            live_fork: false,
        };
        let more = [(WORKSPACE, ask.name.clone())];
        let mut made = self
            .machines(account, &spawn, 1, &more)
            .map_err(|error| Error::new(500, error.message))?;
        Ok(Forkd::view(&made.remove(0)))
    }

    pub fn get_workspace(&self, account: &str, name: &str) -> Result<WorkspaceInfo> {
        Ok(Forkd::view(&self.workspace(account, name)?))
    }

    pub fn suspend_workspace(&self, account: &str, name: &str) -> Result<WorkspaceInfo> {
        let machine = self.workspace(account, name)?;
        if tag(&machine, SUSPENDED).is_some() {
            return Err(Error::new(400, format!("workspace {name} is not running")));
        }
        // saved first: if that fails, it continues unchanged
        self.host.swap(&machine).map_err(Error::during("suspend"))?;
        self.mark(&machine, true)?;
        Ok(Forkd::view(&machine))
    }

    pub fn resume_workspace(&self, account: &str, name: &str) -> Result<WorkspaceInfo> {
        let machine = self.workspace(account, name)?;
        if tag(&machine, SUSPENDED).is_none() {
            return Err(Error::new(400, format!("workspace {name} is already running")));
        }
        self.host.wake(&machine).map_err(Error::during("resume"))?;
        self.mark(&machine, false)?;
        Ok(Forkd::view(&machine))
    }

    fn mark(&self, machine: &Arc<Machine>, suspended: bool) -> Result<()> {
        let mut tags = machine.describe().tags;
        match suspended {
            true => tags.insert(SUSPENDED.to_owned(), "yes".to_owned()),
            false => tags.remove(SUSPENDED),
        };
        let update = Update { tags: Some(tags), ..Update::default() };
        self.host.update(machine, update).map_err(Error::during("workspace"))
    }

    pub fn delete_workspace(&self, account: &str, name: &str) -> Result<()> {
        let machine = self.workspace(account, name)?;
        self.host.remove(&machine).map_err(Error::during("delete"))
    }
}
