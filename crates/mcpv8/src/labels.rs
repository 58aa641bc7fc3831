//! Labels: movable names of file trees, each with a log of its earlier trees.
//!
//! A label changes only under one lock, and with its log in one transaction, so a push that expects
//! another tree than the current one is rejected and no update is lost. The newest 100 entries of
//! each log are kept.

use crate::V8;
use crate::documents::{EXECUTION, LABEL, LABEL_STEP, RUNNING, SESSION, put};
use crate::error::{Error, Result};
use crate::executions::{ExecutionInfo, shown};
use crate::heaps::SessionHead;
use crate::run::RecordedRun;
use crate::trees::is_id;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_api::Timestamp;
use stasis_machine::DocumentChange;
use std::collections::BTreeSet;

const LONGEST_NAME: usize = 256;
const LONGEST_MESSAGE: usize = 4096;
const MOST_LABELS: usize = 1000;
/// Maximum entries of a label's log.
const KEPT_STEPS: u64 = 100;
/// Executions whose trees are kept.
const KEPT_EXECUTIONS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Label {
    ca_id: String,
    /// Total entries of its log so far.
    steps: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LabelStep {
    /// In milliseconds.
    at: i64,
    from: Option<String>,
    to: String,
    /// `create`, `push` or `reset`.
    op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FsLabel {
    pub name: String,
    /// The tree to name.
    pub ca_id: String,
    pub message: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FsPush {
    pub ca_id: String,
    pub label: Option<String>,
    /// The tree that the label currently names. Without it the label must be new.
    pub expected: Option<String>,
    /// Moves the label regardless of its current tree.
    pub force: Option<bool>,
    /// Moves no label.
    pub detach: Option<bool>,
    pub message: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FsReset {
    pub label: String,
    /// An earlier tree of the label.
    pub ca_id: String,
    /// Also accepts a tree that is not in its log.
    pub allow_unlogged: Option<bool>,
    pub message: Option<String>,
}

fn check_label(name: &str) -> Result<()> {
    let plain = !name.is_empty() && name.len() <= LONGEST_NAME && !is_id(name);
    match plain && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "a label has 1 to {LONGEST_NAME} bytes, no control characters, and is not a tree's id"
        ))),
    }
}

fn check_message(message: Option<&String>) -> Result<()> {
    match message.is_some_and(|message| message.len() > LONGEST_MESSAGE) {
        true => Err(Error::invalid(format!("a message has at most {LONGEST_MESSAGE} bytes"))),
        false => Ok(()),
    }
}

fn step_key(label: &str, index: u64) -> String {
    format!("{label}\0{index:012}")
}

fn unknown(label: &str) -> Error {
    Error::missing(format!("unknown label: {}", shown(label)))
}

/// A validated change of a label.
struct LabelMove<'a> {
    label: &'a str,
    to: String,
    op: &'static str,
    message: Option<String>,
}

impl V8 {
    fn label(&self, account: &str, label: &str) -> Result<Option<Label>> {
        check_label(label)?;
        self.read(account, LABEL, label)
    }

    /// The tree named by an id or a label; none, if there is no such label.
    pub(crate) fn named_tree(&self, account: &str, name: &str) -> Result<Option<String>> {
        match is_id(name) {
            true => self.tree_id(account, name).map(Some),
            false => Ok(self.label(account, name)?.map(|label| label.ca_id)),
        }
    }

    pub fn fs_labels(&self, account: &str) -> Result<Value> {
        let all = self.read_all::<Label>(account, LABEL, "")?.into_iter();
        let one = |(name, label): (String, Label)| json!({ "name": name, "ca_id": label.ca_id });
        Ok(json!({ "labels": all.map(one).collect::<Vec<_>>() }))
    }

    pub fn fs_pull(&self, account: &str, label: &str) -> Result<Value> {
        let found = self.label(account, label)?.ok_or_else(|| unknown(label))?;
        Ok(json!({ "label": label, "ca_id": found.ca_id }))
    }

    pub fn fs_log(&self, account: &str, label: &str, limit: Option<u64>) -> Result<Value> {
        self.label(account, label)?.ok_or_else(|| unknown(label))?;
        let mut log = self.label_steps(account, label)?;
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let log = log.split_off(log.len().saturating_sub(limit));
        Ok(json!({ "label": label, "log": log }))
    }

    fn label_steps(&self, account: &str, label: &str) -> Result<Vec<LabelStep>> {
        let all = self.read_all(account, LABEL_STEP, &format!("{label}\0"))?;
        Ok(all.into_iter().map(|(_, step)| step).collect())
    }

    /// Creates a label, or points it elsewhere.
    pub fn fs_label(&self, account: &str, wanted: FsLabel) -> Result<Value> {
        let FsLabel { name, ca_id, message } = wanted;
        check_message(message.as_ref())?;
        let to = self.tree_id(account, &ca_id)?;
        let _alone = self.shared.labels.lock();
        let now = self.label(account, &name)?;
        let op = if now.is_some() { "reset" } else { "create" };
        self.move_label(account, now, LabelMove { label: &name, to: to.clone(), op, message })?;
        Ok(json!({ "label": name, "ca_id": to }))
    }

