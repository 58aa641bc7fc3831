//! Heaps and sessions: keys of 64 hexadecimal digits that name states, their tags, and sessions as
//! sequences of states.
//!
//! A heap exists as long as its machine keeps the checkpoint. An unknown key is an error, never a
//! fresh heap.

use crate::V8;
use crate::documents::{ENTRY, HEAP, SESSION, put};
use crate::error::{Error, Result};
use crate::executions::shown;
use crate::trees::is_id;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stasis_api::Timestamp;
use stasis_machine::{DocumentChange, Machine};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum length of a session's name, in bytes.
const LONGEST_SESSION: usize = 256;
const MOST_TAGS: usize = 64;
const LONGEST_TAG: usize = 1024;
/// Selectable fields of a session's log.
const FIELDS: [&str; 6] = ["index", "input_heap", "output_heap", "output_fs", "code", "timestamp"];

pub type HeapTags = BTreeMap<String, String>;

/// The state a key names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Heap {
    pub machine: String,
    /// The machine's number: a name can move to another machine.
    pub number: i64,
    pub seq: u64,
    #[serde(default)]
    pub tags: HeapTags,
    /// The version of the program that runs code, if the state has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// The position of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionHead {
    entries: u64,
    pub heap: Option<String>,
    #[serde(default)]
    pub fs: Option<String>,
}

/// A completed run of a session.
pub(crate) struct SessionStep<'a> {
    pub session: &'a str,
    pub input: Option<String>,
    pub heap: Option<String>,
    pub fs: Option<String>,
    pub code: &'a str,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEntry {
    pub index: u64,
    pub input_heap: Option<String>,
    pub output_heap: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_fs: Option<String>,
    pub code: String,
    pub timestamp: String,
}

pub(crate) fn fresh_key() -> String {
    hex::encode(stasis_machine::random::<32>())
}

/// The name of a session for a client that gave none.
pub fn fresh_session() -> String {
    crate::executions::fresh_id()
}

fn check_key(key: &str) -> Result<()> {
    match is_id(key) {
        true => Ok(()),
        false => {
            Err(Error::invalid(format!("'{}' is not a heap: keys have 64 hex digits", shown(key))))
        }
    }
}

pub(crate) fn check_session(name: &str) -> Result<()> {
    let plain = !name.is_empty() && name.len() <= LONGEST_SESSION;
    match plain && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "a session's name has 1 to {LONGEST_SESSION} bytes and no control characters"
        ))),
    }
}

pub(crate) fn check_tags(tags: &HeapTags) -> Result<()> {
    let fits = |text: &String| text.len() <= LONGEST_TAG;
    match tags.len() <= MOST_TAGS && tags.iter().all(|(key, value)| fits(key) && fits(value)) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "a heap has at most {MOST_TAGS} tags of {LONGEST_TAG} bytes"
        ))),
    }
}

fn entry_key(session: &str, index: u64) -> String {
    format!("{session}\0{index:012}")
}

impl V8 {
    pub(crate) fn heap(&self, account: &str, key: &str) -> Result<Heap> {
        check_key(key)?;
        let found = self.read(account, HEAP, &key.to_ascii_lowercase())?;
        found.ok_or_else(|| Error::missing(format!("heap '{key}' not found")))
    }

    /// The machine of a heap.
    pub(crate) fn heap_machine(&self, account: &str, heap: &Heap) -> Result<Arc<Machine>> {
        let found = self.host.machine_of(account, &heap.machine).ok();
        let found = found.filter(|machine| machine.number() == heap.number);
        found.ok_or_else(|| {
            Error::missing(format!("the machine `{}` of this heap was removed", heap.machine))
        })
    }

    pub fn heap_tags(&self, account: &str, key: &str) -> Result<HeapTags> {
        Ok(self.heap(account, key)?.tags)
    }

    pub fn set_heap_tags(&self, account: &str, key: &str, tags: HeapTags) -> Result<()> {
        check_tags(&tags)?;
        let heap = Heap { tags, ..self.heap(account, key)? };
        self.put_heap(account, key, &heap)
    }

    /// Removes these tags; all, if none is named.
    pub fn delete_heap_tags(&self, account: &str, key: &str, names: Option<&str>) -> Result<()> {
        let mut heap = self.heap(account, key)?;
        match names {
            None => heap.tags.clear(),
            Some(names) => {
                let names: Vec<_> = names.split(',').map(str::trim).collect();
                heap.tags.retain(|name, _| !names.contains(&name.as_str()));
            }
        }
        self.put_heap(account, key, &heap)
    }

