//! Packs written anew: compressed and back, as differences, without dead pages, with pages mended.
//!
//!   open ─► tmp, every page verified ─► sync ─► name (under the lock, if still allowed) ─► sync
//!        ─► only then the other form goes
//!
//! Slots and root stay, so no image changes. Open readers continue with the old file. After a kill
//! at any point there is the old file, the new one, or both, and each is complete.

use super::known::KnownPacks;
use super::names::disk_bytes;
use super::{Pack, Store, is_at};
use crate::error::{Error, ErrorContext, Result};
use stasis_fault as fault;
use stasis_image::{Bases, PackError, PackForm, PackRoot, Rewrite, Slots};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Below this many pages, rewriting a pack frees too little to be worthwhile.
const FEWEST: u64 = 64;

/// The result of changing a pack's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewrittenPack {
    /// Its disk space, before and after.
    pub before: u64,
    pub after: u64,
}

/// Whether more than half of a pack's remaining pages would be dropped.
pub fn is_worth_dropping(pack: &Pack, drop: &Slots) -> bool {
    let more = drop.len() - drop.common(pack.dead()).len();
    let held = pack.pages() - pack.dead().len();
    more >= FEWEST && more * 2 > held
}

impl Store {
    /// Compresses a pack that has not been used for long. It can be read as before, more slowly.
    pub fn compress(&self, root: PackRoot) -> Result<RewrittenPack> {
        let _turn = self.turn();
        self.reform(root, PackForm::Cold)
    }

    /// Converts a pack back to the form that is fastest to read.
    pub fn thaw(&self, root: PackRoot) -> Result<RewrittenPack> {
        let _turn = self.turn();
        self.reform(root, PackForm::Plain)
    }

    fn reform(&self, root: PackRoot, form: PackForm) -> Result<RewrittenPack> {
        let pack = self.open_pack(root)?;
        let before = disk_bytes(&self.pack_path(root, pack.form()));
        if pack.form() == form {
            return Ok(RewrittenPack { before, after: before });
        }
        let rewrite = plainly(&pack);
        // a capture may have written the same pack meanwhile, and more of it: that one stays
        let old = self.pack_path(root, pack.form());
        let plain = self.pack_path(root, PackForm::Plain);
        let same = |_: &KnownPacks| {
            is_at(pack.source(), &old) && (form == PackForm::Cold || !plain.exists())
        };
        if !self.replace(&pack, |out| rewrite.write(form, out), same)? {
            return Ok(RewrittenPack { before, after: before });
        }
        self.remove_old(&pack)?;
        Ok(RewrittenPack { before, after: disk_bytes(&self.pack_path(root, form)) })
    }

    /// Stores pages of a plain pack as differences to these bases, unless it is in use. The caller
    /// holds the store's lock for changes, and knows that the bases stay.
    pub(super) fn store_delta(&self, pack: &Pack, bases: &Bases) -> Result<Option<RewrittenPack>> {
        let (root, plain) = (pack.root(), self.pack_path(pack.root(), PackForm::Plain));
        let before = disk_bytes(&plain);
        let rewrite = plainly(pack);
        // a reader of whole pages holds no bases
        let same = |known: &KnownPacks| is_at(pack.source(), &plain) && !known.is_in_use(root);
        if !self.replace(pack, |out| rewrite.write_delta(bases, &*self.packs, out), same)? {
            return Ok(None);
        }
        self.remove_old(pack)?;
        let after = disk_bytes(&self.pack_path(root, PackForm::Delta));
        Ok(Some(RewrittenPack { before, after }))
    }

    /// Removes the file of the form a pack had, if it is still that one.
    fn remove_old(&self, old: &Pack) -> Result<()> {
        let path = self.pack_path(old.root(), old.form());
        let known = self.known();
        if is_at(old.source(), &path) {
            std::fs::remove_file(&path).doing(|| format!("remove {}", path.display()))?;
        }
        drop(known);
        self.sync_dir("packs")
    }

