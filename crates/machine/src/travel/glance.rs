//! A passing copy of a state: in memory, in no record, gone when dropped. What is asked of it, and
//! what it does to its files, changes no machine.

use super::place::Place;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::limits::in_engine;
use crate::live::Live;
use stasis_api::{FileKind, FileView, Timestamp};
use stasis_engine::{Contents, Entry, EntryKind, Image, plain_path};
use stasis_protocol::{Order, Reason, Report, Variable};

/// The longest file that is read from a checkpoint.
pub const MAX_FILE: u64 = 256 << 20;

pub struct Glance(Option<Live>);

impl Drop for Glance {
    fn drop(&mut self) {
        if let Some(live) = self.0.take()
            && let Err(error) = live.tree.kill()
        {
            tracing::warn!(%error, "ending a passing copy");
        }
    }
}

impl Host {
    pub(crate) fn glance(&self, place: &Place) -> Result<Glance> {
        let inner = self.inner();
        let mut record = place.machine.record().clone();
        record.head_image = place.image.id.to_string();
        let live = Glance(Some(Live::wake(inner, &record, Reason::Wake, None)?));
        let own = record.made.limits.or(inner.settings.limits);
        if let Some(live) = live.0.as_ref().filter(|_| own != inner.settings.limits) {
            live.tree.set_limits(in_engine(own))?;
        }
        Ok(live)
    }

    /// The variables of a state.
    pub fn vars_at(&self, place: &Place) -> Result<Vec<Variable>> {
        self.glance(place)?.vars()
    }

    /// What is in a directory of a state.
    pub fn files_at(&self, place: &Place, path: &str) -> Result<Vec<FileView>> {
        let contents = self.contents(&place.image)?;
        let path = checked(path)?;
        let missing = || Error::NoFile { place: place.address().to_string(), path: path.clone() };
        let found = contents.list(&path)?.ok_or_else(missing)?;
        Ok(found.iter().map(view).collect())
    }

    /// A file of a state.
    pub fn read_at(&self, place: &Place, path: &str) -> Result<Vec<u8>> {
        let path = checked(path)?;
        let found = self.contents(&place.image)?.read(&path, MAX_FILE)?;
        found.ok_or_else(|| Error::NoFile { place: place.address().to_string(), path })
    }

    pub(crate) fn contents(&self, image: &Image) -> Result<Contents<'_>> {
        Ok(self.inner().engine.contents(image)?)
    }
}

pub fn checked(path: &str) -> Result<String> {
    let odd = || Error::Invalid(format!("{path:?} is no path below a machine's root"));
    plain_path(path).ok_or_else(odd)
}

fn view(entry: &Entry) -> FileView {
    let kind = match entry.kind {
        EntryKind::File => FileKind::File,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::Symlink(_) => FileKind::Symlink,
        EntryKind::Other => FileKind::Other,
    };
    let at = Timestamp::new(entry.mtime_s, entry.mtime_ns as i32);
    FileView {
        path: entry.path.clone(),
        kind,
        size: entry.size,
        mode: entry.mode,
        modified_at: at.unwrap_or(Timestamp::UNIX_EPOCH),
    }
}

impl Glance {
    fn live(&mut self) -> Result<&mut Live> {
        let gone = || Error::Invalid("the passing copy is gone".into());
        self.0.as_mut().ok_or_else(gone)
    }

    pub fn vars(&mut self) -> Result<Vec<Variable>> {
        self.live()?.ask(&Order::Vars, |report| match report {
            Report::Vars { vars } => Some(vars),
            _ => None,
        })
    }

    /// Pickles variables to a file of the copy.
    pub fn save(&mut self, names: Vec<String>, path: String) -> Result<super::carry::Carried> {
        self.live()?.ask(&Order::Save { names, path }, super::carry::carried)
    }

    /// An image of the copy, with what it wrote.
    pub fn capture(&mut self, host: &Host, account: &str) -> Result<Image> {
        Ok(self.live()?.capture(host.inner(), account)?.image)
    }
}
