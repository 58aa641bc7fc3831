//! Images and packs in a directory.
//!
//!   DIR/images/<id>.img      one per image, named by its content
//!   DIR/packs/<root>.pack    page contents, shared between images
//!   DIR/packs/<root>.zpack   the same, compressed, unused for long
//!   DIR/packs/<root>.dpack   the same, as differences to pages of other packs
//!   DIR/layers/<hash>-<n>/   files of an image laid out for overlayfs; made anew when missing
//!   DIR/keepers/             inodes whose numbers images need
//!   DIR/pending/             whole packs and images that are about to get their names
//!   DIR/tmp/                 being written, or being removed; emptied at open
//!   DIR/lock                 held by the one program that has the store open
//!
//! A file gets its name only after it was synced, and an image only after every pack it refers
//! to: after a crash there are whole files and leftovers in tmp and pending, nothing in between. No
//! file is changed once it has its name; it is replaced.
//!
//!   collect ─► frees what nothing refers to      check ─► reads everything, names damage
//!   usage   ─► who takes how much space          forms ─► compress, thaw, drop dead pages, mend
//!   thin    ─► what a state changed, stored as differences to the state before
//!   remote  ─► images and packs as objects elsewhere, of which this store is then a cache

#![forbid(unsafe_code)]

mod check;
mod codec;
mod cold;
mod collect;
mod error;
mod forms;
#[doc(hidden)]
pub mod fuzzing;
mod keepers;
mod known;
pub mod layers;
mod marks;
mod name_sync;
mod names;
pub mod origin;
mod pack_file;
mod pack_files;
mod pending;
mod recent;
pub mod remote;
mod save;
mod sink;
#[cfg(test)]
mod tests;
mod thin;
mod transfer;
mod usage;

pub use check::{CheckProgress, CheckReport, Damage, DamageFinding, Repair};
pub use codec::layer_name;
pub use collect::{Collected, Collection};
pub use error::{Error, Result};
pub use forms::RewrittenPack;
pub use keepers::{Keepers, LiveInode};
pub use save::WrittenImage;
pub use sink::{FinishedPacks, PageCounts, Sink};
pub use transfer::TempFile;
pub use usage::StoreUsage;

use codec::{decode, encode};
use error::ErrorContext;
use known::{KnownPacks, PackedPage};
use name_sync::NameSync;
use pack_files::PackFiles;
use parking_lot::{Mutex, MutexGuard};
use pending::PENDING;
use recent::Recent;
use stasis_image::model::Manifest;
use stasis_image::{ImageId, PackForm, PackReader, PackRoot, PageHash};
use stasis_sys::{files as sysfiles, libc, trees};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub type Pack = PackReader<File>;

/// Validates an undamaged image: a valid checksum means that it was not damaged, not that its
/// author was honest. The program that restores images knows the rules.
pub type ManifestCheck = fn(&Manifest) -> std::result::Result<(), String>;

/// An image as it was read or written: its name and its contents. As long as it or a copy of it
/// lives, the store keeps the image's files. Only the store makes one, so having one means holding
/// it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Image {
    pub id: ImageId,
    pub manifest: Arc<Manifest>,
}

pub struct Store {
    dir: PathBuf,
    next: AtomicU64,
    packs: Arc<PackFiles>,
    recent: Recent,
    keepers: Arc<Keepers>,
    names: NameSync,
    /// Held while files are removed or replaced.
    turn: Mutex<()>,
    /// Images whose states are as small as they get.
    thinned: Mutex<HashSet<ImageId>>,
    check: ManifestCheck,
    _lock: File,
}

