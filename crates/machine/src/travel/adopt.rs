//! Adopt: copies chosen variables and files of one state into another machine.
//!
//!   source ─► passing copy ─► pickles ─► host ─► target: one instruction of its log, or nothing
//!
//! Names that the target changed since the two machines parted are conflicts. Without `force`, a
//! conflict copies nothing. Check and copy happen between two instructions of the target. If the
//! process is killed half-way, the target is at its last checkpoint.

use super::carry::FileWrite;
use super::compare::{by_name, same};
use super::read_only::{MAX_FILE, checked};
use super::state_ref::StateRef;
use crate::action::Action;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::host::{Host, fresh_name};
use crate::machine::Machine;
use stasis_api::{Adopted, Conflict, Outcome};
use stasis_engine::fault;
use stasis_engine::{Contents, EntryKind, Image};
use stasis_protocol::Variable;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time a target may be busy before the caller gets an error.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum variables and files of one call.
const MOST: usize = 1000;

/// The variables and files to adopt.
#[derive(Debug, Clone, Default)]
pub struct AdoptSelection {
    pub variables: Vec<String>,
    /// Files, or directories with the files the source changed in them.
    pub files: Vec<String>,
    pub force: bool,
}

/// Everything known before the target is inspected.
pub(crate) struct AdoptPayload {
    from: String,
    variables: Vec<Variable>,
    pickles: Vec<u8>,
    failed: BTreeMap<String, String>,
    files: Vec<Item>,
    base: Option<(Vec<Variable>, Image)>,
    source: Image,
    force: bool,
}

/// A file of the source, as it should be in the target.
struct Item {
    path: String,
    kind: ItemKind,
}

enum ItemKind {
    File { mode: u32, bytes: Vec<u8> },
    Link(String),
    Gone,
}

impl Host {
    /// Adopts variables and files of a state into a machine.
    pub fn adopt(
        self: &Arc<Host>,
        target: &Arc<Machine>,
        from: &StateRef,
        wanted: AdoptSelection,
    ) -> Result<Adopted> {
        if wanted.variables.is_empty() && wanted.files.is_empty() {
            return Err(Error::Invalid("name the variables or files to adopt".into()));
        }
        if wanted.variables.len() > MOST {
            return Err(Error::Invalid(format!("one call adopts at most {MOST} variables")));
        }
        let parcel = Arc::new(self.parcel(target, from, wanted)?);
        let end = Instant::now() + PATIENCE;
        loop {
            let parcel = parcel.clone();
            let tried = target.request(|reply| Action::Adopt(parcel, reply));
            match tried {
                Err(Error::Waiting(_)) if Instant::now() < end => target.settle()?,
                other => return other,
            }
        }
    }

    fn parcel(
        &self,
        target: &Arc<Machine>,
        from: &StateRef,
        wanted: AdoptSelection,
    ) -> Result<AdoptPayload> {
        let now = self.place(target, None)?;
        let base = self.base(from, &now)?;
        let base = match base {
            Some(base) => Some((self.vars_at(&base)?, base.image)),
            None => None,
        };
        let mut parcel = AdoptPayload {
            from: from.address().to_string(),
            variables: Vec::new(),
            pickles: Vec::new(),
            failed: BTreeMap::new(),
            files: Vec::new(),
            base,
            source: from.image.clone(),
            force: wanted.force,
        };
        self.pack_variables(&mut parcel, from, wanted.variables)?;
        self.pack_files(&mut parcel, from, &wanted.files)?;
        Ok(parcel)
    }

