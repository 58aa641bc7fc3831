//! Rewrites an image so that it depends on no other pack.
//!
//! An image made by many captures refers to pages in many packs. Flattening copies them, verified
//! and in address order, to one new pack: restores read one file again, and the old packs can be
//! removed when nothing else refers to them. The content is unchanged.

use crate::error::Result;
use stasis_image::model::*;
use stasis_store::layers::write_runs;
use stasis_store::{FinishedPacks, Image, Sink, Store};

pub fn flatten(store: &Store, image: &Image) -> Result<Image> {
    let old = &*image.manifest;
    let mut new = old.clone();
    let mut sink = Sink::alone(store);
    for memory in &mut new.memory {
        memory.runs = copy(store, old, &memory.runs, &mut sink)?;
    }
    for segment in &mut new.segments {
        segment.runs = copy(store, old, &segment.runs, &mut sink)?;
    }
    for entry in &mut new.files.entries {
        if let FileEntryKind::Regular { runs, .. } = &mut entry.kind {
            *runs = copy(store, old, runs, &mut sink)?;
        }
    }
    let FinishedPacks { packs, held } = sink.finish()?;
    new.meta.packs = packs;
    new.meta.parent = Some(image.id);
    let image = store.write_image(new)?;
    drop(held);
    Ok(image)
}

fn copy(store: &Store, old: &Manifest, runs: &[PageRun], sink: &mut Sink) -> Result<Vec<PageRun>> {
    let mut copied = Vec::new();
    write_runs(store, old, runs, |page, bytes| sink.keep(page, bytes, |_| None, &mut copied))?;
    Ok(copied)
}
