//! Images and packs in a directory.
//!
//!   DIR/images/<id>.img      one per image, named by its content
//!   DIR/packs/<root>.pack    page contents, shared between images
//!   DIR/layers/<hash>/       files of an image laid out for overlayfs; made anew when missing
//!   DIR/tmp/                 being written; emptied at open
//!
//! A file gets its name only after it was synced, and an image only after every pack it refers
//! to: after a crash there are whole files and leftovers in tmp, nothing in between.

use crate::error::{Doing, Error, Result};
use crate::fault;
use stasis_image::model::{FileTree, Manifest, PackRef};
use stasis_image::{
    Arch, ImageId, ImageReader, ImageWriter, PackReader, PackRoot, PageHash, PageLocation, PageSet,
    SectionKind,
};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub type Pack = PackReader<File>;

/// An image as it was read or written: its name and what it says.
#[derive(Debug, Clone)]
pub struct Image {
    pub id: ImageId,
    pub manifest: Arc<Manifest>,
}

pub struct Store {
    dir: PathBuf,
    next_temp: AtomicU64,
    known: Mutex<Known>,
}

/// Packs that were opened, and where pages with a given content are.
#[derive(Default)]
struct Known {
    packs: HashMap<PackRoot, Arc<Pack>>,
    order: Vec<PackRoot>,
    /// Parents of images that were read or written.
    parents: HashMap<ImageId, Option<ImageId>>,
    pages: PageSet,
}

