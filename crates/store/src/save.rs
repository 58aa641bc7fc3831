//! Makes new packs and images durable, and gives them their names.
//!
//!   pack, image ─► written to tmp ─► both synced ─► both named ─► both directories synced
//!
//! A file gets its name only after its contents are on disk, so every named file is whole. A pack
//! and its image are synced side by side: each sync waits for the disk, and a journal takes up
//! everything that was begun before it. If the host ends before the directories are synced, an
//! image may have its name and its pack not; no record names such an image, because a caller
//! records it only when this returned, and the next collection removes it.

use crate::codec::encode;
use crate::error::{Error, ErrorContext, Result};
use crate::{Image, Pack, Store};
use stasis_fault as fault;
use stasis_image::model::Manifest;
use stasis_image::{PackForm, PackRoot};
use stasis_sys::files as sysfiles;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file in tmp, removed with this unless it got its name.
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

/// An image that is written, and neither synced nor named.
struct NewImage {
    path: TempPath,
    file: File,
    image: Image,
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
        let pack = self.sync_pack(&new)?;
        self.name_pack(&new, &pack)?;
        self.sync_dir("packs")?;
        fault::point("pack.synced")?;
        Ok(pack)
    }

    /// Writes an image and makes it durable.
    pub fn write_image(&self, manifest: Manifest) -> Result<Image> {
        self.save(None, manifest)
    }

    /// Writes an image and makes it durable, together with the pack that was written for it.
    pub(crate) fn save(&self, pack: Option<NewPack>, manifest: Manifest) -> Result<Image> {
        let new = self.begin_image(manifest)?;
        if pack.is_some() {
            // an error here comes back in the sync
            let _ = sysfiles::start_writing(new.file.as_fd());
        }
        let pack = pack.map(|pack| Ok::<_, Error>((self.sync_pack(&pack)?, pack))).transpose()?;
        let path = self.image_path(new.image.id);
        new.file.sync_data().doing(|| format!("write {}", path.display()))?;
        fault::point("image.written")?;
        if let Some((pack, new)) = &pack {
            self.name_pack(new, pack)?;
        }
        let mut known = self.known();
        known.hold(new.image.id, &new.image.manifest);
        let named = std::fs::rename(&new.path.0, &path);
        drop(known);
        named.doing(|| format!("name {}", path.display()))?;
        if pack.is_some() {
            self.sync_dir("packs")?;
            fault::point("pack.synced")?;
        }
        self.sync_dir("images")?;
        fault::point("image.synced")?;
        Ok(new.image)
    }

    fn begin_image(&self, manifest: Manifest) -> Result<NewImage> {
        let sealed =
            encode(&manifest).map_err(|source| Error::Image { id: "(new)".into(), source })?;
        let image = Image { id: sealed.id, manifest: Arc::new(manifest) };
        let path = TempPath(self.temp_path("image"));
        let doing = || format!("write {}", self.image_path(image.id).display());
        let file = File::create(&path.0).doing(doing)?;
        let mut file = fault::Writer::new("image.write", file);
        file.write_all(&sealed.bytes).doing(doing)?;
        Ok(NewImage { path, file: file.inner, image })
    }

    fn sync_pack(&self, NewPack { path, file, root }: &NewPack) -> Result<Arc<Pack>> {
        let temp: &Path = &path.0;
        fault::point("pack.written")?;
        file.sync_data().doing(|| format!("sync {}", temp.display()))?;
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
