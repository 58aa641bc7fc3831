//! Files with machines: their beginning, and whole ones made consistent again.

use super::{reseal_cold, reseal_image};
use crate::bundle::sealed;
use crate::{BundleHead, ImageId, PackReader};

/// Any bytes, read as the beginning of a file with a machine.
pub fn bundle_reader(data: &[u8]) {
    check(data);
    // with a correct digest, as an attacker would write it
    if data.len() > 56 {
        check(&sealed(&data[56..]));
    }
}

fn check(bytes: &[u8]) {
    let mut rest = bytes;
    let Ok(head) = BundleHead::read(&mut rest) else { return };
    let again = head.encode().expect("what was read can be written");
    assert_eq!(BundleHead::read(&mut &again[..]).expect("written by us"), head);
}

/// The same file with every digest corrected: those of its images and packs, and that of the head
/// that names them. `None` if too little of it can be parsed.
pub fn reseal_bundle(data: &[u8]) -> Option<Vec<u8>> {
    let len = u64::from_le_bytes(*data.get(16..)?.first_chunk()?);
    let end = usize::try_from(len).ok()?.checked_add(56)?;
    let (mut head, _) = postcard::take_from_bytes::<BundleHead>(data.get(56..end)?).ok()?;
    let mut rest = data[end..].to_vec();
    let mut at = 0;
    for (id, len) in &mut head.images {
        let part = part(&mut rest, &mut at, *len)?;
        reseal_image(part);
        *id = ImageId::of(part);
    }
    for (root, len) in &mut head.packs {
        let part = part(&mut rest, &mut at, *len)?;
        reseal_cold(part);
        if let Ok(pack) = PackReader::open(&*part, part.len() as u64, None) {
            *root = pack.root();
        }
    }
    Some([sealed(&postcard::to_stdvec(&head).ok()?), rest].concat())
}

fn part<'a>(rest: &'a mut [u8], at: &mut usize, len: u64) -> Option<&'a mut [u8]> {
    let end = at.checked_add(usize::try_from(len).ok()?)?;
    let part = rest.get_mut(*at..end)?;
    *at = end;
    Some(part)
}