    fn pack_variables(
        &self,
        parcel: &mut AdoptPayload,
        from: &StateRef,
        names: Vec<String>,
    ) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let mut copy = self.read_only(from)?;
        let all = copy.vars()?;
        let path = format!("tmp/.adopt-{}", fresh_name());
        let (saved, failed) = copy.save(names, format!("/{path}"))?;
        parcel.failed.extend(failed);
        if saved.is_empty() {
            return Ok(());
        }
        let image = copy.capture(self, &from.machine.account())?;
        let lost = || Error::Invalid("the source wrote no pickles".into());
        parcel.pickles = self.contents(&image)?.read(&path, MAX_FILE)?.ok_or_else(lost)?;
        parcel.variables = all.into_iter().filter(|var| saved.contains(&var.name)).collect();
        // a variable that is not listed can still be copied
        for name in saved.iter().filter(|name| parcel.variables.iter().all(|v| v.name != **name)) {
            parcel.failed.insert(name.clone(), "it is not a variable of the session".into());
        }
        Ok(())
    }

    fn pack_files(
        &self,
        parcel: &mut AdoptPayload,
        from: &StateRef,
        wanted: &[String],
    ) -> Result<()> {
        let contents = self.contents(&from.image)?;
        let before = parcel.base.as_ref().map(|(_, image)| self.contents(image)).transpose()?;
        let mut room = MAX_FILE;
        for path in wanted {
            let path = checked(path)?;
            let inside = below(&contents, before.as_ref(), &path)?;
            if inside.is_empty() {
                parcel.failed.insert(path.clone(), "there is no such file".into());
            }
            for path in inside {
                match item(&contents, &path, &mut room)? {
                    Some(kind) => parcel.files.push(Item { path, kind }),
                    None => {
                        parcel.failed.insert(path, "it is neither a file nor a link".into());
                    }
                }
            }
        }
        match parcel.files.len() > MOST {
            true => Err(Error::Invalid(format!("one call adopts at most {MOST} files"))),
            false => Ok(()),
        }
    }
}

/// The file at a path; for a directory, the files the source changed in it since the base.
fn below(contents: &Contents<'_>, base: Option<&Contents<'_>>, path: &str) -> Result<Vec<String>> {
    let is_dir = contents.entry(path).is_some_and(|entry| entry.kind == EntryKind::Directory);
    let inside = |one: &str| one.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    if !is_dir {
        let known =
            contents.entry(path).is_some() || base.is_some_and(|base| base.entry(path).is_some());
        return Ok(if known { vec![path.to_owned()] } else { Vec::new() });
    }
    let changed: Vec<String> = match base {
        Some(base) => base.differences(contents)?.into_iter().map(|(path, _)| path).collect(),
        None => contents.own().into_iter().map(|entry| entry.path).collect(),
    };
    Ok(changed.into_iter().filter(|one| path.is_empty() || inside(one)).collect())
}

fn item(contents: &Contents<'_>, path: &str, room: &mut u64) -> Result<Option<ItemKind>> {
    let Some(entry) = contents.entry(path) else { return Ok(Some(ItemKind::Gone)) };
    Ok(match entry.kind {
        EntryKind::File => {
            let bytes = contents.read(path, *room)?.unwrap_or_default();
            *room -= bytes.len() as u64;
            Some(ItemKind::File { mode: entry.mode, bytes })
        }
        EntryKind::Symlink(target) => Some(ItemKind::Link(target)),
        EntryKind::Directory | EntryKind::Other => None,
    })
}

impl Driver {
    pub(crate) fn adopt(&mut self, parcel: &AdoptPayload) -> Result<Adopted> {
        if self.machine.work().queue.waiting() > 0 {
            return Err(Error::Waiting(self.machine.name().to_string()));
        }
        let mut adopted = Adopted { failed: parcel.failed.clone(), ..Adopted::default() };
        adopted.conflicts = self.variable_conflicts(parcel)?;
        adopted.conflicts.extend(self.file_conflicts(parcel)?);
        let nothing = parcel.variables.is_empty() && parcel.files.is_empty();
        if nothing || (!adopted.conflicts.is_empty() && !parcel.force) {
            return Ok(adopted);
        }
        let names = parcel.variables.iter().map(|var| var.name.as_str());
        let paths = parcel.files.iter().map(|item| item.path.as_str());
        let all: Vec<&str> = names.chain(paths).collect();
        let words = format!("adopted from {}: {}", parcel.from, all.join(", "));
        let code = self.machine.language().comment(&words);
        self.note(code, |driver, seq| driver.take(seq, parcel, adopted))
    }

