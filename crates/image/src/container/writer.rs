//! Writing an image.

use serde::Serialize;

use super::header::{ENTRY_LEN, FIXED_LEN, MAX_IMAGE_LEN, MAX_SECTION_LEN, SectionEntry, limit};
use super::{Arch, SectionKind, encode_header};
use crate::{ImageError, ImageId};

/// Collects the sections of an image. The order in which they are given does not matter: the same
/// values make the same bytes, and so the same [`ImageId`].
#[derive(Debug)]
pub struct ImageWriter {
    arch: Arch,
    payloads: [Option<Vec<u8>>; SectionKind::ALL.len()],
}

/// A finished image file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedImage {
    pub id: ImageId,
    pub bytes: Vec<u8>,
}

impl ImageWriter {
    pub fn new(arch: Arch) -> Self {
        Self { arch, payloads: Default::default() }
    }

    /// Encodes `value` as the section of this kind, in the kind's current version.
    pub fn section<T: Serialize + ?Sized>(
        &mut self,
        kind: SectionKind,
        value: &T,
    ) -> Result<&mut Self, ImageError> {
        let slot = &mut self.payloads[kind.index()];
        if slot.is_some() {
            return Err(ImageError::SectionDuplicate { kind });
        }
        let payload =
            postcard::to_stdvec(value).map_err(|source| ImageError::Encode { kind, source })?;
        limit("the length of a section", payload.len() as u64, MAX_SECTION_LEN)?;
        *slot = Some(payload);
        Ok(self)
    }

    /// The whole file. Every kind of section must have been given.
    pub fn finish(self) -> Result<SealedImage, ImageError> {
        let mut sections = Vec::with_capacity(SectionKind::ALL.len());
        for (kind, payload) in SectionKind::ALL.into_iter().zip(self.payloads) {
            sections.push((kind, payload.ok_or(ImageError::SectionMissing { kind })?));
        }
        let mut end = (FIXED_LEN + sections.len() * ENTRY_LEN) as u64;
        let mut entries = Vec::with_capacity(sections.len());
        for (kind, payload) in &sections {
            entries.push(SectionEntry::new(*kind, end, payload));
            end += payload.len() as u64;
        }
        limit("the length", end, MAX_IMAGE_LEN)?;

        let mut bytes = encode_header(self.arch, &entries);
        bytes.reserve_exact(end as usize - bytes.len());
        sections.iter().for_each(|(_, payload)| bytes.extend_from_slice(payload));
        debug_assert_eq!(bytes.len() as u64, end, "the table describes the file");
        Ok(SealedImage { id: ImageId::of(&bytes), bytes })
    }
}
