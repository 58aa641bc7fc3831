//! Which templates there are, and which of them a restore or a new template starts from.
//!
//!   blank ─┬─ origin ─┬─ state a ─ state a, small change      an image's own template is nearest,
//!          │          ├─ state b   (copies: forks take turns)  then those it descends from
//!          └─ origin  └─ state b
//!
//! Every fork makes the kernel's bookkeeping of shared pages longer by one for each template it
//! descends from, so a new template starts from a shallow one where that costs little.

use crate::template::Template;
use parking_lot::{Mutex, MutexGuard};
use stasis_image::ImageId;
use stasis_store::{Image, Store};
use stasis_sys::PAGE;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Templates forked from templates, at most; beyond, one is built from its image alone.
const DEEPEST: u32 = 8;
/// A difference that is read again rather than forked from a deeper template.
const LITTLE: u64 = 16 << 20;

#[derive(Default)]
pub struct TemplatePool(Mutex<HashMap<ImageId, Copies>>);

/// Templates of one image. A forking template is busy, so a burst has several.
struct Copies {
    templates: Vec<Arc<Template>>,
    next: AtomicUsize,
}

impl Copies {
    fn next(&self) -> Option<&Arc<Template>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.templates.get(turn % self.templates.len().max(1))
    }
}

impl TemplatePool {
    fn all(&self) -> MutexGuard<'_, HashMap<ImageId, Copies>> {
        self.0.lock()
    }

    pub fn holds(&self, image: ImageId) -> bool {
        self.all().contains_key(&image)
    }

    /// How many processes there are.
    pub fn standing(&self) -> usize {
        self.all().values().map(|copies| copies.templates.len()).sum()
    }

    pub fn insert(&self, image: ImageId, templates: Vec<Template>) {
        let templates = templates.into_iter().map(Arc::new).collect();
        self.all().insert(image, Copies { templates, next: AtomicUsize::new(0) });
    }

    pub fn remove(&self, image: ImageId) -> bool {
        let removed = self.all().remove(&image);
        removed.is_some()
    }

    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.all());
        drop(all);
    }

    /// The template with the most in common: the image's own, or that of an ancestor.
    pub fn nearest(&self, image: &Image, store: &Store) -> Option<Arc<Template>> {
        self.line(image, store).into_iter().next()
    }

    /// The best template to fork an image's template from.
    pub fn trunk(&self, image: &Image, store: &Store) -> Option<Arc<Template>> {
        let line = self.line(image, store);
        let near = line.iter().find(|template| template.depth < DEEPEST)?;
        let shallower = line.iter().filter(|template| template.depth < near.depth);
        let little = shallower.filter(|template| lacking(template, image) <= LITTLE);
        Some(little.min_by_key(|template| template.depth).unwrap_or(near).clone())
    }

    /// The templates of an image and of those it descends from, nearest first.
    fn line(&self, image: &Image, store: &Store) -> Vec<Arc<Template>> {
        let all = self.all();
        let meta = &image.manifest.meta;
        let mut found: Vec<Arc<Template>> = Vec::new();
        let mut next = Some(image.id);
        while let Some(id) = next {
            found.extend(all.get(&id).and_then(Copies::next).cloned());
            next = if id == image.id { meta.parent } else { store.parent_if_known(id) };
        }
        let origin = meta.origin.and_then(|id| all.get(&id)).and_then(Copies::next);
        let known = |origin: &&Arc<Template>| found.iter().any(|one| Arc::ptr_eq(one, origin));
        let origin = origin.filter(|origin| !known(origin)).cloned();
        found.extend(origin);
        // one that was killed, because it did not answer, is passed over
        found.retain(|template| !template.has_ended());
        found
    }
}

/// About how many bytes of an image a template does not hold.
pub fn lacking(template: &Template, image: &Image) -> u64 {
    let held = template.image().map_or(&[][..], |held| &held.manifest.meta.packs);
    let meta = &image.manifest.meta;
    let foreign: Vec<bool> = meta.packs.iter().map(|pack| !held.contains(pack)).collect();
    let runs = image.manifest.memory.iter().flat_map(|memory| &memory.runs);
    let missing = runs.filter(|run| foreign.get(run.pack as usize).copied().unwrap_or(true));
    missing.map(|run| u64::from(run.count) * PAGE).sum()
}
