//! Reading an image.

use serde::de::DeserializeOwned;

use super::header::{Header, MAX_SECTION_LEN, SectionEntry, limit, torn};
use super::{Arch, SectionKind};
use crate::{ImageError, ImageId};

/// An image whose every byte has been verified: header, table and payloads match their checksums,
/// and each kind of section occurs once.
#[derive(Debug)]
pub struct ImageReader<'a> {
    bytes: &'a [u8],
    arch: Arch,
    payloads: [&'a [u8]; SectionKind::ALL.len()],
}

impl<'a> ImageReader<'a> {
    /// Verifies the whole image; nothing is decoded yet.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let header = Header::read(bytes)?;
        let mut found = [None; SectionKind::ALL.len()];
        let mut free = header.len;
        for entry in &header.entries {
            let kind = known(entry)?;
            let payload = place(bytes, entry, kind, free)?;
            if found[kind.index()].replace(payload).is_some() {
                return Err(ImageError::SectionDuplicate { kind });
            }
            if *blake3::hash(payload).as_bytes() != entry.checksum {
                return Err(ImageError::SectionChecksum { kind });
            }
            free += entry.length;
        }
        if free != bytes.len() as u64 {
            return Err(ImageError::Trailing { expected: free, found: bytes.len() as u64 });
        }
        let mut payloads: [&[u8]; SectionKind::ALL.len()] = Default::default();
        for kind in SectionKind::ALL {
            let payload = found[kind.index()].ok_or(ImageError::SectionMissing { kind })?;
            payloads[kind.index()] = payload;
        }
        Ok(Self { bytes, arch: header.arch, payloads })
    }

    /// Decodes a section. Bytes left over are an error: they would be state that is not restored.
    pub fn section<T: DeserializeOwned>(&self, kind: SectionKind) -> Result<T, ImageError> {
        let (value, rest) = postcard::take_from_bytes(self.payload(kind))
            .map_err(|source| ImageError::Decode { kind, source })?;
        if !rest.is_empty() {
            return Err(ImageError::Leftover { kind, bytes: rest.len() });
        }
        Ok(value)
    }

    /// The encoded form of a section.
    pub fn payload(&self, kind: SectionKind) -> &'a [u8] {
        self.payloads[kind.index()]
    }

    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The name of this image. Hashes the whole file, so keep the answer.
    pub fn id(&self) -> ImageId {
        ImageId::of(self.bytes)
    }
}

fn known(entry: &SectionEntry) -> Result<SectionKind, ImageError> {
    let SectionEntry { kind, version, .. } = *entry;
    let kind =
        SectionKind::try_from(kind).map_err(|kind| ImageError::SectionUnknown { kind, version })?;
    if !(kind.oldest()..=kind.version()).contains(&version) {
        return Err(ImageError::SectionVersion { kind, found: version, reads: kind.version() });
    }
    Ok(kind)
}

/// The payload of a section, which must begin at `free`, the end of the previous one.
fn place<'a>(
    bytes: &'a [u8],
    entry: &SectionEntry,
    kind: SectionKind,
    free: u64,
) -> Result<&'a [u8], ImageError> {
    let SectionEntry { offset, length, .. } = *entry;
    limit("the length of a section", length, MAX_SECTION_LEN)?;
    if offset < free {
        return Err(ImageError::SectionOverlap { kind, offset, free });
    }
    if offset > free {
        return Err(ImageError::SectionGap { kind, offset, free });
    }
    // `free` is inside the file and `length` is limited, so the sum cannot overflow.
    let end = free + length;
    bytes.get(free as usize..end as usize).ok_or_else(|| torn(end, bytes))
}
