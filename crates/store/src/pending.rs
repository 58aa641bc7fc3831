//! Packs and images that are durable before they have their names.
//!
//!   pending/ ─► files and this directory synced ─► renamed, without another sync
//!
//! The name of a file and its contents are on disk after one wait for the disk instead of two. It
//! gets its own name only then, so that a named file is always whole. If the host ends before the
//! new name is on disk, the file still has the old one. Opening the store names every whole file
//! that is left here, and removes the others: those were never answered.

use crate::error::{ErrorContext, Result};
use crate::names::{self, image_of, pack_of};
use stasis_image::{ImageId, PackReader};
use std::fs::File;
use std::path::Path;

/// The directory's name.
pub const PENDING: &str = "pending";

/// The name of a file that is to have this one.
pub fn name_for(number: u64, name: &str) -> String {
    format!("{number}-{name}")
}

/// Settles what the last process left.
pub fn settle(store: &Path) -> Result<()> {
    let dir = store.join(PENDING);
    let mut left = names::list(&dir)?;
    // an image only after its pack
    left.sort_unstable_by_key(|name| name.ends_with(".img"));
    for name in &left {
        let (own, (_, wanted)) = (dir.join(name), name.split_once('-').unwrap_or_default());
        let doing = || format!("settle {}", own.display());
        match place_of(&own, wanted) {
            Some(place) => std::fs::rename(&own, store.join(place).join(wanted)).doing(doing)?,
            None => std::fs::remove_file(&own).doing(doing)?,
        }
    }
    let sync = |place: &str| {
        let dir = store.join(place);
        let synced = File::open(&dir).and_then(|dir| dir.sync_all());
        synced.doing(|| format!("sync {}", dir.display()))
    };
    let places: &[&str] = if left.is_empty() { &[] } else { &["packs", "images", PENDING] };
    places.iter().try_for_each(|place| sync(place))
}

/// The directory of a file that is whole.
fn place_of(file: &Path, name: &str) -> Option<&'static str> {
    if let Some(id) = image_of(name) {
        let bytes = std::fs::read(file).ok()?;
        return (ImageId::of(&bytes) == id).then_some("images");
    }
    let (root, _) = pack_of(name)?;
    let file = File::open(file).ok()?;
    let len = file.metadata().ok()?.len();
    let pack = PackReader::open(file, len, Some(root)).ok()?;
    pack.verify_all().is_ok().then_some("packs")
}
