//! The pack file: the contents of pages, addressed by their hash.
//!
//! ```text
//!   0                header page  4096   magic "STASIS\x1aP" 8 | format 2 | flags 2 | page_size 4
//!                                        | arch 2 | reserved, zero | at 4064: checksum 32
//!   4096 · (i + 1)   page i       4096 each, so that a page can be mapped or copied as it lies
//!   4096 · (n + 1)   index        32 each: the BLAKE3 hash of page i
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
//! Opening verifies everything but the pages. A page is verified when it is read, so that opening
//! costs time by the index alone, and damage is told by slot: `page 17 of the pack does not match
//! its checksum`.

mod ends;
mod reader;
mod set;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use ends::{FOOTER_LEN, Footer, HASH_LEN, HEADER_CHECKSUM_AT, file_len, seal};
pub use ends::{FORMAT, MAX_PAGES, PAGE_SIZE, page_offset};
pub use reader::PackReader;
pub use set::{PageLocation, PageSet};
pub use writer::{PackSummary, PackWriter};
