//! forkd's objects, field by field as its clients know them.

use crate::{DIFF, FROM, PAUSE, TAG, tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_api::{State, TemplateInfo};
use stasis_machine::Machine;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotInfo {
    pub tag: String,
    /// Its location; a name here, not a path.
    pub dir: String,
    pub created_at_unix: u64,
    pub status: String,
    pub bootable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branched_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_physical_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_logical_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxInfo {
    pub id: String,
    pub snapshot_tag: String,
    pub netns: Option<String>,
    /// A placeholder: sandboxes have no address; commands go through the service.
    pub guest_addr: String,
    pub created_at_unix: u64,
    pub pid: Option<u32>,
    pub memory_limit_mib: Option<u64>,
    pub has_branched: bool,
    pub last_branch_memory_path: Option<String>,
    pub branch_count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDetail {
    pub tag: String,
    pub dir: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at_unix: Option<u64>,
    pub memory_logical_bytes: u64,
    pub memory_physical_bytes: u64,
    pub vmstate_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_content_hash: Option<String>,
    pub chain_depth: u64,
    pub dependents: Vec<String>,
    pub ancestors: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceInfo {
    pub id: String,
    pub name: String,
    pub source_snapshot_tag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_state_tag: Option<String>,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_sandbox_id: Option<String>,
    pub created_at_unix: u64,
    pub last_active_unix: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ping {
    pub pong: bool,
    pub numpy_version: String,
    pub pid: u32,
    pub agent_lang: String,
    pub warmup_ready: bool,
}

fn seconds(at: stasis_api::Timestamp) -> u64 {
    u64::try_from(at.as_second()).unwrap_or(0)
}

impl SnapshotInfo {
    pub(crate) fn of_template(template: &TemplateInfo) -> SnapshotInfo {
        SnapshotInfo {
            tag: template.name.clone(),
            dir: format!("template:{}", template.digest),
            created_at_unix: seconds(template.created_at),
            status: "ready".into(),
            bootable: true,
            branched_from: None,
            pause_ms: None,
            diff_ms: None,
            diff_physical_bytes: None,
            diff_logical_bytes: None,
            warning: None,
        }
    }

    pub(crate) fn of_machine(machine: &Arc<Machine>) -> SnapshotInfo {
        let number = |key| tag(machine, key).and_then(|text| text.parse().ok());
        let pause = number(PAUSE);
        SnapshotInfo {
            tag: tag(machine, TAG).unwrap_or_default(),
            dir: format!("machine:{}", machine.name()),
            created_at_unix: seconds(machine.describe().created_at),
            status: "ready".into(),
            bootable: true,
            branched_from: tag(machine, FROM),
            pause_ms: pause,
            diff_ms: pause.filter(|_| number(DIFF).is_some()),
            diff_physical_bytes: number(DIFF),
            diff_logical_bytes: number(DIFF),
            warning: None,
        }
    }
}

impl SandboxInfo {
    pub(crate) fn of(machine: &Arc<Machine>, branches: u32) -> SandboxInfo {
        let view = machine.describe();
        SandboxInfo {
            id: view.name.to_string(),
            snapshot_tag: view.tags.get(TAG).cloned().unwrap_or_default(),
            netns: None,
            guest_addr: "10.42.0.2:8888".into(),
            created_at_unix: seconds(view.created_at),
            pid: (view.state != State::Swapped).then_some(1),
            memory_limit_mib: view.limits.memory_mb,
            has_branched: branches > 0,
            last_branch_memory_path: None,
            branch_count: branches,
        }
    }
}

impl WorkspaceInfo {
    pub(crate) fn of(machine: &Arc<Machine>, name: &str, suspended: bool) -> WorkspaceInfo {
        let view = machine.describe();
        let id = view.name.to_string();
        WorkspaceInfo {
            id: format!("ws-{}", id.chars().take(16).collect::<String>()),
            name: name.to_owned(),
            source_snapshot_tag: view.tags.get(TAG).cloned().unwrap_or_default(),
            current_state_tag: suspended.then(|| format!("ws-{name}-state")),
            status: if suspended { "suspended" } else { "running" }.into(),
            live_sandbox_id: (!suspended).then_some(id),
            created_at_unix: seconds(view.created_at),
            last_active_unix: seconds(view.created_at),
        }
    }
}
