//! The tools of file trees and their labels: `fs_*`. In a mode without a file store they answer
//! that there is none.

use crate::error::Result;
use crate::label_use::LabelUse;
use crate::tools::{Arguments, Nothing, Reply, answer, parse, plain};
use crate::{FsLabel, FsMerge, FsPush, FsReset, V8, V8Answer, V8Call, V8Result};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub const NO_FS: &str = "filesystem snapshots are not configured; use a mode with a file store (fs \
                         or heap+fs)";

pub const LS: &str = "Labels of file trees, and the trees they name.";
pub const PULL: &str = "The tree a label names.";
pub const LABEL: &str = "Creates a label for a tree, or points it at another one.";
pub const LOG: &str = "Where a label was, oldest first.";
pub const PUSH: &str = "Advances a label to a tree. Rejected if the label is not at `expected`; \
    without it the label must be new. `force` moves it anyway.";
pub const RESET: &str = "Points a label back at a tree of its log.";
pub const MERGE: &str = "Merges two trees by path and, in texts, by line; the merged tree, or the \
    conflicts.";

#[derive(Deserialize, JsonSchema)]
pub struct OfLabel {
    pub(crate) label: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct LogOf {
    label: String,
    /// Only the newest entries.
    limit: Option<u64>,
}

fn with<T: DeserializeOwned + LabelUse>(
    call: &V8Call,
    arguments: Arguments,
    work: impl FnOnce(&V8, &str, T) -> Result<Value>,
) -> Reply {
    if !call.settings.mode.keeps_files() {
        return Ok(V8Answer::Over(V8Result::failed(plain(NO_FS))));
    }
    let asked: T = parse(arguments)?;
    let setup = call.settings.setup.as_deref();
    let permitted = call.v8.permit(&call.account, setup, &asked);
    Ok(answer(permitted.and_then(|()| work(&call.v8, &call.account, asked)), plain))
}

pub fn ls(call: &V8Call, arguments: Arguments) -> Reply {
    with(call, arguments, |v8, account, Nothing {}| v8.fs_labels(account))
}

pub fn pull(call: &V8Call, arguments: Arguments) -> Reply {
    with(call, arguments, |v8, account, own: OfLabel| v8.fs_pull(account, &own.label))
}

pub fn label(call: &V8Call, arguments: Arguments) -> Reply {
    with(call, arguments, |v8, account, own: FsLabel| v8.fs_label(account, own))
}

pub fn log(call: &V8Call, arguments: Arguments) -> Reply {
    with(call, arguments, |v8, account, own: LogOf| v8.fs_log(account, &own.label, own.limit))
}

pub fn push(call: &V8Call, arguments: Arguments) -> Reply {
    with(call, arguments, |v8, account, own: FsPush| v8.fs_push(account, own))
}

pub fn reset(call: &V8Call, arguments: Arguments) -> Reply {
    with(call, arguments, |v8, account, own: FsReset| v8.fs_reset(account, own))
}

pub fn merge(call: &V8Call, arguments: Arguments) -> Reply {
    with(call, arguments, |v8, account, own: FsMerge| v8.fs_merge(account, &own))
}
