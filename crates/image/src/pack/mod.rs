//! The pack file: the contents of pages, addressed by their hash.
//!
//! ```text
//!   0                header page  4096   magic "STASIS\x1aP" 8 | format 2 | flags 2 | page_size 4
//!                                        | arch 2 | reserved, zero | at 4064: checksum 32
//!   4096 · (i + 1)   page i       4096 each, so that a page can be mapped or copied as it lies
//!   4096 · (n + 1)   index        32 each: the BLAKE3 hash of page i
//!   (partial)        dead slots   a bit each, padded to 32 bytes | checksum 32
//!   the last 80      footer       magic "STASIS\x1aE" 8 | n 8 | root 32 | checksum 32
//! ```
//!
//! All numbers are little-endian. The root is the BLAKE3 hash of the index; an image names it, and
//! thereby every page, in 32 bytes. Header and footer are each covered by their own checksum.
//!
//! A pack is written front to back, and the footer comes last: a file whose end is not a footer
//! that matches the file's length exactly was not finished, and is refused as torn. Pages come
//! from programs that may be hostile and could hold what looks like an index and a footer. That
//! does not help them: a pack's length is never a whole number of pages, so a file cut between
//! pages never passes, and a cut elsewhere shows another root than the image expects.
//!
//! A pack is never changed in place. When most of its pages are unneeded, it is rewritten with
//! holes for those and a list of them (flag 1); when it has not been used for long, in its cold
//! form, compressed ([`cold`]), or as differences to pages of other packs ([`bases`]). Slots and
//! root stay the same.
//!
//! Opening verifies everything but the pages. A page is verified when it is read, so that the cost
//! of opening depends on the index alone, and damage is reported by slot:
//! `page 17 of the pack does not match its checksum`.

mod bases;
mod cold;
mod ends;
mod plain;
mod reader;
mod rewrite;
mod set;
mod slots;
#[cfg(test)]
mod tests;
mod writer;

pub use bases::{BasePage, BasePages, Bases};
pub(crate) use cold::{
    COLD_FOOTER_LEN, COLD_HEADER_LEN, ColdFooter, ENTRY_LEN, bases_len, lists_checksum,
};
pub use cold::{COLD_FORMAT, DELTA_FORMAT, FRAME_PAGES};
pub(crate) use ends::{FOOTER_LEN, Footer, HASH_LEN, HEADER_CHECKSUM_AT, PackKind, file_len, seal};
pub use ends::{FORMAT, MAX_PAGES, PAGE_SIZE, page_offset};
pub use reader::PackReader;
pub use rewrite::Rewrite;
pub use set::{PageLocation, PageSet};
pub use slots::Slots;
pub use writer::{PackSummary, PackWriter};

/// The layout of a pack's pages in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PackForm {
    /// Uncompressed.
    Plain,
    /// Compressed, a few at a time.
    Cold,
    /// Compressed, and some of them as differences to pages of other packs.
    Delta,
}