    /// Advances a label if it names the expected tree.
    pub fn fs_push(&self, account: &str, wanted: FsPush) -> Result<Value> {
        check_message(wanted.message.as_ref())?;
        let to = self.tree_id(account, &wanted.ca_id)?;
        if wanted.detach.unwrap_or(false) {
            return Ok(json!({ "status": "detached", "ca_id": to }));
        }
        let Some(label) = wanted.label.filter(|label| !label.is_empty()) else {
            return Err(Error::invalid("fs_push needs `label`, or `detach: true`"));
        };
        let force = wanted.force.unwrap_or(false);
        let expected = wanted.expected.filter(|expected| !expected.is_empty());
        let _alone = self.shared.labels.lock();
        let now = self.label(account, &label)?;
        let current = now.as_ref().map(|now| now.ca_id.clone());
        let is_expected = match (&expected, &current) {
            (Some(expected), Some(current)) => expected.eq_ignore_ascii_case(current),
            (expected, current) => expected.is_none() && current.is_none(),
        };
        if !is_expected && !force {
            return Ok(json!({ "status": "rejected", "label": label, "current": current }));
        }
        let op = match (&current, is_expected) {
            (None, _) => "create",
            (Some(_), true) => "push",
            (Some(_), false) => "reset",
        };
        let message = wanted.message;
        self.move_label(account, now, LabelMove { label: &label, to: to.clone(), op, message })?;
        Ok(json!({ "status": "advanced", "label": label, "ca_id": to }))
    }

    /// Points a label back at an earlier tree.
    pub fn fs_reset(&self, account: &str, wanted: FsReset) -> Result<Value> {
        let FsReset { label, ca_id, allow_unlogged, message } = wanted;
        check_message(message.as_ref())?;
        let to = self.tree_id(account, &ca_id)?;
        let _alone = self.shared.labels.lock();
        let now = self.label(account, &label)?.ok_or_else(|| unknown(&label))?;
        let log = self.label_steps(account, &label)?;
        if !allow_unlogged.unwrap_or(false) && !log.iter().any(|step| step.to == to) {
            return Err(Error::invalid(format!(
                "{to} is not in the log of '{}'; pass allow_unlogged to use it anyway",
                shown(&label)
            )));
        }
        let step = LabelMove { label: &label, to: to.clone(), op: "reset", message };
        self.move_label(account, Some(now), step)?;
        Ok(json!({ "label": label, "ca_id": to }))
    }

    /// The caller holds the lock of labels.
    fn move_label(&self, account: &str, now: Option<Label>, step: LabelMove<'_>) -> Result<()> {
        let LabelMove { label, to, op, message } = step;
        if now.is_none() && self.host.documents(account, LABEL, "")?.len() >= MOST_LABELS {
            return Err(Error::new(429, format!("an account has at most {MOST_LABELS} labels")));
        }
        let index = now.as_ref().map_or(0, |now| now.steps);
        let at = Timestamp::now().as_millisecond();
        let from = now.map(|now| now.ca_id);
        let entry = LabelStep { at, from, to: to.clone(), op: op.to_owned(), message };
        let mut changes = vec![
            put(LABEL, label, &Label { ca_id: to, steps: index + 1 })?,
            put(LABEL_STEP, &step_key(label, index), &entry)?,
        ];
        if let Some(old) = index.checked_sub(KEPT_STEPS) {
            let key = step_key(label, old);
            changes.push(DocumentChange::Remove { kind: LABEL_STEP, key });
        }
        Ok(self.host.change_documents(account, changes)?)
    }

    /// Trees that are referenced.
    pub(crate) fn named_trees(&self, account: &str) -> Result<BTreeSet<String>> {
        let labels = self.read_all::<Label>(account, LABEL, "")?;
        let steps = self.read_all::<LabelStep>(account, LABEL_STEP, "")?;
        let sessions = self.read_all::<SessionHead>(account, SESSION, "")?;
        let running = self.read_all::<RecordedRun>(account, RUNNING, "")?;
        let executions = self.read_all::<ExecutionInfo>(account, EXECUTION, "")?;
        let newest = executions.into_iter().rev().take(KEPT_EXECUTIONS);
        let all = labels.into_iter().map(|(_, label)| Some(label.ca_id));
        let all = all.chain(steps.into_iter().map(|(_, step)| Some(step.to)));
        let all = all.chain(sessions.into_iter().map(|(_, session)| session.fs));
        let all = all.chain(running.into_iter().map(|(_, recorded)| recorded.run.fs));
        Ok(all.chain(newest.map(|(_, info)| info.fs)).flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels() {
        assert!(check_label("team/main é").is_ok());
        for odd in ["", "a\0b", "a\nb", &"x".repeat(257), &"a".repeat(64)] {
            assert_eq!(check_label(odd).expect_err("odd").status, 400, "{odd:?}");
        }
        assert!(check_message(Some(&"m".repeat(4096))).is_ok());
        assert!(check_message(Some(&"m".repeat(4097))).is_err());
    }
}
