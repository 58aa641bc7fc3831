//! The result of a check, for people and for programs.

use crate::error::Error;
use stasis_image::{ImageId, PackRoot};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// The answer of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    pub findings: Vec<DamageFinding>,
    /// False when it was stopped before its end.
    pub complete: bool,
    /// The amount read.
    pub images: u64,
    pub packs: u64,
    pub pages: u64,
    pub layers: u64,
}

/// A damaged item, and the images that need it.
#[derive(Debug)]
pub struct DamageFinding {
    pub damage: Damage,
    pub images: Vec<ImageId>,
    /// It has been repaired.
    pub repaired: bool,
}

#[derive(Debug)]
pub enum Damage {
    /// An image file cannot be read.
    Image { id: ImageId, error: Error },
    /// A pack cannot be opened, and none of its pages be had.
    Pack { root: PackRoot, error: Error },
    /// Pages of a pack do not match their hashes.
    Pages { root: PackRoot, slots: Range<u64> },
    /// Laid out files differ from the image they were made of.
    Layer { path: PathBuf, what: String },
    /// A file that the store has not named.
    Stray { path: PathBuf },
}

impl DamageFinding {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self.damage {
            Damage::Image { .. } => "store.image",
            Damage::Pack { .. } => "store.pack",
            Damage::Pages { .. } => "store.pages",
            Damage::Layer { .. } => "store.layer",
            Damage::Stray { .. } => "store.stray",
        }
    }
}

impl fmt::Display for DamageFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.damage {
            Damage::Image { id, error } => write!(f, "image {id} cannot be read: {error}")?,
            Damage::Pack { root, error } => write!(f, "pack {root} cannot be opened: {error}")?,
            Damage::Pages { root, slots } if slots.end - slots.start == 1 => {
                write!(f, "page {} of pack {root} is damaged", slots.start)?;
            }
            Damage::Pages { root, slots } => {
                write!(f, "pages {} to {} of pack {root} are damaged", slots.start, slots.end - 1)?;
            }
            Damage::Layer { path, what } => write!(f, "layer {}: {what}", path.display())?,
            Damage::Stray { path } => write!(f, "{} does not belong to the store", path.display())?,
        }
        match (self.repaired, self.images.len()) {
            (true, _) => write!(f, "; repaired"),
            (false, 0) => Ok(()),
            (false, 1) => write!(f, "; 1 image needs it"),
            (false, count) => write!(f, "; {count} images need it"),
        }
    }
}
