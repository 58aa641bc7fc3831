//! System V IPC objects of a machine.

use serde::{Deserialize, Serialize};

/// Properties of every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcName {
    pub id: i32,
    /// 0 for a private one.
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvMemory {
    pub name: IpcName,
    /// Index of the contents among the segments.
    pub segment: u32,
    /// Removed, and kept only until the last process detaches it.
    pub removed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvSemaphores {
    pub name: IpcName,
    pub values: Vec<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvQueue {
    pub name: IpcName,
    /// Bytes it may hold.
    pub limit: u64,
    /// Type and contents, oldest first.
    pub messages: Vec<(i64, Vec<u8>)>,
}
