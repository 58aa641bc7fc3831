//! Pages stored as differences, and their bases.
//!
//! ```text
//!   roots     32 each: packs that have base pages
//!   entries   8 each, one per slot: which root 4, counted from 1, 0 for a page stored whole
//!                                   | slot of the base 4
//! ```
//!
//! A base is stored whole in its own pack, of any form: a difference to a difference is refused
//! when it is read, so one page costs at most one other.

use std::sync::{Arc, Weak};

use super::ends::{HASH_LEN, MAX_PAGES};
use crate::fields::Fields;
use crate::{PackError, PackRoot};

pub(super) const BASE_LEN: usize = 8;

/// A page of another pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BasePage {
    pub root: PackRoot,
    pub slot: u64,
}

/// Bases of the pages of a pack; empty when all are stored whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bases {
    roots: Vec<PackRoot>,
    /// Place among the roots, counted from 1, and slot.
    entries: Vec<(u32, u32)>,
}

impl Bases {
    /// One entry for each slot of a pack.
    pub fn of(pages: impl IntoIterator<Item = Option<BasePage>>) -> Bases {
        let mut bases = Bases::default();
        for page in pages {
            let entry = page.map_or((0, 0), |base| (bases.place(base.root), base.slot as u32));
            bases.entries.push(entry);
        }
        if bases.roots.is_empty() { Bases::default() } else { bases }
    }

    fn place(&mut self, root: PackRoot) -> u32 {
        let known = self.roots.iter().position(|own| *own == root);
        let place = known.unwrap_or_else(|| {
            self.roots.push(root);
            self.roots.len() - 1
        });
        place as u32 + 1
    }

    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    pub fn roots(&self) -> &[PackRoot] {
        &self.roots
    }

    pub fn get(&self, slot: u64) -> Option<BasePage> {
        let (place, slot) = *self.entries.get(usize::try_from(slot).ok()?)?;
        let root = *self.roots.get((place as usize).checked_sub(1)?)?;
        Some(BasePage { root, slot: slot.into() })
    }

    /// The bases of all slots that have one, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, BasePage)> + '_ {
        (0..self.entries.len() as u64).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let roots = self.roots.iter().flat_map(|root| root.0);
        let entry = |(place, slot): &(u32, u32)| [place.to_le_bytes(), slot.to_le_bytes()];
        roots.chain(self.entries.iter().flat_map(entry).flatten()).collect()
    }

    /// `None` when an entry names a root or a slot that cannot be.
    pub(super) fn from_bytes(bytes: &[u8], roots: usize) -> Option<Bases> {
        let (roots, entries) = bytes.split_at_checked(roots * HASH_LEN)?;
        let roots: Vec<PackRoot> = roots.as_chunks().0.iter().copied().map(PackRoot).collect();
        let mut bases = Bases { roots, entries: Vec::new() };
        for entry in entries.chunks_exact(BASE_LEN) {
            let mut fields = Fields::of(entry);
            let (place, slot) = (fields.u32(), fields.u32());
            let whole = place == 0 && slot == 0;
            let based = place != 0 && u64::from(slot) < MAX_PAGES;
            if !(whole || based) || place as usize > bases.roots.len() {
                return None;
            }
            bases.entries.push((place, slot));
        }
        Some(bases)
    }
}

/// Where base pages are read.
pub trait BasePages: Send + Sync {
    /// Fills `page` with a page that is stored whole, verified.
    fn read_base(&self, base: BasePage, page: &mut [u8]) -> Result<(), PackError>;
}

/// The one a reader was given, if any.
#[derive(Default, Clone)]
pub(super) struct BaseSource(Option<Weak<dyn BasePages>>);

impl std::fmt::Debug for BaseSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BaseSource({})", self.0.is_some())
    }
}

impl BaseSource {
    pub(super) fn new(from: Weak<dyn BasePages>) -> BaseSource {
        BaseSource(Some(from))
    }

    fn get(&self) -> Option<Arc<dyn BasePages>> {
        self.0.as_ref()?.upgrade()
    }

    /// Converts differences from `slot` on to whole pages.
    pub(super) fn complete(
        &self,
        bases: &Bases,
        slot: u64,
        buf: &mut [u8],
    ) -> Result<(), PackError> {
        let pages = (slot..).zip(buf.chunks_exact_mut(super::PAGE_SIZE));
        for (slot, page) in pages {
            let Some(base) = bases.get(slot) else { continue };
            let failed = |source| PackError::Base { slot, root: base.root, source };
            let from = self.get().ok_or_else(|| failed(None))?;
            apply(&*from, base, page).map_err(|error| failed(Some(Box::new(error))))?;
        }
        Ok(())
    }
}

/// A page becomes its difference to a base, and the other way around.
pub(super) fn apply(
    from: &dyn BasePages,
    base: BasePage,
    page: &mut [u8],
) -> Result<(), PackError> {
    let mut bytes = [0; super::PAGE_SIZE];
    from.read_base(base, &mut bytes)?;
    page.iter_mut().zip(bytes).for_each(|(byte, base)| *byte ^= base);
    Ok(())
}
