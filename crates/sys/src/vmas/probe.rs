//! Whether the numbers of a mapping's flags mean what we think: mappings of our own are marked in
//! every way, and the answer must be what smaps says of them.

use super::VmaLister;
use crate::{PAGE, check};
use std::io;

/// Marks that a capture must not miss.
const NEEDED: [&str; 2] = ["dc", "wf"];

pub fn agrees(lister: &VmaLister) -> io::Result<bool> {
    let pages = Pages::marked()?;
    let pid = std::process::id();
    let listed = lister.list(pid as i32)?;
    let told = std::fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    // the locked page is there, and all others never were
    let (mut seen, mut owned) = (Vec::new(), false);
    for address in pages.addresses() {
        let vma = listed.iter().find(|vma| (vma.start..vma.end).contains(&address));
        let Some(vma) = vma.filter(|vma| vma.is_understood()) else { return Ok(false) };
        let Some(expected) = flags_at(&told, address) else { return Ok(false) };
        if !expected.split_whitespace().filter(|own| *own != "sd").eq(vma.letters()) {
            return Ok(false);
        }
        seen.extend(vma.letters());
        owned |= vma.may_own;
    }
    Ok(owned && NEEDED.iter().all(|needed| seen.contains(needed)))
}

/// The smaps entry of the mapping at an address.
fn flags_at(smaps: &str, address: u64) -> Option<&str> {
    let holds = |line: &str| -> Option<bool> {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((number(start)?..number(end)?).contains(&address))
    };
    let mut lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
    lines.find_map(|line| line.strip_prefix("VmFlags:"))
}

/// Pages of our own, each marked in another way. Marks that this kernel lacks are skipped.
struct Pages {
    base: *mut libc::c_void,
}

const ADVICE: [i32; 6] = [
    libc::MADV_DONTFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_DONTDUMP,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_MERGEABLE,
];
const COUNT: u64 = ADVICE.len() as u64 + 2;
const LEN: usize = (COUNT * PAGE) as usize;

impl Pages {
    fn marked() -> io::Result<Pages> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses a free range, which no other value uses and which is unmapped
        // on drop; advice and locks on it change no memory that is read.
        unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(std::ptr::null_mut(), LEN, prot, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let pages = Pages { base };
            for (index, advice) in ADVICE.iter().enumerate() {
                libc::madvise(base.byte_add(index * PAGE as usize), PAGE as usize, *advice);
            }
            let lock = base.byte_add(ADVICE.len() * PAGE as usize);
            check(libc::mlock(lock, PAGE as usize).into())?;
            Ok(pages)
        }
    }

    fn addresses(&self) -> impl Iterator<Item = u64> {
        let base = self.base as u64;
        (0..COUNT).map(move |index| base + index * PAGE)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the range `marked` mapped.
        unsafe { libc::munmap(self.base, LEN) };
    }
}
