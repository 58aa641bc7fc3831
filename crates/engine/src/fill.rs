//! Pages on their way from packs into a clone.
//!
//!   anonymous memory of a tracked root   read while the template forks, installed from outside
//!   everything else                      written to a file that the clone reads
//!
//! All pages are verified before they are used.

use crate::error::{ErrorContext, Result};
use crate::unsaved::UnsavedPages;
use stasis_image::model::{Manifest, PageRun};
use stasis_image::{PAGE_SIZE, PackRoot};
use stasis_store::{Pack, Store};
use stasis_sys::memory::ProcessMemory;
use stasis_sys::{PAGE, libc, uffd};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Where the pages of an image are: in packs, or, while it is being written, in twins as well.
#[derive(Clone, Copy)]
pub struct PageSource<'a> {
    pub store: &'a Store,
    pub unsaved: Option<&'a Arc<UnsavedPages>>,
}

impl PageSource<'_> {
    /// Appends the contents of a run. Pages from a pack are verified.
    fn gather(
        &self,
        manifest: &Manifest,
        run: &PageRun,
        all: &mut Vec<u8>,
        again: bool,
    ) -> Result<()> {
        let root = manifest.meta.packs[run.pack as usize].root;
        let at = all.len();
        all.resize(at + run.count as usize * PAGE_SIZE, 0);
        match self.unsaved.filter(|unsaved| unsaved.has(root)) {
            Some(unsaved) => unsaved.read(root, run.slot, &mut all[at..]),
            None => Ok(self.store.read_pages(root, run.slot, &mut all[at..], again)?),
        }
    }

    /// One of the packs of an image, for a thread of its own.
    pub fn pack(&self, root: PackRoot) -> Result<FillPack> {
        match self.unsaved.filter(|unsaved| unsaved.has(root)) {
            Some(unsaved) => Ok(FillPack::Unsaved(unsaved.clone(), root)),
            None => Ok(FillPack::Saved(self.store.readable_pack(root)?)),
        }
    }
}

/// A pack that memory is filled from on demand.
pub enum FillPack {
    Saved(Arc<Pack>),
    Unsaved(Arc<UnsavedPages>, PackRoot),
}

impl FillPack {
    pub fn read(&self, slot: u64, bytes: &mut [u8]) -> Result<()> {
        match self {
            FillPack::Unsaved(unsaved, root) => unsaved.read(*root, slot, bytes),
            FillPack::Saved(pack) => Ok(pack.read(slot, bytes).map_err(|source| {
                stasis_store::Error::Pack { root: pack.root().to_string(), source }
            })?),
        }
    }
}

/// Whether reading pages takes so long that something else should be done meanwhile.
pub fn is_much(fills: &[PageRun]) -> bool {
    const MUCH: u64 = 1 << 20;
    fills.iter().map(|run| u64::from(run.count) * PAGE).sum::<u64>() >= MUCH
}

/// Writes pages for a clone to read, verified, one after another.
pub fn write_fills(
    source: PageSource,
    manifest: &Manifest,
    fills: &[PageRun],
    mut file: &File,
) -> Result<()> {
    /// How much is gathered before it is written.
    const PIECE: usize = 4 << 20;
    let doing = || "write a fill file".to_owned();
    let mut gathered = Vec::new();
    for run in fills {
        source.gather(manifest, run, &mut gathered, false)?;
        if gathered.len() >= PIECE {
            file.write_all(&gathered).doing(doing)?;
            gathered.clear();
        }
    }
    file.write_all(&gathered).doing(doing)
}

/// Does something while the pages to install are read: forking a template takes as long.
pub fn while_reading<T>(
    source: PageSource,
    manifest: &Manifest,
    installs: &[PageRun],
    something: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<u8>)> {
    if installs.is_empty() {
        return Ok((something()?, Vec::new()));
    }
    // pages that a state adds to its template are needed again for the next state; most of them are
    // data
    const LITTLE: u64 = 8 << 20;
    let size = installs.iter().map(|run| u64::from(run.count) * PAGE).sum::<u64>();
    let read = || -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(size as usize);
        let again = size <= LITTLE;
        installs.iter().try_for_each(|run| source.gather(manifest, run, &mut all, again))?;
        Ok(all)
    };
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("stasis-read".into());
        let reader = reader.spawn_scoped(scope, read).doing(|| "start a thread".into())?;
        let done = something();
        let pages = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((done?, pages?))
    })
}

/// Installs pages in a clone, which has given back its own. They are protected like the rest, which
/// the clone may already have protected.
pub fn install(pid: i32, uffd: &OwnedFd, installs: &[PageRun], pages: &[u8]) -> Result<()> {
    let mut rest = pages;
    for run in installs {
        let (mut bytes, after) = rest.split_at(run.count as usize * PAGE_SIZE);
        rest = after;
        let mut at = run.page * PAGE;
        while !bytes.is_empty() {
            let done = match uffd::copy_protected(uffd.as_fd(), at, bytes) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    overwrite(pid, at, &bytes[..PAGE_SIZE]).map(|()| PAGE)
                }
                done => done,
            };
            let done = done.doing(|| format!("install pages at {at:#x}"))?;
            at += done;
            bytes = &bytes[done as usize..];
        }
    }
    Ok(())
}

/// Writes a page that is there again: a program of the host that reads `/proc/PID/cmdline` or
/// `environ` (as `ps` does) brings in the page it reads. It counts as written from then on.
fn overwrite(pid: i32, at: u64, page: &[u8]) -> io::Result<()> {
    ProcessMemory::open(pid)?.write(at, page)
}
