//! States that are not on disk yet: a restore reads their pages from the twins of the capture that
//! is still writing them, or from files that are written and not synced.
//!
//!   capture ─► pause ─► twins ─┬─► UnsavedState ─► restores, as from an image
//!                              └─► pages written ─► image: restores go on from there
//!
//! With twins, the manifest of such a state names a pack that no store has for each of them; the
//! slot of a page is its page number. Without, it is that of the image. If the capture fails, so
//! does every read from then on: a tree that still lacks pages is ended, and one that has them all
//! cannot be captured.

use crate::error::{Error, ErrorContext, Result};
use parking_lot::{Condvar, Mutex};
use stasis_image::model::{PackRef, PageRun};
use stasis_image::{PAGE_SIZE, PackRoot};
use stasis_store::{Image, Pack, Store};
use stasis_sys::PAGE;
use stasis_sys::memory::ProcessMemory;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A captured state before it is on disk.
#[derive(Clone)]
pub struct UnsavedState {
    pub(crate) image: Image,
    pub(crate) pages: Arc<UnsavedPages>,
}

impl UnsavedState {
    /// Waits until it is on disk; its image, or why it has none.
    pub fn saved(&self) -> Result<Image> {
        self.pages.saved()
    }

    /// The image it has become, or `None` while it is being written.
    pub fn image_now(&self) -> Result<Option<Image>> {
        self.pages.image_now()
    }

    /// Whether its files are written: it has the name that its image will have.
    pub fn is_written(&self) -> bool {
        self.pages.twins.is_empty()
    }

    /// Its name: no image on disk has it before this one is saved.
    pub fn id(&self) -> stasis_image::ImageId {
        self.image.id
    }
}

/// The memory of one twin, under the name that the state's manifest has for it.
pub struct TwinMemory {
    /// The pid of its source, in the machine's numbering.
    pub pid: i32,
    pub root: PackRoot,
    pub memory: ProcessMemory,
}

impl TwinMemory {
    pub fn new(pid: i32, memory: &ProcessMemory) -> Result<TwinMemory> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let memory = memory.try_clone().doing(|| "copy a descriptor".into())?;
        let root = PackRoot::of(format!("memory that is in no pack, {number}").as_bytes());
        Ok(TwinMemory { pid, root, memory })
    }

    /// Its reference in a manifest: a pack with a slot for every page of an address space.
    pub fn as_pack(&self) -> PackRef {
        const TOP: u64 = 1 << 47;
        PackRef { root: self.root, pages: TOP / PAGE }
    }
}

enum Place {
    Twins,
    Disk(SavedPages),
    Nowhere(String),
}

struct SavedPages {
    image: Image,
    packs: Vec<Arc<Pack>>,
}

/// The pages of a state that are in no pack yet.
pub struct UnsavedPages {
    twins: Vec<TwinMemory>,
    place: Mutex<Place>,
    changed: Condvar,
}

impl UnsavedPages {
    pub fn of(twins: Vec<TwinMemory>) -> UnsavedPages {
        UnsavedPages { twins, place: Mutex::new(Place::Twins), changed: Condvar::new() }
    }

    /// Whether a pack of the manifest is one of the twins.
    pub fn has(&self, root: PackRoot) -> bool {
        self.twins.iter().any(|twin| twin.root == root)
    }

    /// Fills `buf` with pages from `slot` on, from wherever they are now.
    pub fn read(&self, root: PackRoot, slot: u64, buf: &mut [u8]) -> Result<()> {
        let twin = self.twins.iter().find(|twin| twin.root == root).ok_or(Error::Gone)?;
        if !matches!(*self.place.lock(), Place::Twins) {
            return self.read_saved(twin.pid, slot, buf);
        }
        match twin.memory.read(slot * PAGE, buf) {
            Ok(()) => Ok(()),
            Err(error) => self.read_late(twin.pid, slot, buf, error),
        }
    }

    /// The same after the twin could not be read: of one that has ended, pages may be on disk by
    /// now.
    fn read_late(&self, pid: i32, slot: u64, buf: &mut [u8], error: io::Error) -> Result<()> {
        // read and released: a guard that lives through a match is still held in its arms
        let is_in_twins = matches!(*self.place.lock(), Place::Twins);
        match is_in_twins {
            true => Err(error).doing(|| "read the memory of a twin".into()),
            false => self.read_saved(pid, slot, buf),
        }
    }

