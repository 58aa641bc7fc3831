//! Makes new packs and images durable, and gives them their names.
//!
//!   pack, image ─► written to pending ─► both and their directory synced ─► both named
//!                            └─► can be read by this program, as an image in use
//!
//! A file gets its name only after its contents are on disk, so every named file is whole. Both
//! files are written to the disk first, and then synced one after the other: the first sync also
//! commits what the second has to, so the second finds nothing left to do. Syncs at the same time
//! each wait for a commit of their own. The directory is synced once for all who wait for it
//! (`name_sync.rs`). The new names need no sync (`pending.rs`).

use crate::codec::encode;
use crate::error::{Error, ErrorContext, Result};
use crate::sink::PinnedSlots;
use crate::{Image, Pack, Store, names};
use stasis_fault as fault;
use stasis_image::model::Manifest;
use stasis_image::{PackForm, PackRoot};
use stasis_sys::files as sysfiles;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file in tmp or pending, removed with this unless it got its name.
pub(crate) struct TempPath(pub PathBuf);

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A pack that is written, and neither synced nor named.
pub(crate) struct NewPack {
    pub path: TempPath,
    pub file: File,
    pub root: PackRoot,
}

impl NewPack {
    fn sync(&self) -> Result<()> {
        self.file.sync_data().doing(|| format!("sync {}", self.path.0.display()))
    }
}

/// An image that is written, and neither synced nor named.
struct NewImage {
    path: TempPath,
    file: File,
    image: Image,
}

impl NewImage {
    fn sync(&self) -> Result<()> {
        self.file.sync_data().doing(|| format!("sync {}", self.path.0.display()))
    }
}

/// An image that is written with its pack. Its pages can be read, and nothing else in the store may
/// refer to them: it is neither durable nor named.
pub struct WrittenImage<'a> {
    store: &'a Store,
    new: NewImage,
    pack: Option<(NewPack, Arc<Pack>)>,
    /// Keeps the pages that the image refers to until the image has its name.
    _held: PinnedSlots,
}

impl Drop for WrittenImage<'_> {
    fn drop(&mut self) {
        if let Some((_, pack)) = &self.pack {
            self.store.known().remove_unnamed(pack);
        }
    }
}

impl WrittenImage<'_> {
    pub fn image(&self) -> &Image {
        &self.new.image
    }

    /// Makes the image and its pack durable, and gives them their names.
    pub fn save(self) -> Result<Image> {
        fault::point("pack.written")?;
        self.sync()?;
        fault::point("image.written")?;
        if let Some((new, pack)) = &self.pack {
            self.store.name_pack(new, pack)?;
            fault::point("pack.synced")?;
        }
        let image = &self.new.image;
        let path = self.store.image_path(image.id);
        let known = self.store.known();
        let named = std::fs::rename(&self.new.path.0, &path);
        drop(known);
        named.doing(|| format!("name {}", path.display()))?;
        fault::point("image.synced")?;
        Ok(image.clone())
    }

    fn sync(&self) -> Result<()> {
        let pack = self.pack.as_ref().map(|(pack, _)| pack);
        pack.map_or(Ok(()), |pack| finish_writing(&pack.file, &pack.path))?;
        finish_writing(&self.new.file, &self.new.path)?;
        pack.map_or(Ok(()), NewPack::sync)?;
        self.new.sync()?;
        self.store.names.sync().doing(|| "sync the names of new files".into())
    }
}

fn finish_writing(file: &File, TempPath(path): &TempPath) -> Result<()> {
    sysfiles::finish_writing(file.as_fd()).doing(|| format!("write {}", path.display()))
}

impl Store {
    /// Takes in a finished pack file from tmp. It stays while its reader lives, and when an image
    /// that refers to it was written by then, as long as that is kept.
    #[cfg(test)]
    pub fn adopt_pack(&self, temp: &Path, file: File, root: PackRoot) -> Result<Arc<Pack>> {
        self.adopt_new(NewPack { path: TempPath(temp.to_owned()), file, root })
    }

    /// Takes in a new pack. It stays while its reader lives, and when an image that refers to it
    /// was written by then, as long as that is kept.
    pub(crate) fn adopt_new(&self, new: NewPack) -> Result<Arc<Pack>> {
        fault::point("pack.written")?;
        new.sync()?;
        let pack = self.read_pack(&new)?;
        self.name_pack(&new, &pack)?;
        self.sync_dir("packs")?;
        fault::point("pack.synced")?;
        Ok(pack)
    }

    /// Writes an image and makes it durable.
    pub fn write_image(&self, manifest: Manifest) -> Result<Image> {
        self.write_with(None, manifest, PinnedSlots::default())?.save()
    }

    /// Writes an image to its file, with the pack that was written for it. It can be restored from
    /// here on, and is in use. `held` keeps what it names.
    pub(crate) fn write_with(
        &self,
        pack: Option<NewPack>,
        manifest: Manifest,
        held: PinnedSlots,
    ) -> Result<WrittenImage<'_>> {
        let pack = pack.map(|pack| self.begin_pack(pack)).transpose()?;
        let new = self.begin_image(manifest)?;
        let mut known = self.known();
        known.hold(new.image.id, &new.image.manifest);
        pack.iter().for_each(|(_, pack)| known.add_unnamed(pack));
        drop(known);
        Ok(WrittenImage { store: self, new, pack, _held: held })
    }

    /// Moves a new pack to where it becomes durable.
    fn begin_pack(&self, new: NewPack) -> Result<(NewPack, Arc<Pack>)> {
        // an error here comes back when it is saved
        let _ = sysfiles::start_writing(new.file.as_fd());
        let pack = self.read_pack(&new)?;
        let name = names::of_pack(new.root, PackForm::Plain);
        let path = TempPath(self.pending_path(&name));
        std::fs::rename(&new.path.0, &path.0).doing(|| format!("write {}", path.0.display()))?;
        Ok((NewPack { path, ..new }, pack))
    }

    fn begin_image(&self, manifest: Manifest) -> Result<NewImage> {
        let sealed =
            encode(&manifest).map_err(|source| Error::Image { id: "(new)".into(), source })?;
        let image = Image { id: sealed.id, manifest: Arc::new(manifest) };
        let path = TempPath(self.pending_path(&names::of_image(image.id)));
        let doing = || format!("write {}", self.image_path(image.id).display());
        let file = File::create(&path.0).doing(doing)?;
        let mut file = fault::Writer::new("image.write", file);
        file.write_all(&sealed.bytes).doing(doing)?;
        // an error here comes back when it is saved
        let _ = sysfiles::start_writing(file.inner.as_fd());
        Ok(NewImage { path, file: file.inner, image })
    }

    /// A reader of a new pack.
    fn read_pack(&self, NewPack { path, root, .. }: &NewPack) -> Result<Arc<Pack>> {
        let temp: &Path = &path.0;
        let file = File::open(temp).doing(|| format!("open {}", temp.display()))?;
        Ok(Arc::new(self.packs.read(file, *root, temp)?))
    }

    fn name_pack(
        &self,
        NewPack { path: temp, root, .. }: &NewPack,
        pack: &Arc<Pack>,
    ) -> Result<()> {
        let path = self.pack_path(*root, PackForm::Plain);
        let mut known = self.known();
        std::fs::rename(&temp.0, &path).doing(|| format!("name {}", path.display()))?;
        known.supersede(pack.clone());
        Ok(())
    }
}
