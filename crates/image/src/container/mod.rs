//! The image file: a header that explains itself, a table, and one payload per kind of state.
//!
//! ```text
//!      0  magic "STASIS\x1aI"   8
//!      8  format                2    read first: another format may change all that follows
//!     10  flags                 2    none defined, zero
//!     12  header_len            4    fixed header and section table together
//!     16  arch                  2    ELF machine number
//!     18  reserved              2    zero
//!     20  section_count         4
//!     24  reserved             40    zero
//!     64  checksum             32    BLAKE3 of bytes 0..64 and the section table
//!     96  section table        56 each: kind 4 | version 4 | offset 8 | length 8 | checksum 32
//!      …  payloads                   without gaps, in the order of the table, to the end
//! ```
//!
//! All numbers are little-endian. A payload is the postcard form of a type the caller chooses,
//! and each kind of section has one version, so that a payload changes its meaning only with its
//! version.
//!
//! Reading goes magic, format, limits, header checksum, table, payload checksums, and only then a
//! payload is decoded. A file that is short is torn; one with an unknown section kind or version,
//! with bytes that belong to no section, or with a kind twice or not at all is refused, by name.
//!
//! Types that a section must not have, because postcard has no limit for them: recursive ones (a
//! hostile depth overflows the stack) and collections of elements that encode to no bytes (a
//! hostile count spins). Other hostile counts run out of input before they cost memory.

mod header;
mod packed;
mod reader;
mod section;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use header::{
    CHECKSUM_AT, ENTRY_LEN, FIXED_LEN, MAGIC, SectionEntry, encode_header, header_checksum,
};
pub use header::{FORMAT, MAX_IMAGE_LEN, MAX_SECTION_LEN, MAX_SECTIONS, peek_format};
pub use packed::{pack_image, unpack_image};
pub use reader::ImageReader;
pub use section::{Arch, SectionKind};
pub use writer::{ImageWriter, SealedImage};
