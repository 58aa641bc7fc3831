//! Why an image or a pack was refused: one enum per file kind, each with a stable code.
//!
//! The code is for programs and never changes; the message is for people and names the part and its
//! fault.

use std::io;

use crate::SectionKind;

/// An image file was refused, or could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    #[error("the contents do not match the name")]
    Renamed,
    #[error("not an image: the file does not begin with the image magic")]
    Magic,
    #[error("the image is torn: it needs {needed} bytes and has {found}")]
    Torn { needed: u64, found: u64 },
    #[error("image format {found}, this program reads {reads}")]
    Version { found: u16, reads: u16 },
    #[error("the image is for machine architecture {found} (ELF number), not for this one")]
    Arch { found: u16 },
    #[error("image flags {found:#06x} are not known to this program")]
    Flags { found: u16 },
    #[error("the image header has reserved bytes that are not zero")]
    Reserved,
    #[error("the image header claims {found} bytes, its section count makes {expected}")]
    HeaderLen { found: u32, expected: u32 },
    #[error("the image header or section table does not match its checksum")]
    HeaderChecksum,
    #[error("the compressed image does not match its checksum")]
    Packed,
    #[error("section `{kind}` of the image does not match its checksum")]
    SectionChecksum { kind: SectionKind },
    #[error("{what} of the image is {found}, the limit is {max}")]
    Limit { what: &'static str, found: u64, max: u64 },
    #[error("section kind {kind} (version {version}) is not known to this program")]
    SectionUnknown { kind: u32, version: u32 },
    #[error("section `{kind}` has version {found}, this program reads {reads}")]
    SectionVersion { kind: SectionKind, found: u32, reads: u32 },
    #[error("section `{kind}` appears twice")]
    SectionDuplicate { kind: SectionKind },
    #[error("section `{kind}` is missing")]
    SectionMissing { kind: SectionKind },
    #[error(
        "section `{kind}` begins at byte {offset}, before the previous section's end at byte {free}"
    )]
    SectionOverlap { kind: SectionKind, offset: u64, free: u64 },
    #[error("section `{kind}` begins at byte {offset}, leaving a gap from byte {free}")]
    SectionGap { kind: SectionKind, offset: u64, free: u64 },
    #[error("the image has {found} bytes, its last section ends at {expected}")]
    Trailing { expected: u64, found: u64 },
    #[error("section `{kind}` cannot be encoded: {source}")]
    Encode { kind: SectionKind, source: postcard::Error },
    #[error("section `{kind}` cannot be decoded: {source}")]
    Decode { kind: SectionKind, source: postcard::Error },
    #[error("section `{kind}` has {bytes} bytes left after decoding")]
    Leftover { kind: SectionKind, bytes: usize },
}

impl ImageError {
    /// The stable name of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Renamed => "image.renamed",
            Self::Magic => "image.magic",
            Self::Torn { .. } => "image.torn",
            Self::Version { .. } => "image.version",
            Self::Arch { .. } => "image.arch",
            Self::Flags { .. } => "image.flags",
            Self::Reserved => "image.reserved",
            Self::HeaderLen { .. } => "image.header",
            Self::HeaderChecksum | Self::Packed | Self::SectionChecksum { .. } => "image.checksum",
            Self::Limit { .. } => "image.limit",
            Self::SectionUnknown { .. } => "image.section_unknown",
            Self::SectionVersion { .. } => "image.section_version",
            Self::SectionDuplicate { .. } => "image.section_duplicate",
            Self::SectionMissing { .. } => "image.section_missing",
            Self::SectionOverlap { .. } | Self::SectionGap { .. } => "image.section_place",
            Self::Trailing { .. } => "image.trailing",
            Self::Encode { .. } => "image.encode",
            Self::Decode { .. } => "image.decode",
            Self::Leftover { .. } => "image.leftover",
        }
    }
}

/// A pack file was refused, or could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    #[error("not a pack: the file does not begin with the pack magic")]
    Magic,
    #[error("the pack is torn: {why} (the file has {len} bytes)")]
    Torn { why: &'static str, len: u64 },
    #[error("pack format {found}, this program reads {reads}")]
    Version { found: u16, reads: u16 },
    #[error("the pack header does not match its checksum")]
    HeaderChecksum,
    #[error("the pack index does not match its checksum")]
    IndexChecksum,
    #[error("pack flags {found:#06x} are not known to this program")]
    Flags { found: u16 },
    #[error("the pack header has reserved bytes that are not zero")]
    Reserved,
    #[error("the pack has pages of {found} bytes, this program reads {reads}")]
    PageSize { found: u32, reads: u32 },
    #[error("the pack is for machine architecture {found} (ELF number), not for this one")]
    Arch { found: u16 },
    #[error("{what} of the pack is {found}, the limit is {max}")]
    Limit { what: &'static str, found: u64, max: u64 },
    #[error("the pack is {found}, expected {expected}")]
    Root { found: crate::PackRoot, expected: crate::PackRoot },
    #[error("the lists of the pack do not match their checksum")]
    ListChecksum,
    #[error("the pack lists dead slots that it does not have")]
    DeadSlots,
    #[error(
        "{count} pages from page {slot} on cannot be unpacked: they do not match their checksum"
    )]
    Frame { slot: u64, count: u64 },
    #[error("the pack lists bases that cannot be")]
    Bases,
    #[error("page {slot} of the pack is a difference to a page of pack {root} that cannot be read")]
    Base { slot: u64, root: crate::PackRoot, source: Option<Box<PackError>> },
    #[error("page {slot} of the pack was dropped, because nothing referred to it")]
    Dropped { slot: u64 },
    #[error("page {slot} of the pack does not match its checksum")]
    Page { slot: u64 },
    #[error("{count} pages from page {slot} on were requested of a pack with {pages}")]
    Range { slot: u64, count: u64, pages: u64 },
    #[error("{len} bytes are not whole pages")]
    Unaligned { len: usize },
    #[error("{pages} pages came with {hashes} hashes")]
    HashCount { pages: usize, hashes: usize },
    #[error("an earlier write to the pack failed")]
    Poisoned,
    #[error("cannot {what} of the pack: {source}")]
    Io { what: &'static str, source: io::Error },
}

impl PackError {
    /// The stable name of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Magic => "pack.magic",
            Self::Torn { .. } => "pack.torn",
            Self::Version { .. } => "pack.version",
            Self::HeaderChecksum | Self::IndexChecksum | Self::ListChecksum => "pack.checksum",
            Self::DeadSlots => "pack.dead_slots",
            Self::Frame { .. } => "pack.frame",
            Self::Bases => "pack.bases",
            Self::Base { .. } => "pack.base",
            Self::Dropped { .. } => "pack.dropped",
            Self::Flags { .. } => "pack.flags",
            Self::Reserved => "pack.reserved",
            Self::PageSize { .. } => "pack.page_size",
            Self::Arch { .. } => "pack.arch",
            Self::Limit { .. } => "pack.limit",
            Self::Root { .. } => "pack.root",
            Self::Page { .. } => "pack.page",
            Self::Range { .. } => "pack.range",
            Self::Unaligned { .. } => "pack.unaligned",
            Self::HashCount { .. } => "pack.hash_count",
            Self::Poisoned => "pack.poisoned",
            Self::Io { .. } => "pack.io",
        }
    }
}