impl Store {
    /// Opens the store of a directory; only one can be open at a time.
    pub fn open(dir: &Path, check: ManifestCheck) -> Result<Store> {
        std::fs::create_dir_all(dir).doing(|| format!("make {}", dir.display()))?;
        let lock = lock(dir)?;
        // some of them are in layers
        let keepers = Arc::new(Keepers::open(&dir.join("keepers"))?);
        // layers are never synced: after a crash one may have its name and not its contents
        for name in ["tmp", "layers"] {
            let _ = trees::remove(&dir.join(name));
        }
        for name in ["images", "packs", "layers", PENDING, "tmp"] {
            let path = dir.join(name);
            private_dir(&path).doing(|| format!("make {}", path.display()))?;
        }
        pending::settle(dir)?;
        let names = NameSync::start(&dir.join(PENDING)).doing(|| "start a thread".into())?;
        Ok(Store {
            dir: dir.to_owned(),
            next: AtomicU64::new(0),
            packs: PackFiles::new(dir.join("packs")),
            thinned: Mutex::default(),
            recent: Recent::default(),
            keepers,
            names,
            turn: Mutex::default(),
            check,
            _lock: lock,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Inodes whose numbers images need.
    pub fn keepers(&self) -> &Arc<Keepers> {
        &self.keepers
    }

    /// Whether a directory is one of the layers, which come and go.
    pub fn is_layer(&self, dir: &Path) -> bool {
        dir.parent() == Some(&self.dir.join("layers"))
    }

    /// A unique path for a file that is to get this name.
    fn pending_path(&self, name: &str) -> PathBuf {
        self.dir.join(PENDING).join(pending::name_for(self.number(), name))
    }

    /// A unique path below tmp.
    pub fn temp_path(&self, what: &str) -> PathBuf {
        self.dir.join("tmp").join(format!("{what}-{}-{}", std::process::id(), self.number()))
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn known(&self) -> MutexGuard<'_, KnownPacks> {
        self.packs.known()
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    pub fn pack(&self, root: PackRoot) -> Result<Arc<Pack>> {
        self.packs.pack(root)
    }

    /// A pack to read from, also for an image that is being saved.
    pub fn readable_pack(&self, root: PackRoot) -> Result<Arc<Pack>> {
        self.packs.readable(root)
    }

    /// A separate reader, of the file that has the name now.
    fn open_pack(&self, root: PackRoot) -> Result<Pack> {
        self.packs.open(root)
    }

    /// Fills `buf` with verified pages of a pack; `again` says whether they may be needed soon.
    pub fn read_pages(&self, root: PackRoot, slot: u64, buf: &mut [u8], again: bool) -> Result<()> {
        let key = (root, slot, buf.len());
        if let Some(pages) = self.recent.get(&key).filter(|_| again) {
            buf.copy_from_slice(&pages);
            return Ok(());
        }
        let read = self.readable_pack(root)?.read(slot, buf);
        read.map_err(|source| Error::Pack { root: root.to_string(), source })?;
        if again {
            self.recent.add(key, buf);
        }
        Ok(())
    }

    /// Drops pages in memory.
    pub fn forget_pages(&self) {
        self.recent.clear();
    }

    /// The location of a page with this content. The pack stays while its reader lives.
    pub fn find_page(&self, hash: &PageHash) -> Option<(Arc<Pack>, u64)> {
        let (root, slot) = match self.known().find_page(hash)? {
            PackedPage::Open(pack, slot) => return Some((pack, slot)),
            PackedPage::Closed(root, slot) => (root, slot),
        };
        let pack = self.pack(root).ok()?;
        // a page that leans on another is shared by images that know both, and by no others
        let whole = pack.form() != PackForm::Delta;
        let holds = whole && pack.hash(slot) == Some(*hash) && !pack.dead().contains(slot);
        holds.then_some((pack, slot))
    }

    /// Ensures that a pack exists here, by opening it if necessary.
    pub fn require_pack(&self, root: PackRoot) -> Result<()> {
        if self.known().has_pack(root) {
            return Ok(());
        }
        self.pack(root).map(drop)
    }

    fn pack_path(&self, root: PackRoot, form: PackForm) -> PathBuf {
        self.packs.path(root, form)
    }

    /// An image without a file, some of whose pages are in no pack yet, validated like one that is
    /// read. The packs that it does refer to are kept while it lives.
    pub fn unwritten_image(&self, manifest: Manifest) -> Result<Image> {
        self.check_manifest(&manifest)?;
        let sealed =
            encode(&manifest).map_err(|source| Error::Image { id: "(new)".into(), source })?;
        let image = Image { id: sealed.id, manifest: Arc::new(manifest) };
        self.known().hold(image.id, &image.manifest);
        Ok(image)
    }

    fn image_path(&self, id: ImageId) -> PathBuf {
        self.dir.join("images").join(names::of_image(id))
    }

    fn sync_dir(&self, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        File::open(&path)
            .and_then(|dir| dir.sync_all())
            .doing(|| format!("sync {}", path.display()))
    }

    /// An image, from memory if it is in use, and validated like one that is read: a captured image
    /// is no more trusted.
    pub fn image(&self, id: ImageId) -> Result<Image> {
        let living = self.living(id);
        let Some(image) = living else { return self.read_image(id) };
        self.check_manifest(&image.manifest)?;
        Ok(image)
    }

    /// An image to be held, not read: from memory if it is in use.
    pub fn hold(&self, id: ImageId) -> Result<Image> {
        self.living(id).map_or_else(|| self.read_image(id), Ok)
    }

    fn living(&self, id: ImageId) -> Option<Image> {
        let mut known = self.known();
        let manifest = known.living(id).filter(|_| self.image_path(id).exists())?;
        known.hold(id, &manifest);
        Some(Image { id, manifest })
    }

    /// An image as its file has it.
    pub fn read_image(&self, id: ImageId) -> Result<Image> {
        let manifest = Arc::new(self.read_manifest(id)?);
        let path = self.image_path(id);
        let mut known = self.known();
        // it may have been collected while it was being read
        if !path.exists() {
            return Err(missing()).doing(|| format!("read {}", path.display()));
        }
        known.hold(id, &manifest);
        Ok(Image { id, manifest })
    }

    /// The contents of an image, from memory if it is in use.
    fn manifest(&self, id: ImageId) -> Result<Arc<Manifest>> {
        let living = self.known().living(id);
        living.map_or_else(|| self.read_manifest(id).map(Arc::new), Ok)
    }

    /// The contents of an image's file, verified and validated.
    fn read_manifest(&self, id: ImageId) -> Result<Manifest> {
        let path = self.image_path(id);
        let bytes = std::fs::read(&path).doing(|| format!("read {}", path.display()))?;
        let manifest =
            decode(&bytes, id).map_err(|source| Error::Image { id: id.to_string(), source })?;
        self.check_manifest(&manifest)?;
        Ok(manifest)
    }

    /// Whether an image that was captured, and not read, is one that may be restored.
    pub fn validate(&self, image: &Image) -> Result<()> {
        self.check_manifest(&image.manifest)
    }

    fn check_manifest(&self, manifest: &Manifest) -> Result<()> {
        (self.check)(manifest).map_err(Error::Unfit)
    }

    /// The image another was captured on top of, if this program has met it.
    pub fn parent_if_known(&self, id: ImageId) -> Option<ImageId> {
        self.known().parent(id)
    }

    /// The directory that holds these files, if it was made.
    pub fn layer(&self, name: &str) -> Option<PathBuf> {
        self.known().layers.get(name).cloned()
    }

    /// Adds a layer from tmp, or removes it if another thread was faster. A recreated layer gets
    /// another name, so that it is not mistaken for the old one.
    pub fn adopt_layer(&self, name: String, temp: &Path) -> Result<PathBuf> {
        let path = self.dir.join("layers").join(format!("{name}-{}", self.number()));
        let mut known = self.known();
        if let Some(already) = known.layers.get(&name).cloned() {
            drop(known);
            let _ = trees::remove(temp);
            return Ok(already);
        }
        std::fs::rename(temp, &path).doing(|| format!("name {}", path.display()))?;
        known.layers.insert(name, path.clone());
        Ok(path)
    }

    /// Forgets opened packs, so that the next use reads the files again.
    pub fn forget(&self) {
        self.known().forget_packs();
    }
}

/// Whether a path leads to this very file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(there)) = (file.metadata(), std::fs::symlink_metadata(path)) else {
        return false;
    };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

/// A child being started can hold a released lock a moment longer, until it closes its inherited
/// descriptors.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// A second program would empty tmp and remove layers under the first.
fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let file = File::create(&path).doing(|| format!("make {}", path.display()))?;
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match sysfiles::flock(file.as_fd(), libc::LOCK_EX | libc::LOCK_NB) {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                return Err(error).doing(|| format!("lock {}", path.display()));
            }
            Err(_) if Instant::now() > end => return Err(Error::Busy(dir.to_owned())),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A private directory: files of machines in it may be setuid, and would be so on the host, too.
pub fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}
