//! Merges two file trees with a common base: by path, and by line where both sides changed a text.
//!
//! Paths that cannot be merged are conflicts, and then there is no result; with `prefer`, that side
//! wins them. The trees are untrusted: texts are merged by line only up to bounds, and conflict as
//! a whole beyond them.

use crate::V8;
use crate::error::{Error, Result};
use crate::executions::shown;
use crate::trees::{TreeEntry, WorkTree};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum size of a text merged by lines, and of the lines of all texts in one merge.
const LONGEST_TEXT: u64 = 128 << 10;
const MOST_LINES: usize = 4000;
const ALL_LINES: usize = 50_000;
/// Maximum reported conflicts, and bytes of their texts.
const MOST_CONFLICTS: usize = 1000;
const ALL_TEXT: usize = 2 << 20;
const SQLITE: &[u8] = b"SQLite format 3\0";

#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FsMerge {
    /// A tree's id, or a label.
    pub ours: String,
    pub theirs: String,
    /// The tree both came from. By default an empty one.
    pub base: Option<String>,
    /// Which side wins conflicts: `ours` or `theirs`.
    pub prefer: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Conflict {
    path: String,
    base: Option<String>,
    ours: Option<String>,
    theirs: Option<String>,
    /// `text`, `binary`, `sqlite` or `modify/delete`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    markers: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff_ours: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff_theirs: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
}

/// One path on all sides.
#[derive(Clone, Copy)]
struct Three<'a> {
    base: Option<&'a TreeEntry>,
    ours: Option<&'a TreeEntry>,
    theirs: Option<&'a TreeEntry>,
}

impl<'a> Three<'a> {
    /// The version both sides agree on, if any.
    fn agreed(&self) -> Option<Option<&'a TreeEntry>> {
        match self {
            Three { ours, theirs, .. } if ours == theirs => Some(*ours),
            Three { base, ours, theirs } if ours == base => Some(*theirs),
            Three { base, ours, theirs } if theirs == base => Some(*ours),
            _ => None,
        }
    }

    fn of(&self, side: Side) -> Option<&'a TreeEntry> {
        if side == Side::Ours { self.ours } else { self.theirs }
    }

    fn conflict(&self, path: &str, kind: &'static str) -> Conflict {
        let content = |entry: Option<&TreeEntry>| entry.map(|entry| entry.content().to_owned());
        let (base, ours, theirs) = (content(self.base), content(self.ours), content(self.theirs));
        let (markers, diff_ours, diff_theirs) = (None, None, None);
        let path = path.to_owned();
        Conflict { path, base, ours, theirs, kind, markers, diff_ours, diff_theirs }
    }
}

/// The result of merging one text.
enum MergedText {
    Clean(String),
    Conflict(Box<Conflict>),
}

/// A merge in progress.
struct Merge<'a> {
    v8: &'a V8,
    account: &'a str,
    prefer: Option<Side>,
    lines: usize,
    text: usize,
    conflicts: Vec<Conflict>,
}

impl V8 {
    pub fn fs_merge(&self, account: &str, wanted: &FsMerge) -> Result<Value> {
        let prefer = match wanted.prefer.as_deref() {
            None | Some("") => None,
            Some("ours") => Some(Side::Ours),
            Some("theirs") => Some(Side::Theirs),
            Some(_) => return Err(Error::invalid("`prefer` is `ours` or `theirs`")),
        };
        let tree = |name: &String| {
            let missing = || Error::missing(format!("unknown label: {}", shown(name)));
            let id = self.named_tree(account, name)?.ok_or_else(missing)?;
            self.tree(account, &id)
        };
        let base = wanted.base.as_ref().filter(|base| !base.is_empty()).map(tree).transpose()?;
        let trees = [base.unwrap_or_default(), tree(&wanted.ours)?, tree(&wanted.theirs)?];
        self.make_room(account)?;
        let _keeping = self.shared.trees.read();
        let (lines, text) = (ALL_LINES, ALL_TEXT);
        let mut merge = Merge { v8: self, account, prefer, lines, text, conflicts: Vec::new() };
        let merged = merge.trees(&trees)?;
        if !merge.conflicts.is_empty() {
            return Ok(json!({ "status": "conflict", "conflicts": merge.conflicts }));
        }
        let id = self.put_tree(account, &merged)?;
        Ok(json!({ "status": "merged", "ca_id": id }))
    }
}