    fn read_saved(&self, pid: i32, slot: u64, buf: &mut [u8]) -> Result<()> {
        let (image, packs) = match &*self.place.lock() {
            Place::Disk(saved) => (saved.image.clone(), saved.packs.clone()),
            Place::Nowhere(why) => return Err(lost(why)),
            Place::Twins => return Err(Error::Gone),
        };
        // what no run names was a page of zeros
        buf.fill(0);
        let last = slot + (buf.len() / PAGE_SIZE) as u64;
        let runs = image.manifest.runs_of(pid);
        let first = runs.partition_point(|run| run.end() <= slot);
        for run in runs[first..].iter().take_while(|run| run.page < last) {
            let (from, to) = (run.page.max(slot), run.end().min(last));
            let part: PageRun = run.slice(from, (to - from) as u32);
            let at = (from - slot) as usize * PAGE_SIZE;
            let pack = packs.get(part.pack as usize).ok_or(Error::Gone)?;
            let read = pack.read(part.slot, &mut buf[at..at + part.count as usize * PAGE_SIZE]);
            let root = || pack.root().to_string();
            read.map_err(|source| stasis_store::Error::Pack { root: root(), source })?;
        }
        Ok(())
    }

    /// Waits until the state is on disk.
    pub fn saved(&self) -> Result<Image> {
        let mut place = self.place.lock();
        while matches!(*place, Place::Twins) {
            self.changed.wait(&mut place);
        }
        drop(place);
        self.image_now()?.ok_or(Error::Gone)
    }

    pub fn image_now(&self) -> Result<Option<Image>> {
        match &*self.place.lock() {
            Place::Twins => Ok(None),
            Place::Disk(saved) => Ok(Some(saved.image.clone())),
            Place::Nowhere(why) => Err(lost(why)),
        }
    }

    fn now_at(&self, place: Place) {
        *self.place.lock() = place;
        self.changed.notify_all();
    }
}

fn lost(why: &str) -> Error {
    Error::Unfit(format!("the state it starts from was not saved: {why}"))
}

/// The promise of a capture to say what became of a state that it has shown.
pub struct SavePromise(Arc<UnsavedPages>);

impl SavePromise {
    pub fn of(pages: &Arc<UnsavedPages>) -> SavePromise {
        SavePromise(pages.clone())
    }

    /// The state has an image: its pages are read from there, and the twins may end.
    pub fn saved(&self, store: &Store, image: &Image) {
        if self.0.twins.is_empty() {
            // its packs are read by their own names
            return self.0.now_at(Place::Disk(SavedPages { image: image.clone(), packs: vec![] }));
        }
        let packs = image.manifest.meta.packs.iter().map(|pack| store.pack(pack.root));
        self.0.now_at(match packs.collect::<std::result::Result<Vec<_>, _>>() {
            Ok(packs) => Place::Disk(SavedPages { image: image.clone(), packs }),
            Err(error) => Place::Nowhere(error.to_string()),
        });
    }

    pub fn failed(&self, why: &Error) {
        self.0.now_at(Place::Nowhere(why.to_string()));
    }
}

impl Drop for SavePromise {
    fn drop(&mut self) {
        if matches!(*self.0.place.lock(), Place::Twins) {
            self.0.now_at(Place::Nowhere("the capture ended early".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// The capture ends, and with it the twin, between the look where the pages are and the read.
    #[test]
    fn a_read_that_comes_as_the_twin_ends_is_answered() {
        let own = ProcessMemory::open(std::process::id() as i32).expect("own memory");
        let twin = TwinMemory::new(1, &own).expect("a twin");
        let pages = Arc::new(UnsavedPages::of(vec![twin]));
        SavePromise::of(&pages).failed(&Error::Gone);
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let gone = io::Error::from(io::ErrorKind::UnexpectedEof);
            let _ = tell.send(pages.read_late(1, 0, &mut [0; PAGE_SIZE], gone));
        });
        let answer = told.recv_timeout(Duration::from_secs(10)).expect("no read waits for itself");
        assert!(answer.expect_err("lost").to_string().contains("was not saved"));
    }
}