    /// Rewrites a pack without some pages; returns the freed space, if it was still allowed by
    /// then.
    pub(super) fn drop_pages(
        &self,
        pack: &Pack,
        drop: &Slots,
        allow: impl FnOnce(&KnownPacks) -> bool,
    ) -> Result<Option<u64>> {
        let path = self.pack_path(pack.root(), pack.form());
        let before = disk_bytes(&path);
        let rewrite = Rewrite { drop, ..plainly(pack) };
        match self.replace(pack, |out| rewrite.write(pack.form(), out), allow) {
            Ok(done) => Ok(done.then(|| before.saturating_sub(disk_bytes(&path)))),
            // damage is for a check to tell; the pack stays as it is
            Err(Error::Pack { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Rewrites a pack with the right contents for damaged slots; those of `lost` stay damaged.
    pub(super) fn mend_pack(
        &self,
        pack: &Pack,
        mend: &HashMap<u64, Vec<u8>>,
        lost: &Slots,
    ) -> Result<bool> {
        let _turn = self.turn();
        let path = self.pack_path(pack.root(), pack.form());
        let rewrite = Rewrite { mend, lost, ..plainly(pack) };
        let same = |_: &KnownPacks| is_at(pack.source(), &path);
        let done = self.replace(pack, |out| rewrite.write(pack.form(), out), same)?;
        // differences become whole pages, in a file of another name
        if done && pack.form() == PackForm::Delta {
            self.remove_old(pack)?;
        }
        Ok(done)
    }

    /// Writes a pack, and gives it its name if that is still allowed; whether it was.
    fn replace(
        &self,
        old: &Pack,
        write: impl FnOnce(BufWriter<&File>) -> std::result::Result<(), PackError>,
        allow: impl FnOnce(&KnownPacks) -> bool,
    ) -> Result<bool> {
        let temp = self.temp_path("rewrite");
        let replaced = self.write(old.root(), write, &temp).and_then(|pack| {
            fault::point("rewrite.written")?;
            self.name_rewritten(pack, &temp, allow)
        });
        if !matches!(replaced, Ok(true)) {
            let _ = std::fs::remove_file(&temp);
            return replaced;
        }
        self.sync_dir("packs")?;
        fault::point("rewrite.named")?;
        Ok(true)
    }

    fn write(
        &self,
        root: PackRoot,
        write: impl FnOnce(BufWriter<&File>) -> std::result::Result<(), PackError>,
        temp: &Path,
    ) -> Result<Pack> {
        let doing = || format!("write {}", temp.display());
        let file = File::options().read(true).write(true).create_new(true).open(temp);
        let file = file.doing(doing)?;
        write(BufWriter::with_capacity(256 << 10, &file))
            .map_err(|source| Error::Pack { root: root.to_string(), source })?;
        file.sync_data().doing(doing)?;
        self.packs.read(file, root, temp)
    }

    fn name_rewritten(
        &self,
        pack: Pack,
        temp: &Path,
        allow: impl FnOnce(&KnownPacks) -> bool,
    ) -> Result<bool> {
        let (root, path) = (pack.root(), self.pack_path(pack.root(), pack.form()));
        let mut known = self.known();
        if !allow(&known) {
            return Ok(false);
        }
        std::fs::rename(temp, &path).doing(|| format!("name {}", path.display()))?;
        // unused data is not kept in memory for this
        if known.pack(root).is_some() {
            known.supersede(Arc::new(pack));
        }
        Ok(true)
    }
}

/// A pack written as it is.
fn plainly(pack: &Pack) -> Rewrite<'_, File> {
    static NO_SLOTS: Slots = Slots::new();
    static NO_PAGES: LazyLock<HashMap<u64, Vec<u8>>> = LazyLock::new(HashMap::new);
    Rewrite { pack, drop: &NO_SLOTS, mend: &NO_PAGES, lost: &NO_SLOTS }
}
