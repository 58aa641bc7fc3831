//! The head of a machine's export file: its description, and the parts that follow.
//!
//! ```text
//!   magic ─ length of the head ─ its digest ─ head ─ images ─ packs ─ files ─ the caller's own
//!                                              │
//!                                              └─ about (the caller's), names and lengths
//! ```
//!
//! The digest covers the head, and the head names every part by its own digest, so the head's
//! digest identifies everything. Nothing is decoded before it was verified, and no length is used
//! before it was compared with a limit.

use crate::{ImageId, MAX_IMAGE_LEN, PackRoot};
use serde::{Deserialize, Serialize};
use std::io::Read;

pub const BUNDLE_MAGIC: &[u8; 16] = b"stasis machine 2";
/// The first bytes of every version.
const KIN: usize = 15;
/// The longest head: the log of a machine is in it.
pub const MAX_HEAD_LEN: u64 = 256 << 20;
/// Parts of each kind.
const MAX_PARTS: usize = 200_000;
/// All images together: their contents are in memory during an import.
const MAX_IMAGES_LEN: u64 = 4 << 30;
const MAX_PACK_LEN: u64 = 1 << 40;
const MAX_FILE_LEN: u64 = 1 << 40;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleHead {
    /// The caller's description of the machine.
    pub about: Vec<u8>,
    /// Each with its length in bytes, in the order they follow.
    pub images: Vec<(ImageId, u64)>,
    pub packs: Vec<(PackRoot, u64)>,
    /// Other files, each with the hash of its contents.
    pub files: Vec<([u8; 32], u64)>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    #[error("not an exported machine")]
    Magic,
    #[error("the file has another format: it starts with {0:?}")]
    Version(String),
    #[error("the file declares {what} as {found}, more than {most}")]
    Limit { what: &'static str, found: u64, most: u64 },
    #[error("the file is damaged: its head does not match its digest")]
    Digest,
    #[error("the file is malformed: {0}")]
    Decode(#[from] postcard::Error),
    #[error("the file is malformed: {0} bytes of its head are left over")]
    Leftover(usize),
    #[error("the file breaks off: {0}")]
    Io(#[from] std::io::Error),
}

impl BundleError {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            BundleError::Magic => "bundle.magic",
            BundleError::Version(_) => "bundle.version",
            BundleError::Limit { .. } => "bundle.limit",
            BundleError::Digest => "bundle.digest",
            BundleError::Decode(_) | BundleError::Leftover(_) => "bundle.decode",
            BundleError::Io(_) => "bundle.torn",
        }
    }

    /// The next step for the caller.
    pub fn hint(&self) -> &'static str {
        match self {
            BundleError::Magic => "`stasis export` writes such files",
            BundleError::Version(_) => "export it again with this version of Stasis",
            BundleError::Limit { .. } => "the file is damaged or forged: export it again",
            BundleError::Digest | BundleError::Decode(_) | BundleError::Leftover(_) => {
                "the file is damaged: copy or export it again"
            }
            BundleError::Io(_) => "send the whole file again",
        }
    }
}

impl BundleHead {
    /// The bytes a file begins with.
    pub fn encode(&self) -> Result<Vec<u8>, BundleError> {
        self.check()?;
        let head = postcard::to_stdvec(self)?;
        limit("the head's length", head.len() as u64, MAX_HEAD_LEN)?;
        Ok(sealed(&head))
    }

    /// Reads the beginning of a file; the parts follow.
    pub fn read(from: &mut dyn Read) -> Result<BundleHead, BundleError> {
        let mut fixed = [0; 56];
        from.read_exact(&mut fixed[..16])?;
        if &fixed[..16] != BUNDLE_MAGIC {
            let kin = fixed[..KIN] == BUNDLE_MAGIC[..KIN];
            let found = || String::from_utf8_lossy(&fixed[..16]).into_owned();
            return Err(if kin { BundleError::Version(found()) } else { BundleError::Magic });
        }
        from.read_exact(&mut fixed[16..])?;
        let mut len = [0; 8];
        len.copy_from_slice(&fixed[16..24]);
        let len = u64::from_le_bytes(len);
        limit("the head's length", len, MAX_HEAD_LEN)?;
        // grows as bytes come, not as they are promised
        let mut head = Vec::new();
        from.take(len).read_to_end(&mut head)?;
        if head.len() as u64 != len || blake3::hash(&head).as_bytes() != &fixed[24..] {
            return Err(BundleError::Digest);
        }
        let (head, rest) = postcard::take_from_bytes::<BundleHead>(&head)?;
        if !rest.is_empty() {
            return Err(BundleError::Leftover(rest.len()));
        }
        head.check()?;
        Ok(head)
    }

