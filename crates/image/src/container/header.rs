//! The fixed header and the section table: to bytes and back.

use super::{Arch, SectionKind};
use crate::ImageError;
use crate::fields::{Fields, all_zero};

/// The image format this program writes, and the only one it reads.
pub const FORMAT: u16 = 1;
/// The most sections a table may have, known kinds or not.
pub const MAX_SECTIONS: u32 = 32;
/// The longest payload: memory of some hundred GiB, page by page, fits.
pub const MAX_SECTION_LEN: u64 = 1 << 30;
/// The longest image file.
pub const MAX_IMAGE_LEN: u64 = 2 << 30;

pub(crate) const MAGIC: [u8; 8] = *b"STASIS\x1aI";
pub(crate) const CHECKSUM_AT: usize = 64;
pub(crate) const FIXED_LEN: usize = 96;
pub(crate) const ENTRY_LEN: usize = 56;
/// Magic and format: all that may be read of a file whose format is not known yet.
const PREFIX_LEN: usize = 10;

const _: () = assert!(8 + 2 + 2 + 4 + 2 + 2 + 4 + 40 == CHECKSUM_AT);
const _: () = assert!(CHECKSUM_AT + 32 == FIXED_LEN);
const _: () = assert!(4 + 4 + 8 + 8 + 32 == ENTRY_LEN);

/// One row of the section table, unvalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionEntry {
    pub(crate) kind: u32,
    pub(crate) version: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) checksum: [u8; 32],
}

impl SectionEntry {
    pub(crate) fn new(kind: SectionKind, offset: u64, payload: &[u8]) -> Self {
        Self {
            kind: kind.into(),
            version: kind.version(),
            offset,
            length: payload.len() as u64,
            checksum: *blake3::hash(payload).as_bytes(),
        }
    }

    pub(crate) fn decode(record: &[u8]) -> Self {
        let mut fields = Fields::of(record);
        Self {
            kind: fields.u32(),
            version: fields.u32(),
            offset: fields.u64(),
            length: fields.u64(),
            checksum: fields.bytes(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.checksum);
    }
}

/// The header and the table, with their checksum.
pub(crate) fn encode_header(arch: Arch, entries: &[SectionEntry]) -> Vec<u8> {
    let header_len = FIXED_LEN + entries.len() * ENTRY_LEN;
    let mut out = Vec::with_capacity(header_len);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&0_u16.to_le_bytes());
    out.extend_from_slice(&(header_len as u32).to_le_bytes());
    out.extend_from_slice(&(arch as u16).to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    out.resize(FIXED_LEN, 0);
    entries.iter().for_each(|entry| entry.encode(&mut out));
    let checksum = header_checksum(&out);
    out[CHECKSUM_AT..FIXED_LEN].copy_from_slice(&checksum);
    out
}

/// The checksum of a header with its table, without the bytes of the checksum itself.
pub(crate) fn header_checksum(header: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..CHECKSUM_AT]).update(&header[FIXED_LEN..]);
    *hasher.finalize().as_bytes()
}

/// The format number of an image, of this program's format or any other.
pub fn peek_format(bytes: &[u8]) -> Result<u16, ImageError> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(ImageError::Magic);
    }
    let prefix = bytes.get(..PREFIX_LEN).ok_or_else(|| torn(FIXED_LEN as u64, bytes))?;
    Ok(u16::from_le_bytes([prefix[8], prefix[9]]))
}

/// A header that has been verified, with its table.
pub(super) struct Header {
    pub(super) len: u64,
    pub(super) arch: Arch,
    pub(super) entries: Vec<SectionEntry>,
}

impl Header {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ImageError> {
        let found = peek_format(bytes)?;
        if found != FORMAT {
            return Err(ImageError::Version { found, reads: FORMAT });
        }
        limit("the length", bytes.len() as u64, MAX_IMAGE_LEN)?;
        let fixed = bytes.get(..FIXED_LEN).ok_or_else(|| torn(FIXED_LEN as u64, bytes))?;

        let mut fields = Fields::of(&fixed[PREFIX_LEN..]);
        let (flags, header_len, arch) = (fields.u16(), fields.u32(), fields.u16());
        let (reserved, section_count) = (fields.bytes::<2>(), fields.u32());
        let more_reserved = fields.bytes::<40>();

        let header = verify(bytes, header_len, section_count)?;
        if flags != 0 {
            return Err(ImageError::Flags { found: flags });
        }
        if !all_zero(&reserved) || !all_zero(&more_reserved) {
            return Err(ImageError::Reserved);
        }
        Ok(Self {
            len: header.len() as u64,
            arch: Arch::try_from(arch).map_err(|found| ImageError::Arch { found })?,
            entries: header[FIXED_LEN..]
                .chunks_exact(ENTRY_LEN)
                .map(SectionEntry::decode)
                .collect(),
        })
    }
}

/// The bytes of header and table, once their checksum is known to be right. The two lengths used
/// here come before the checksum, because it cannot be computed without them.
fn verify(bytes: &[u8], header_len: u32, section_count: u32) -> Result<&[u8], ImageError> {
    limit("the number of sections", section_count.into(), MAX_SECTIONS.into())?;
    let expected = FIXED_LEN as u32 + section_count * ENTRY_LEN as u32;
    if header_len != expected {
        return Err(ImageError::HeaderLen { found: header_len, expected });
    }
    let header = bytes.get(..expected as usize).ok_or_else(|| torn(expected.into(), bytes))?;
    if header_checksum(header) != header[CHECKSUM_AT..FIXED_LEN] {
        return Err(ImageError::HeaderChecksum);
    }
    Ok(header)
}

pub(super) fn limit(what: &'static str, found: u64, max: u64) -> Result<(), ImageError> {
    if found > max { Err(ImageError::Limit { what, found, max }) } else { Ok(()) }
}

pub(super) fn torn(needed: u64, bytes: &[u8]) -> ImageError {
    ImageError::Torn { needed, found: bytes.len() as u64 }
}