    fn take(
        &mut self,
        seq: u64,
        parcel: &AdoptPayload,
        mut adopted: Adopted,
    ) -> Result<(Adopted, Outcome)> {
        adopted.seq = Some(seq);
        if !parcel.variables.is_empty() {
            let path = format!("tmp/.adopt-{}", fresh_name());
            let bytes = parcel.pickles.as_slice();
            self.put(&FileWrite::File { path: &path, mode: 0o600, bytes })?;
            let (names, failed) = self.load(format!("/{path}"))?;
            fault::point("adopt.carried")?;
            adopted.variables = names;
            adopted.failed.extend(failed);
            self.put(&FileWrite::Nothing { path: &path })?;
        }
        for Item { path, kind } in &parcel.files {
            let put = match kind {
                ItemKind::File { mode, bytes } => FileWrite::File { path, mode: *mode, bytes },
                ItemKind::Link(target) => FileWrite::Link { path, target },
                ItemKind::Gone => FileWrite::Nothing { path },
            };
            match self.put(&put) {
                Ok(()) => adopted.files.push(path.clone()),
                // the machine itself was removed: nothing of this applies
                Err(error) if self.live.is_none() => return Err(error),
                Err(error) => {
                    adopted.failed.insert(path.clone(), error.to_string());
                }
            }
        }
        let outcome = Outcome { touched: adopted.variables.clone(), ..Outcome::default() };
        Ok((adopted, outcome))
    }

    fn variable_conflicts(&mut self, parcel: &AdoptPayload) -> Result<Vec<Conflict>> {
        if parcel.variables.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.variables()?;
        let now = by_name(&now);
        let base = parcel.base.as_ref().map(|(vars, _)| by_name(vars));
        let clashes = |source: &&Variable| {
            let here = now.get(source.name.as_str()).copied();
            let before = base.as_ref().map(|base| base.get(source.name.as_str()).copied());
            clash(here, before, source)
        };
        let found = parcel.variables.iter().filter(clashes);
        Ok(found.map(|source| conflict("variable", &source.name, &parcel.base)).collect())
    }

    fn file_conflicts(&mut self, parcel: &AdoptPayload) -> Result<Vec<Conflict>> {
        if parcel.files.is_empty() {
            return Ok(Vec::new());
        }
        let (held, _) = self.current_image()?;
        let image = self.host.look_into(&held)?;
        let engine = &self.host.engine;
        let now = engine.contents(&image)?;
        let source = engine.contents(&parcel.source)?;
        // the differences to the source, and the target's changes since they parted
        let differs = names(now.differences(&source)?);
        let changed = match &parcel.base {
            Some((_, base)) => names(engine.contents(base)?.differences(&now)?),
            None => now.own().into_iter().map(|entry| entry.path).collect(),
        };
        let clashes = |item: &&Item| differs.contains(&item.path) && changed.contains(&item.path);
        let found = parcel.files.iter().filter(clashes);
        Ok(found.map(|item| conflict("file", &item.path, &parcel.base)).collect())
    }
}

fn names<T>(list: Vec<(String, T)>) -> std::collections::HashSet<String> {
    list.into_iter().map(|(path, _)| path).collect()
}

/// Whether adopting a variable would overwrite a later change of the target. `before` is absent if
/// the two machines have no common ancestor.
fn clash(here: Option<&Variable>, before: Option<Option<&Variable>>, source: &Variable) -> bool {
    let equal = |one: Option<&Variable>, other: Option<&Variable>| match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => same(one, other) == Some(true),
        _ => false,
    };
    if here.is_none() && before.is_none_or(|before| before.is_none()) {
        return false;
    }
    !equal(here, Some(source)) && before.is_none_or(|before| !equal(here, before))
}

fn conflict<T>(kind: &str, name: &str, base: &Option<T>) -> Conflict {
    let why = match base {
        Some(_) => "it was changed here since the two machines parted",
        None => "the name exists here, and the two machines have no common ancestor",
    };
    Conflict { kind: kind.into(), name: name.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn var(digest: &str) -> Variable {
        Variable { digest: Some(digest.into()), ..Variable::default() }
    }

    #[test]
    fn what_clashes() {
        let (a, b, c) = (var("a"), var("b"), var("c"));
        // unchanged here, changed there; changed here to the same; new there
        assert!(!clash(Some(&a), Some(Some(&a)), &b));
        assert!(!clash(Some(&b), Some(Some(&a)), &b));
        assert!(!clash(None, Some(None), &b));
        assert!(!clash(None, None, &b));
        // both changed it; new on both sides; removed here; no common ancestor
        assert!(clash(Some(&c), Some(Some(&a)), &b));
        assert!(clash(Some(&c), Some(None), &b));
        assert!(clash(None, Some(Some(&a)), &b));
        assert!(clash(Some(&c), None, &b));
    }
}