    fn check(&self) -> Result<(), BundleError> {
        let counts = [
            ("the number of images", self.images.len()),
            ("the number of packs", self.packs.len()),
            ("the number of files", self.files.len()),
        ];
        for (what, count) in counts {
            limit(what, count as u64, MAX_PARTS as u64)?;
        }
        let all = self.images.iter().fold(0u64, |sum, (_, len)| sum.saturating_add(*len));
        limit("the length of all images", all, MAX_IMAGES_LEN)?;
        let images = self.images.iter().map(|(_, len)| ("an image", *len, MAX_IMAGE_LEN));
        let packs = self.packs.iter().map(|(_, len)| ("a pack", *len, MAX_PACK_LEN));
        let files = self.files.iter().map(|(_, len)| ("a file", *len, MAX_FILE_LEN));
        images.chain(packs).chain(files).try_for_each(|(what, len, most)| limit(what, len, most))
    }
}

/// A head with its digest, of any content.
pub(crate) fn sealed(head: &[u8]) -> Vec<u8> {
    let mut bytes = BUNDLE_MAGIC.to_vec();
    bytes.extend_from_slice(&(head.len() as u64).to_le_bytes());
    bytes.extend_from_slice(blake3::hash(head).as_bytes());
    bytes.extend_from_slice(head);
    bytes
}

fn limit(what: &'static str, found: u64, most: u64) -> Result<(), BundleError> {
    if found <= most { Ok(()) } else { Err(BundleError::Limit { what, found, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BundleHead {
        BundleHead {
            about: b"{}".to_vec(),
            images: vec![(ImageId::of(b"i"), 7)],
            packs: vec![(PackRoot::of(b"p"), 9)],
            files: vec![(*blake3::hash(b"f").as_bytes(), 1)],
        }
    }

    #[test]
    fn written_and_read_again() {
        let mut bytes = sample().encode().expect("small");
        bytes.extend_from_slice(b"the rest");
        let mut rest = &bytes[..];
        assert_eq!(BundleHead::read(&mut rest).expect("whole"), sample());
        assert_eq!(rest, b"the rest");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = sample().encode().expect("small");
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(BundleHead::read(&mut &bad[..]).is_err(), "byte {at}");
            assert!(BundleHead::read(&mut &bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_generation_is_told_from_another_kind_of_file() {
        let mut older = sample().encode().expect("small");
        older[15] = b'1';
        assert_eq!(BundleHead::read(&mut &older[..]).expect_err("older").code(), "bundle.version");
        older[3] = b'x';
        assert_eq!(BundleHead::read(&mut &older[..]).expect_err("other").code(), "bundle.magic");
    }

    #[test]
    fn lengths_are_not_believed() {
        let mut huge = sample().encode().expect("small");
        huge[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(BundleHead::read(&mut &huge[..]).expect_err("huge").code(), "bundle.limit");
        let images = (0..3).map(|n: u8| (ImageId::of(&[n]), MAX_IMAGE_LEN)).collect();
        let long = [
            BundleHead { packs: vec![(PackRoot::of(b"p"), u64::MAX)], ..sample() },
            BundleHead { files: vec![([0; 32], u64::MAX)], ..sample() },
            BundleHead { images: vec![(ImageId::of(b"i"), MAX_IMAGE_LEN + 1)], ..sample() },
            BundleHead { images, ..sample() },
        ];
        for head in long {
            // no writer produces such a file, and no reader accepts one
            assert_eq!(head.encode().expect_err("long").code(), "bundle.limit");
            let bytes = sealed(&postcard::to_stdvec(&head).expect("small"));
            assert_eq!(BundleHead::read(&mut &bytes[..]).expect_err("long").code(), "bundle.limit");
        }
    }
}
