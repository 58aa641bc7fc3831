//! Images and packs out of one store and into another.
//!
//!   export: the pages the images need, and no others ─► compressed pack, same root
//!   import: images ─► tmp, looked at ─► packs ─► tmp ─► every page verified, root as promised
//!                                            images named ◄── packs named ◄──┘
//!
//! A pack is shared between machines, so an exported one has only the requested pages. Imported
//! data is not trusted: the caller bounds lengths, hashes verify contents, and an image is accepted
//! only if every page it refers to exists. After a kill half-way there are unreferenced files,
//! which the next collection removes.

use super::codec::decode;
use super::marks::ReachableSet;
use super::{Image, Pack, Store};
use crate::error::{Error, ErrorContext, Result};
use crate::remote::lacks;
use stasis_fault as fault;
use stasis_image::model::Manifest;
use stasis_image::{
    BundleHead, ImageId, MAX_IMAGE_LEN, PackForm, PackRoot, Rewrite, Slots, pack_image,
};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// A file below tmp that goes when it is dropped.
pub struct TempFile {
    name: Aside,
    pub file: File,
    pub len: u64,
}

/// The name of one.
pub(crate) struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        // a renamed file no longer exists under its old name
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Store {
    /// Which pages of which packs these images need.
    pub fn needs(&self, images: &[Image]) -> BTreeMap<PackRoot, Slots> {
        let mut marks = ReachableSet::default();
        images.iter().for_each(|image| marks.add(image.id, &image.manifest));
        marks.packs.into_iter().collect()
    }

    /// The bytes of an image, compressed.
    pub fn export_image(&self, id: ImageId) -> Result<Vec<u8>> {
        let bytes = self.image_bytes(id)?;
        // compressed data does not become shorter
        Ok(pack_image(&bytes).into_owned())
    }

    /// The file of an image.
    pub(crate) fn image_bytes(&self, id: ImageId) -> Result<Vec<u8>> {
        let path = self.image_path(id);
        std::fs::read(&path).doing(|| format!("read {}", path.display()))
    }

    /// A compressed pack with these pages and no others.
    pub fn export_pack(&self, root: PackRoot, keep: &Slots) -> Result<TempFile> {
        let pack = self.pack(root)?;
        let drop = keep.others(pack.pages());
        let (mend, lost) = (HashMap::new(), Slots::new());
        let rewrite = Rewrite { pack: &*pack, drop: &drop, mend: &mend, lost: &lost };
        let mut scrap = self.scrap("export")?;
        rewrite
            .write(PackForm::Cold, BufWriter::with_capacity(256 << 10, &scrap.file))
            .map_err(|source| Error::Pack { root: root.to_string(), source })?;
        scrap.len = scrap.file.metadata().doing(|| "look at a pack".into())?.len();
        scrap.file.rewind().doing(|| "go to the beginning of a pack".into())?;
        Ok(scrap)
    }

    fn scrap(&self, what: &str) -> Result<TempFile> {
        let path = self.temp_path(what);
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.doing(|| format!("make {}", path.display()))?;
        Ok(TempFile { name: Aside(path), file, len: 0 })
    }

    /// Imports the images and packs that follow a file's head; returns the images in its order. A
    /// mismatch is found before a pack is read, and then nothing of the file is kept.
    pub fn import_parts<E: From<Error>>(
        &self,
        head: &BundleHead,
        from: &mut dyn Read,
        fits: &dyn Fn(&Manifest) -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<Image>, E> {
        // aside until their pages are here, which come after them
        let mut waiting = Vec::new();
        for (id, len) in &head.images {
            let mut bytes = Vec::new();
            from.take(*len).read_to_end(&mut bytes).doing(|| "read an image".into())?;
            if bytes.len() as u64 != *len {
                return Err(Error::Unfit("the file ends before its last image".into()).into());
            }
            fits(&self.look(*id, &bytes)?)?;
            waiting.push((*id, self.set_aside(&bytes)?));
        }
        // held until their images are
        let packs = head.packs.iter().map(|(root, len)| self.import_pack(*root, *len, from));
        let _packs = packs.collect::<Result<Vec<_>>>()?;
        let images = waiting.into_iter().map(|(id, aside)| self.import_image(id, &aside));
        Ok(images.collect::<Result<Vec<_>>>()?)
    }

    /// Sets an image aside until its pages are here. Its file is closed, because there may be more
    /// of them than may be open.
    pub(crate) fn set_aside(&self, bytes: &[u8]) -> Result<Aside> {
        let mut scrap = self.scrap("image")?;
        let written = scrap.file.write_all(bytes).and_then(|()| scrap.file.sync_data());
        written.doing(|| format!("write {}", scrap.name.0.display()))?;
        Ok(scrap.name)
    }

    /// The contents of an image, verified.
    pub(crate) fn look(&self, id: ImageId, bytes: &[u8]) -> Result<Manifest> {
        if bytes.len() as u64 > MAX_IMAGE_LEN {
            return Err(Error::TooLarge(format!("image {id} has {} bytes", bytes.len())));
        }
        let bad = |source| Error::Image { id: id.to_string(), source };
        let manifest = decode(bytes, id).map_err(bad)?;
        self.check_manifest(&manifest)?;
        Ok(manifest)
    }

    /// Imports a pack. It stays while its reader lives, and as long as a kept image needs it.
    pub(crate) fn import_pack(
        &self,
        root: PackRoot,
        len: u64,
        from: &mut dyn Read,
    ) -> Result<Arc<Pack>> {
        let mut scrap = self.scrap("import")?;
        let doing = || format!("write {}", scrap.name.0.display());
        let copied = std::io::copy(&mut from.take(len), &mut scrap.file).doing(doing)?;
        if copied != len {
            return Err(Error::Unfit("the file ends before its last pack".into()));
        }
        scrap.file.flush().and_then(|()| scrap.file.sync_data()).doing(doing)?;
        let file = File::open(&scrap.name.0).doing(doing)?;
        let pack = self.packs.read(file, root, &scrap.name.0)?;
        if pack.form() == PackForm::Delta {
            return Err(Error::Unfit(format!("pack {root} needs pages that are not in it")));
        }
        // all that it has may be here already, and is then no matter
        let here = |own: &Arc<Pack>| own.dead().is_within(pack.dead());
        if let Some(own) = self.pack(root).ok().filter(here) {
            return Ok(own);
        }
        let bad = |source| Error::Pack { root: root.to_string(), source };
        pack.verify_all().map_err(bad)?;
        fault::point("import.pack")?;
        let _turn = self.turn();
        if let Ok(own) = self.pack(root) {
            if here(&own) {
                return Ok(own);
            }
            if !pack.dead().is_within(own.dead()) {
                let said = format!("pack {root} is here with other pages: collect, and try again");
                return Err(Error::Unfit(said));
            }
        }
        let path = self.pack_path(root, pack.form());
        let pack = Arc::new(pack);
        let mut known = self.known();
        std::fs::rename(&scrap.name.0, &path).doing(|| format!("name {}", path.display()))?;
        known.supersede(pack.clone());
        drop(known);
        self.sync_dir("packs")?;
        Ok(pack)
    }

    /// Imports an image, all of whose pages must be here.
    pub(crate) fn import_image(&self, id: ImageId, aside: &Aside) -> Result<Image> {
        let bytes = std::fs::read(&aside.0).doing(|| format!("read {}", aside.0.display()))?;
        let image = Image { id, manifest: Arc::new(self.look(id, &bytes)?) };
        // held until the image is: a collection must not drop pages that were just checked
        let mut packs = Vec::new();
        for (root, slots) in self.needs(std::slice::from_ref(&image)) {
            let pack = self.pack(root)?;
            packs.push(pack.clone());
            if lacks(&pack, &slots) {
                return Err(Error::Unfit(format!("pages of pack {root} are missing")));
            }
        }
        fault::point("import.pages")?;
        let path = self.image_path(id);
        let mut known = self.known();
        known.hold(id, &image.manifest);
        std::fs::rename(&aside.0, &path).doing(|| format!("name {}", path.display()))?;
        drop(known);
        self.sync_dir("images")?;
        fault::point("import.image")?;
        Ok(image)
    }
}
