//! The image format: a captured process tree on disk, as pure bytes.
//!
//! ```text
//!     image file (container)                      pack files (pack)
//!   ┌────────────────────────┐                  ┌─────────────────────┐
//!   │ header, section table  │    pack root +   │ header page         │
//!   │ meta  processes  files │ ── slot numbers ►│ page 0, page 1, ... │
//!   │ objects  memory        │                  │ hashes, footer      │
//!   └────────────────────────┘                  └─────────────────────┘
//!     small, one per checkpoint                   large, shared between images
//! ```
//!
//! An image describes processes, descriptors and mappings. The contents of memory are in packs,
//! addressed by their hash, so that a checkpoint stores only pages that its parents lack.
//!
//! Nothing is parsed before its checksum was verified, no length is used before it was compared
//! with a limit and with the file, and unknown data is refused by name. The checksums find damage;
//! they are not a signature: any user who can write to the store can write a valid image.
#![forbid(unsafe_code)]

mod bundle;
mod container;
mod digest;
mod error;
mod fields;
#[doc(hidden)]
pub mod fuzzing;
pub mod model;
pub mod pack;
mod page_hashes;
mod read_at;

pub use bundle::{BUNDLE_MAGIC, BundleError, BundleHead, MAX_HEAD_LEN};
pub use container::{
    Arch, FORMAT, ImageReader, ImageWriter, MAX_IMAGE_LEN, MAX_SECTION_LEN, MAX_SECTIONS,
    SealedImage, SectionKind, pack_image, peek_format, unpack_image,
};
pub use digest::{ImageId, OriginId, PackRoot, PageHash, ParseDigestError};
pub use error::{ImageError, PackError};
pub use pack::{
    BasePage, BasePages, Bases, PAGE_SIZE, PackForm, PackReader, PackSummary, PackWriter,
    PageLocation, PageSet, Rewrite, Slots,
};
pub use page_hashes::hash_pages;
pub use read_at::ReadAt;