impl Store {
    pub fn open(dir: &Path) -> Result<Store> {
        // layers are never synced: after a crash one may have its name and not its contents
        for name in ["tmp", "layers"] {
            let _ = std::fs::remove_dir_all(dir.join(name));
        }
        for name in ["images", "packs", "layers", "tmp"] {
            let path = dir.join(name);
            private_dir(&path).doing(|| format!("make {}", path.display()))?;
        }
        Ok(Store { dir: dir.to_owned(), next_temp: AtomicU64::new(0), known: Mutex::default() })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path below tmp that nobody else uses.
    pub fn temp_path(&self, what: &str) -> PathBuf {
        let number = self.next_temp.fetch_add(1, Ordering::Relaxed);
        self.dir.join("tmp").join(format!("{what}-{}-{number}", std::process::id()))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    pub fn pack(&self, root: PackRoot) -> Result<Arc<Pack>> {
        if let Some(pack) = self.known().packs.get(&root) {
            return Ok(pack.clone());
        }
        let path = self.pack_path(root);
        let file = File::open(&path).doing(|| format!("open {}", path.display()))?;
        let len = file.metadata().doing(|| format!("look at {}", path.display()))?.len();
        let pack = PackReader::open(file, len, Some(root))
            .map_err(|source| Error::Pack { root: root.to_string(), source })?;
        Ok(self.remember(Arc::new(pack)))
    }

    fn remember(&self, pack: Arc<Pack>) -> Arc<Pack> {
        let mut known = self.known();
        let root = pack.root();
        if let Some(already) = known.packs.get(&root) {
            return already.clone();
        }
        let number = known.order.len() as u32;
        known.order.push(root);
        known.pages.insert_pack(number, pack.hashes());
        known.packs.insert(root, pack.clone());
        pack
    }

    /// Where a page with this content is already kept.
    pub fn find_page(&self, hash: &PageHash) -> Option<(PackRef, u64)> {
        let known = self.known();
        let PageLocation { pack, slot } = known.pages.get(hash)?;
        let root = *known.order.get(pack as usize)?;
        let pages = known.packs.get(&root)?.pages();
        Some((PackRef { root, pages }, slot))
    }

    fn pack_path(&self, root: PackRoot) -> PathBuf {
        self.dir.join("packs").join(format!("{root}.pack"))
    }

    /// Takes in a finished pack file from tmp.
    pub fn adopt_pack(&self, temp: &Path, file: File, root: PackRoot) -> Result<()> {
        let path = self.pack_path(root);
        fault::point("pack.written")?;
        file.sync_data().doing(|| format!("sync {}", temp.display()))?;
        std::fs::rename(temp, &path).doing(|| format!("name {}", path.display()))?;
        self.sync_dir("packs")?;
        fault::point("pack.synced")?;
        self.pack(root).map(drop)
    }

    /// Writes an image and makes it durable.
    pub fn write_image(&self, manifest: Manifest) -> Result<Image> {
        let sealed =
            encode(&manifest).map_err(|source| Error::Image { id: "(new)".into(), source })?;
        let temp = self.temp_path("image");
        let path = self.image_path(sealed.id);
        let write = || -> std::io::Result<()> {
            let mut file = fault::Writer::new("image.write", File::create(&temp)?);
            file.write_all(&sealed.bytes)?;
            file.inner.sync_data()
        };
        let name = || std::fs::rename(&temp, &path);
        let written = write().doing(|| format!("write {}", path.display()));
        let passed = written.and_then(|()| fault::point("image.written"));
        let named = passed.and_then(|()| name().doing(|| format!("name {}", path.display())));
        named.inspect_err(|_| {
            let _ = std::fs::remove_file(&temp);
        })?;
        self.sync_dir("images")?;
        fault::point("image.synced")?;
        Ok(self.known_as(sealed.id, manifest))
    }

    fn image_path(&self, id: ImageId) -> PathBuf {
        self.dir.join("images").join(format!("{id}.img"))
    }

    fn sync_dir(&self, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        File::open(&path)
            .and_then(|dir| dir.sync_all())
            .doing(|| format!("sync {}", path.display()))
    }

    pub fn read_image(&self, id: ImageId) -> Result<Image> {
        let path = self.image_path(id);
        let bytes = std::fs::read(&path).doing(|| format!("read {}", path.display()))?;
        let manifest =
            decode(&bytes, id).map_err(|source| Error::Image { id: id.to_string(), source })?;
        crate::validate::manifest(&manifest)?;
        Ok(self.known_as(id, manifest))
    }

    /// The image another was captured on top of, if this program has met it.
    pub fn parent_if_known(&self, id: ImageId) -> Option<ImageId> {
        *self.known().parents.get(&id)?
    }

    fn known_as(&self, id: ImageId, manifest: Manifest) -> Image {
        self.known().parents.insert(id, manifest.meta.parent);
        Image { id, manifest: Arc::new(manifest) }
    }

    /// Forgets opened packs, so that the next use reads the files again.
    pub fn forget(&self) {
        *self.known() = Known::default();
    }
}

/// A directory nobody else may enter: what machines leave in it may be setuid, and would be so on
/// the host, too.
pub fn private_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

type ImageResult<T> = std::result::Result<T, stasis_image::ImageError>;

fn encode(manifest: &Manifest) -> ImageResult<stasis_image::SealedImage> {
    let mut writer = ImageWriter::new(Arch::X86_64);
    writer.section(SectionKind::Meta, &manifest.meta)?;
    writer.section(SectionKind::Processes, &manifest.processes)?;
    writer.section(SectionKind::Objects, &manifest.objects)?;
    writer.section(SectionKind::Memory, &(&manifest.memory, &manifest.segments))?;
    writer.section(SectionKind::Files, &manifest.files)?;
    writer.finish()
}

fn decode(bytes: &[u8], id: ImageId) -> ImageResult<Manifest> {
    let reader = ImageReader::open(bytes)?;
    if reader.id() != id {
        return Err(stasis_image::ImageError::Renamed);
    }
    let (memory, segments) = reader.section(SectionKind::Memory)?;
    Ok(Manifest {
        meta: reader.section(SectionKind::Meta)?,
        processes: reader.section(SectionKind::Processes)?,
        objects: reader.section(SectionKind::Objects)?,
        files: reader.section(SectionKind::Files)?,
        memory,
        segments,
    })
}

/// The name a file tree's layer goes by.
pub fn layer_name(files: &FileTree, packs: &[PackRef]) -> String {
    let bytes = postcard::to_stdvec(&(files, packs)).unwrap_or_default();
    blake3::hash(&bytes).to_hex().to_string()
}