    fn put_heap(&self, account: &str, key: &str, heap: &Heap) -> Result<()> {
        let change = put(HEAP, &key.to_ascii_lowercase(), heap)?;
        Ok(self.host.change_documents(account, vec![change])?)
    }

    /// Heaps that have all of these tags.
    pub fn heaps_with(&self, account: &str, tags: &HeapTags) -> Result<Vec<(String, HeapTags)>> {
        let all = self.read_all::<Heap>(account, HEAP, "")?.into_iter();
        let all = all.map(|(key, heap)| (key, heap.tags));
        let fits = |own: &HeapTags| tags.iter().all(|(key, value)| own.get(key) == Some(value));
        Ok(all.filter(|(_, own)| fits(own)).collect())
    }

    pub fn sessions(&self, account: &str) -> Result<Vec<String>> {
        let all = self.read_all::<SessionHead>(account, SESSION, "")?;
        Ok(all.into_iter().map(|(name, _)| name).collect())
    }

    /// The latest entry of a session; none, if it is empty.
    pub(crate) fn session(&self, account: &str, session: &str) -> Result<Option<SessionHead>> {
        self.read(account, SESSION, session)
    }

    pub fn session_log(&self, account: &str, session: &str) -> Result<Vec<SessionEntry>> {
        let all = self.read_all(account, ENTRY, &format!("{session}\0"))?;
        Ok(all.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The same with selected fields; unknown names are ignored.
    pub fn session_fields(
        &self,
        account: &str,
        session: &str,
        fields: Option<&str>,
    ) -> Result<Vec<Map<String, Value>>> {
        let wanted: Option<Vec<&str>> = fields.map(|list| list.split(',').map(str::trim).collect());
        let is_wanted = |field: &str| {
            FIELDS.contains(&field) && wanted.as_ref().is_none_or(|own| own.contains(&field))
        };
        let select = |entry: SessionEntry| match serde_json::to_value(entry) {
            Ok(Value::Object(all)) => {
                all.into_iter().filter(|(field, _)| is_wanted(field)).collect()
            }
            _ => Map::new(),
        };
        Ok(self.session_log(account, session)?.into_iter().map(select).collect())
    }

    /// The changes that add a state to a session.
    pub(crate) fn session_step(
        &self,
        account: &str,
        step: SessionStep<'_>,
    ) -> Result<Vec<DocumentChange>> {
        let SessionStep { session, input, heap, fs, code } = step;
        let before = self.session(account, session)?.unwrap_or_default();
        let entry = SessionEntry {
            index: before.entries,
            input_heap: input,
            output_heap: heap.clone(),
            output_fs: fs.clone(),
            code: code.to_owned(),
            timestamp: Timestamp::now().to_string(),
        };
        // a run in a mode that keeps only one of them leaves the other unchanged
        let (heap, fs) = (heap.or(before.heap), fs.or(before.fs));
        let now = SessionHead { entries: before.entries + 1, heap, fs };
        Ok(vec![
            put(ENTRY, &entry_key(session, entry.index), &entry)?,
            put(SESSION, session, &now)?,
        ])
    }

    /// Starts a session with the latest heap and files of another. A session with entries is
    /// unchanged.
    pub fn fork_session(&self, account: &str, from: &str, to: &str) -> Result<()> {
        check_session(from)?;
        check_session(to)?;
        if self.session(account, to)?.is_some() {
            return Ok(());
        }
        let found = self.session(account, from)?;
        let SessionHead { heap, fs, .. } =
            found.ok_or_else(|| Error::missing(format!("session '{}' not found", shown(from))))?;
        let step = SessionStep { session: to, input: heap.clone(), heap, fs, code: "" };
        let steps = self.session_step(account, step)?;
        Ok(self.host.change_documents(account, steps)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_names_are_checked() {
        assert!(check_key(&fresh_key()).is_ok());
        for odd in ["", "../../etc/passwd", &"g".repeat(64), &"a".repeat(63)] {
            assert_eq!(check_key(odd).expect_err("no key").status, 400, "{odd}");
        }
        assert!(check_session("thread 7/é").is_ok());
        for odd in ["", "a\0b", "a\nb", &"x".repeat(257)] {
            assert!(check_session(odd).is_err(), "{odd:?}");
        }
    }
}
