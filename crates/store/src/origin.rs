//! The origin of a file's inode number, as overlayfs records it.
//!
//! A file in an overlay's upper directory reports the number of its *origin*, the inode it was
//! copied up from, which the attribute below names: by its file system and by its handle there.
//! Overlayfs decodes it for the number alone, needs the inode to exist with one name, wherever
//! that is, and to be on the file system of one of its lower directories. If it is not, the file
//! reports a number of its own.
//!
//! Layout (`struct ovl_fb`): version 0, magic, length of it all, flags, kind of handle, the file
//! system's UUID, the handle.

use stasis_image::OriginId;
use stasis_sys::handles::FileHandle;

pub const ATTRIBUTE: &str = "trusted.overlay.origin";

const VERSION: u8 = 0;
const MAGIC: u8 = 0xfb;
/// Byte order of the machine: little-endian.
const FLAGS: u8 = 0;
const HEAD: usize = 21;
/// Maximum size that the kernel writes for any file system.
const MAX: usize = HEAD + 128;

/// One inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(Vec<u8>);

impl Origin {
    pub fn new(uuid: [u8; 16], handle: &FileHandle) -> Option<Origin> {
        let len = u8::try_from(HEAD + handle.bytes.len()).ok()?;
        let mut bytes = vec![VERSION, MAGIC, len, FLAGS, handle.kind];
        bytes.extend(uuid);
        bytes.extend(&handle.bytes);
        Origin::parse(bytes)
    }

    /// From an attribute's value; `None` if overlayfs would not accept it either.
    pub fn parse(bytes: Vec<u8>) -> Option<Origin> {
        let fine = (HEAD + 1..=MAX).contains(&bytes.len())
            && bytes[0] == VERSION
            && bytes[1] == MAGIC
            && usize::from(bytes[2]) == bytes.len();
        fine.then_some(Origin(bytes))
    }

    /// The attribute's value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn id(&self) -> OriginId {
        OriginId::of(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let handle = FileHandle { kind: 1, bytes: vec![7; 8] };
        let origin = Origin::new([3; 16], &handle).expect("an ordinary handle");
        let bytes = origin.as_bytes().to_vec();
        assert_eq!(bytes[..5], [0, 0xfb, 29, 0, 1]);
        assert_eq!((&bytes[5..21], &bytes[21..]), (&[3; 16][..], &[7; 8][..]));
        assert_eq!(Origin::parse(bytes), Some(origin));
    }

    #[test]
    fn what_is_no_origin_is_none() {
        assert_eq!(Origin::new([0; 16], &FileHandle { kind: 1, bytes: Vec::new() }), None);
        assert_eq!(Origin::new([0; 16], &FileHandle { kind: 1, bytes: vec![0; 129] }), None);
        let fine =
            Origin::new([0; 16], &FileHandle { kind: 1, bytes: vec![0; 8] }).expect("fine").0;
        for place in 0..3 {
            let mut other = fine.clone();
            other[place] += 1;
            assert_eq!(Origin::parse(other), None, "byte {place}");
        }
        // overlayfs's mark for an unknown origin
        assert_eq!(Origin::parse(Vec::new()), None);
    }
}
