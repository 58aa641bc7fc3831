//! An image file, compressed: for states that are kept and seldom read.
//!
//! ```text
//!   0    header 48   magic "STASIS\x1aJ" 8 | length unpacked 8 | checksum of the rest 32
//!   48   zstd        the image file
//! ```
//!
//! The checksum is verified before anything is unpacked, and the result is as long as declared, at
//! most [`MAX_IMAGE_LEN`]. The image is then verified like any other.

use std::borrow::Cow;
use std::io::Read;

use super::MAX_IMAGE_LEN;
use crate::ImageError;
use crate::fields::Fields;

const MAGIC: [u8; 8] = *b"STASIS\x1aJ";
const HEADER_LEN: usize = 48;
const LEVEL: i32 = 3;

/// The image compressed, or as it is where that would not be shorter.
pub fn pack_image(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Ok(packed) = zstd::bulk::compress(bytes, LEVEL) else { return bytes.into() };
    if packed.len() + HEADER_LEN >= bytes.len() {
        return bytes.into();
    }
    let mut all = MAGIC.to_vec();
    all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    all.extend_from_slice(blake3::hash(&packed).as_bytes());
    all.extend_from_slice(&packed);
    all.into()
}

/// The image file of these bytes: themselves, unless they are compressed.
pub fn unpack_image(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ImageError> {
    if !bytes.starts_with(&MAGIC) {
        return Ok(bytes.into());
    }
    let found = bytes.len() as u64;
    let torn = ImageError::Torn { needed: HEADER_LEN as u64, found };
    let (header, packed) = bytes.split_at_checked(HEADER_LEN).ok_or(torn)?;
    let mut fields = Fields::of(&header[8..]);
    let (len, checksum) = (fields.u64(), fields.bytes::<32>());
    if *blake3::hash(packed).as_bytes() != checksum {
        return Err(ImageError::Packed);
    }
    if len > MAX_IMAGE_LEN {
        return Err(ImageError::Limit { what: "the length", found: len, max: MAX_IMAGE_LEN });
    }
    // grows with the actual data, not with the declared length
    let mut image = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(packed);
    let read = decoder.and_then(|decoder| decoder.take(len + 1).read_to_end(&mut image));
    match read {
        Ok(_) if image.len() as u64 == len => Ok(image.into()),
        _ => Err(ImageError::Packed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_back_as_it_was_and_damage_is_found() {
        let image: Vec<u8> = (0..50_000_u32).map(|n| (n / 100) as u8).collect();
        let packed = pack_image(&image).into_owned();
        assert!(packed.len() < image.len() / 2);
        assert!(unpack_image(&packed).expect("intact") == image);
        assert!(unpack_image(&image).expect("plain") == image, "older files are read as they are");
        for at in 8..packed.len() {
            let mut bad = packed.clone();
            bad[at] ^= 1;
            assert!(unpack_image(&bad).is_err(), "byte {at}");
        }
        for end in 8..packed.len() {
            assert!(unpack_image(&packed[..end]).is_err(), "cut at {end}");
        }
        let random: Vec<u8> = (0..64).map(|n: u8| n.wrapping_mul(97)).collect();
        assert_eq!(*pack_image(&random), random[..], "what does not compress stays");
    }
}
