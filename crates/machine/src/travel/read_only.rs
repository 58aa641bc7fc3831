//! A read-only restore: a temporary copy of a state in memory, in no record, ended when dropped. It
//! never changes a machine.

use super::state_ref::StateRef;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::live::LiveMachine;
use crate::wake;
use stasis_api::{FileKind, FileView, Timestamp};
use stasis_engine::{ContentEntry, Contents, EntryKind, Image, plain_path};
use stasis_protocol::{Order, Reason, Report, Variable};

/// Maximum size of a file read from a checkpoint.
pub const MAX_FILE: u64 = 256 << 20;

pub struct ReadOnlyRestore(Option<LiveMachine>);

impl Drop for ReadOnlyRestore {
    fn drop(&mut self) {
        if let Some(live) = self.0.take()
            && let Err(error) = live.tree.kill()
        {
            tracing::warn!(%error, "cannot end a read-only restore");
        }
    }
}

impl Host {
    pub(crate) fn read_only(&self, place: &StateRef) -> Result<ReadOnlyRestore> {
        let inner = self.inner();
        let mut record = place.machine.record().clone();
        record.head_image = place.image.id;
        let refused = place.machine.refusal_sink();
        Ok(ReadOnlyRestore(Some(wake::wake(inner, &record, Reason::Wake, None, refused)?)))
    }

    /// The variables of a state.
    pub fn vars_at(&self, place: &StateRef) -> Result<Vec<Variable>> {
        self.read_only(place)?.vars()
    }

    /// The entries of a directory of a state.
    pub fn files_at(&self, place: &StateRef, path: &str) -> Result<Vec<FileView>> {
        let path = checked(path)?;
        place.machine.may_read_past(&format!("/{path}"))?;
        let contents = self.contents(&place.image)?;
        let missing = || Error::NoFile { place: place.address().to_string(), path: path.clone() };
        let found = contents.list(&path)?.ok_or_else(missing)?;
        Ok(found.iter().map(view).collect())
    }

    /// A file of a state.
    pub fn read_at(&self, place: &StateRef, path: &str) -> Result<Vec<u8>> {
        let path = checked(path)?;
        place.machine.may_read_past(&format!("/{path}"))?;
        let found = self.contents(&place.image)?.read(&path, MAX_FILE)?;
        found.ok_or_else(|| Error::NoFile { place: place.address().to_string(), path })
    }

    pub(crate) fn contents(&self, image: &Image) -> Result<Contents<'_>> {
        Ok(self.inner().engine.contents(image)?)
    }
}

pub fn checked(path: &str) -> Result<String> {
    let odd = || Error::Unusable(format!("{path:?} is not a path in a machine"));
    // relative paths mean the same here as for current files of the machine
    let whole = crate::files::absolute(path).map_err(|_| odd())?;
    plain_path(&whole).ok_or_else(odd)
}

fn view(entry: &ContentEntry) -> FileView {
    let kind = match entry.kind {
        EntryKind::File => FileKind::File,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::Symlink(_) => FileKind::Symlink,
        EntryKind::Other => FileKind::Other,
    };
    let at = Timestamp::new(entry.mtime_s, entry.mtime_ns as i32);
    FileView {
        path: format!("/{}", entry.path),
        kind,
        size: entry.size,
        mode: entry.mode,
        modified_at: at.unwrap_or(Timestamp::UNIX_EPOCH),
    }
}

impl ReadOnlyRestore {
    fn live(&mut self) -> Result<&mut LiveMachine> {
        let gone = || Error::Invalid("the temporary copy has exited".into());
        self.0.as_mut().ok_or_else(gone)
    }

    pub fn vars(&mut self) -> Result<Vec<Variable>> {
        self.live()?.ask(&Order::Vars, |report| match report {
            Report::Vars { vars } => Some(vars),
            _ => None,
        })
    }

    /// Pickles variables to a file of the copy.
    pub fn save(
        &mut self,
        names: Vec<String>,
        path: String,
    ) -> Result<super::carry::TransferredNames> {
        self.live()?.ask(&Order::Save { names, path }, super::carry::carried)
    }

    /// An image of the copy, including its writes.
    pub fn capture(&mut self, host: &Host, account: &str) -> Result<Image> {
        Ok(self.live()?.capture(host.inner(), account)?.image)
    }
}
