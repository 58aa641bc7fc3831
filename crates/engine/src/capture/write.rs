//! From a state that nothing can change any more to an image on disk.
//!
//!   much to write    twins ─► shared ─► pages written ─► image written ──────────► synced, named
//!   little                              pages written ─► image written ─► shared ─► synced, named
//!
//! A shared state can be restored before it is on disk: its pages are read from the twins, or from
//! the files that are not synced yet. If writing fails, the twins are killed, nothing has been
//! named in the store, and such restores get an error.

use super::ShareState;
use super::pages::{self, ScannedProcess};
use super::still::PausedMemory;
use crate::error::{Error, Result};
use crate::fair_queue::QueueTurn;
use crate::unsaved::{SavePromise, TwinMemory, UnsavedPages, UnsavedState};
use stasis_fault as fault;
use stasis_image::model::{Manifest, ProcessPages};
use stasis_store::{Image, PageCounts, Sink, Store};
use stasis_sys::PAGE;
use std::sync::Arc;

/// Fewer bytes than this are written before they are shared.
const WORTH_SHARING: u64 = 16 << 20;

/// Writes pages and image. `manifest` lacks its memory and its packs. The turn is given back when
/// nothing is left to do but to wait for the disk, unless the twins stay until then.
pub fn write(
    store: &Store,
    mut sink: Sink,
    manifest: Manifest,
    stills: Vec<PausedMemory>,
    share: Option<ShareState>,
    turn: QueueTurn,
) -> Result<(Image, PageCounts)> {
    sink.may_wait();
    let scanned = pages::scan_all(&stills, &manifest.processes)?;
    let mut share = share;
    let promise = show(store, &mut sink, &manifest, &scanned, &mut share)?;
    let memory = fault::point("capture.shared").map_err(Error::from).and_then(|()| {
        let memory = scanned.iter().map(|process| process.write(&mut sink));
        memory.collect::<Result<Vec<ProcessPages>>>()
    });
    drop(scanned);
    let mut kept = None;
    let mut late = None;
    let written = memory.and_then(|memory| {
        fault::point("capture.pages")?;
        stills.iter().try_for_each(PausedMemory::check_intact)?;
        let counts = sink.counts();
        let written = sink.write(Manifest { memory, ..manifest })?;
        // a twin slows its source down, and is needed only while it has readers
        kept = promise.is_some().then_some((stills, turn));
        late = share.map(|share| show_written(written.image(), share));
        Ok((written.save()?, counts))
    });
    match (promise.or(late), &written) {
        (Some(promise), Ok((image, _))) => promise.saved(store, image),
        (Some(promise), Err(error)) => promise.failed(error),
        (None, _) => {}
    }
    drop(kept);
    written
}

/// Offers a state whose files are written: nothing of it is needed of the source any more.
fn show_written(image: &Image, share: ShareState) -> SavePromise {
    let (image, pages) = (image.clone(), Arc::new(UnsavedPages::of(Vec::new())));
    let promise = SavePromise::of(&pages);
    share(UnsavedState { image, pages });
    promise
}

/// Offers the state to `share`, if there is much to write: everything but memory is on disk, and
/// memory is in the twins.
fn show(
    store: &Store,
    sink: &mut Sink,
    manifest: &Manifest,
    scanned: &[ScannedProcess],
    share: &mut Option<ShareState>,
) -> Result<Option<SavePromise>> {
    if share.is_none() {
        return Ok(None);
    }
    let twins = scanned.iter().filter_map(|process| process.still.twin());
    let twins = twins.map(|twin| TwinMemory::new(twin.own_pid, &twin.memory));
    let twins = twins.collect::<Result<Vec<TwinMemory>>>()?;
    // copied pages must be written before the packs are numbered
    let copied = scanned.iter().filter(|process| process.still.twin().is_none());
    if twins.is_empty() || copied.count() > 0 {
        return Ok(None);
    }
    let count = |pages: &[(ProcessPages, u64)]| pages.iter().map(|(_, pages)| pages).sum::<u64>();
    let refer = |sink: &mut Sink, first: usize| -> Vec<(ProcessPages, u64)> {
        let numbered = scanned.iter().enumerate();
        numbered.map(|(index, process)| process.refer((first + index) as u32, sink)).collect()
    };
    // the parent's packs get their numbers first, the twins come after all others
    if count(&refer(sink, 0)) * PAGE < WORTH_SHARING {
        return Ok(None);
    }
    let mut packs = sink.seal()?.to_vec();
    let memory = refer(sink, packs.len());
    packs.extend(twins.iter().map(TwinMemory::as_pack));
    // a scan of one that was killed meanwhile finds nothing
    scanned.iter().try_for_each(|process| process.still.check_intact())?;
    let mut manifest = manifest.clone();
    manifest.memory = memory.into_iter().map(|(pages, _)| pages).collect();
    manifest.meta.packs = packs;
    let image = store.unwritten_image(manifest)?;
    let pages = Arc::new(UnsavedPages::of(twins));
    let promise = SavePromise::of(&pages);
    if let Some(share) = share.take() {
        share(UnsavedState { image, pages });
    }
    Ok(Some(promise))
}