impl Merge<'_> {
    fn trees(&mut self, [base, ours, theirs]: &[WorkTree; 3]) -> Result<WorkTree> {
        let three = |path: &str| Three {
            base: base.0.get(path),
            ours: ours.0.get(path),
            theirs: theirs.0.get(path),
        };
        let mut merged = WorkTree::default();
        let paths: BTreeSet<&String> = ours.0.keys().chain(theirs.0.keys()).collect();
        for path in paths {
            let all = three(path);
            let entry = match (all.agreed(), self.prefer) {
                (Some(entry), _) => entry.cloned(),
                (None, prefer) => match (self.one(path, all)?, prefer) {
                    (Ok(entry), _) => Some(entry),
                    (Err(_), Some(side)) => all.of(side).cloned(),
                    (Err(conflict), None) => {
                        self.note(*conflict);
                        None
                    }
                },
            };
            merged.0.extend(entry.map(|entry| (path.clone(), entry)));
        }
        // a file of one side may be a directory of the other
        let mut told = None;
        for (above, below) in merged.clashes() {
            match self.prefer.map(|side| three(&above).of(side).is_some()) {
                Some(true) => drop(merged.0.remove(&below)),
                Some(false) => drop(merged.0.remove(&above)),
                None if told.as_ref() == Some(&above) => {}
                None => {
                    self.note(three(&above).conflict(&above, "modify/delete"));
                    told = Some(above);
                }
            }
        }
        Ok(merged)
    }

    fn note(&mut self, mut conflict: Conflict) {
        if self.conflicts.len() >= MOST_CONFLICTS {
            return;
        }
        for text in [&mut conflict.markers, &mut conflict.diff_ours, &mut conflict.diff_theirs] {
            match text.as_ref().map_or(0, String::len) {
                size if size <= self.text => self.text -= size,
                _ => *text = None,
            }
        }
        self.conflicts.push(conflict);
    }

    /// A path that both sides changed.
    fn one(
        &mut self,
        path: &str,
        all: Three<'_>,
    ) -> Result<std::result::Result<TreeEntry, Box<Conflict>>> {
        let (Some(ours), Some(theirs)) = (all.ours, all.theirs) else {
            return Ok(Err(Box::new(all.conflict(path, "modify/delete"))));
        };
        let texts = [all.base, Some(ours), Some(theirs)].map(|entry| self.text(entry));
        let [base, own, other] = texts;
        let (Some(base), Some(own), Some(other)) = (base?, own?, other?) else {
            let is_sqlite = self.is_sqlite(ours)? || self.is_sqlite(theirs)?;
            let kind = if is_sqlite { "sqlite" } else { "binary" };
            return Ok(Err(Box::new(all.conflict(path, kind))));
        };
        match self.lines(path, all, [&base, &own, &other]) {
            MergedText::Conflict(conflict) => Ok(Err(conflict)),
            MergedText::Clean(text) => {
                let blob = self.v8.put_bytes(self.account, text.as_bytes())?;
                let mode =
                    |entry: &TreeEntry| matches!(entry, TreeEntry::File { executable: true, .. });
                let executable = match all.base.map(mode) {
                    Some(before) if mode(ours) == before => mode(theirs),
                    _ => mode(ours),
                };
                Ok(Ok(TreeEntry::File { blob, size: text.len() as u64, executable }))
            }
        }
    }

    fn lines(&mut self, path: &str, all: Three<'_>, [base, ours, theirs]: [&str; 3]) -> MergedText {
        let count = |text: &str| text.lines().count();
        let most = [base, ours, theirs].map(count).into_iter().max().unwrap_or_default();
        let whole = all.conflict(path, "text");
        let Some(left) = self.lines.checked_sub(most).filter(|_| most <= MOST_LINES) else {
            return MergedText::Conflict(Box::new(whole));
        };
        self.lines = left;
        match diffy::merge(base, ours, theirs) {
            Ok(text) => MergedText::Clean(text),
            Err(markers) => MergedText::Conflict(Box::new(Conflict {
                markers: Some(markers),
                diff_ours: Some(diffy::create_patch(base, ours).to_string()),
                diff_theirs: Some(diffy::create_patch(base, theirs).to_string()),
                ..whole
            })),
        }
    }

    /// A side's text; empty, if the file does not exist. None, if it is not text or too long.
    fn text(&self, entry: Option<&TreeEntry>) -> Result<Option<String>> {
        match entry {
            None => Ok(Some(String::new())),
            Some(TreeEntry::File { blob, size, .. }) if *size <= LONGEST_TEXT => {
                let mut bytes = Vec::new();
                self.v8.read_content(self.account, blob, |piece| {
                    bytes.extend_from_slice(piece);
                    Ok(())
                })?;
                Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
            }
            Some(_) => Ok(None),
        }
    }

    fn is_sqlite(&self, entry: &TreeEntry) -> Result<bool> {
        let TreeEntry::File { blob, .. } = entry else { return Ok(false) };
        let mut head = Vec::new();
        self.v8.read_content(self.account, blob, |piece| {
            let left = SQLITE.len().saturating_sub(head.len());
            head.extend_from_slice(&piece[..left.min(piece.len())]);
            Ok(())
        })?;
        Ok(head == SQLITE)
    }
}
