//! All mappings of another process with their flags, as the kernel has them.
//!
//! `/proc/PID/smaps` tells the same, but counts every page on the way, which takes several times
//! longer than anything else a capture asks. Here a program of a dozen instructions runs in the
//! kernel's own walk over the mappings (a BPF iterator) and copies eight words of each. Kernels
//! that cannot do this, or do not describe their types, say so when it is loaded.

mod probe;

use crate::btf::Btf;
use crate::check;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bits of a mapping's flags, by the two letters smaps prints for them. They are no promise of the
/// kernel's, so a lister checks them before it is used, and a mapping with any other bit is not
/// understood.
const LETTERS: [(u32, &str); 27] = [
    (0, "rd"),
    (1, "wr"),
    (2, "ex"),
    (3, "sh"),
    (4, "mr"),
    (5, "mw"),
    (6, "me"),
    (7, "ms"),
    (8, "gd"),
    (9, "um"),
    (10, "pf"),
    (12, "uw"),
    (13, "lo"),
    (14, "io"),
    (15, "sr"),
    (16, "rr"),
    (17, "dc"),
    (18, "de"),
    (19, "lf"),
    (20, "ac"),
    (21, "nr"),
    (25, "wf"),
    (26, "dd"),
    (28, "mm"),
    (29, "hg"),
    (30, "nh"),
    (31, "mg"),
];
/// Set by the kernel for purposes of its own; says nothing about the mapping.
const SOFT_DIRTY: u64 = 1 << 27;

const KNOWN: u64 = {
    let (mut known, mut index) = (SOFT_DIRTY, 0);
    while index < LETTERS.len() {
        known |= 1 << LETTERS[index].0;
        index += 1;
    }
    known
};

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawVma {
    pub start: u64,
    pub end: u64,
    pub flags: u64,
    /// In pages.
    pub offset: u64,
    /// Which open file is mapped, as a number that means nothing else; 0 for none.
    pub file: u64,
    /// Whether it is one of the kernel's own or has a name without a file.
    pub special: bool,
    /// Whether it may hold pages of the process's own, or guard regions. The kernel prepares a
    /// private mapping (`anon_vma`) before the first of them.
    pub may_own: bool,
}

impl RawVma {
    fn from_record(record: &[u8]) -> RawVma {
        let word = |index: usize| {
            u64::from_ne_bytes(record[8 * index..8 * index + 8].try_into().expect("8 bytes"))
        };
        let [start, end, flags, offset, file, operations, name, own] = std::array::from_fn(word);
        let special = file == 0 && (operations, name) != (0, 0);
        RawVma { start, end, flags, offset, file, special, may_own: own != 0 }
    }

    /// Whether its writes are tracked, by a userfaultfd.
    pub fn is_tracked(&self) -> bool {
        const UFFD_WP: u64 = 1 << 12;
        self.flags & UFFD_WP != 0
    }

    /// Whether all flags are known.
    pub fn is_understood(&self) -> bool {
        self.flags & !KNOWN == 0
    }

    /// The flags as smaps prints them, without those that are not known.
    pub fn letters(&self) -> impl Iterator<Item = &'static str> {
        let flags = self.flags;
        let set = LETTERS.iter().filter(move |(bit, _)| flags >> bit & 1 == 1);
        set.map(|(_, letters)| *letters)
    }
}

const FIELDS: [&str; 8] =
    ["vm_start", "vm_end", "vm_flags", "vm_pgoff", "vm_file", "vm_ops", "anon_name", "anon_vma"];
const RECORD: usize = 8 * FIELDS.len();

/// The loaded program.
pub struct VmaLister {
    program: OwnedFd,
}

const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_ITER_CREATE: i32 = 33;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_ITER: u32 = 28;

impl VmaLister {
    pub fn load() -> io::Result<VmaLister> {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux")?;
        let (iterator, offsets) = Btf::parse(&bytes)
            .and_then(|btf| {
                // kernels that give no names to anonymous memory lack that field
                let known = |field: &str| btf.offset("vm_area_struct", field);
                let offset = |field: &&str| {
                    known(field).or_else(|| match *field {
                        "anon_name" => known("vm_ops"),
                        _ => None,
                    })
                };
                let offsets = FIELDS.iter().map(offset).collect::<Option<Vec<u32>>>()?;
                Some((btf.function("bpf_iter_task_vma")?, offsets))
            })
            .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let code = instructions(&offsets);
        // the helper that passes records on is open only to programs under such a licence
        let licence = c"Dual BSD/GPL";
        let mut attr = [0u8; 120];
        put(&mut attr, 0, &BPF_PROG_TYPE_TRACING.to_ne_bytes());
        put(&mut attr, 4, &(code.len() as u32).to_ne_bytes());
        put(&mut attr, 8, &(code.as_ptr() as u64).to_ne_bytes());
        put(&mut attr, 16, &(licence.as_ptr() as u64).to_ne_bytes());
        put(&mut attr, 68, &BPF_TRACE_ITER.to_ne_bytes());
        put(&mut attr, 108, &iterator.to_ne_bytes());
        let lister = VmaLister { program: bpf(BPF_PROG_LOAD, &attr)? };
        let agrees = probe::agrees(&lister)?;
        agrees.then_some(lister).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The mappings of a stopped process, given its first thread, in order.
    pub fn list(&self, tid: i32) -> io::Result<Vec<RawVma>> {
        // the most that one read of the kernel returns
        let mut buffer = vec![0; 32 << 10];
        let mut records = self.open(tid)?;
        let mut list: Vec<RawVma> = Vec::new();
        loop {
            let length = records.read(&mut buffer)?;
            let before = list.len();
            for record in buffer[..length].chunks_exact(RECORD) {
                let vma = RawVma::from_record(record);
                // where it resumes, the kernel may tell one again, the last one without end
                if list.last().is_none_or(|last| last.end <= vma.start) {
                    list.push(vma);
                }
            }
            if list.len() == before {
                return Ok(list);
            }
        }
    }

    /// A descriptor that reads as the records of one process.
    fn open(&self, tid: i32) -> io::Result<File> {
        let mut which = [0u8; 16];
        put(&mut which, 0, &tid.to_ne_bytes());
        let mut attr = [0u8; 48];
        put(&mut attr, 0, &self.program.as_raw_fd().to_ne_bytes());
        put(&mut attr, 8, &BPF_TRACE_ITER.to_ne_bytes());
        put(&mut attr, 16, &(which.as_ptr() as u64).to_ne_bytes());
        put(&mut attr, 24, &(which.len() as u32).to_ne_bytes());
        let link = bpf(BPF_LINK_CREATE, &attr)?;
        let mut attr = [0u8; 8];
        put(&mut attr, 0, &link.as_raw_fd().to_ne_bytes());
        bpf(BPF_ITER_CREATE, &attr).map(File::from)
    }
}

fn put(attr: &mut [u8], at: usize, bytes: &[u8]) {
    attr[at..at + bytes.len()].copy_from_slice(bytes);
}

fn bpf(command: i32, attr: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the attribute, and the buffers of this file whose addresses are in it, outlive the
    // call, which only reads them; these commands give a new descriptor, which is ours alone.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_bpf, command, attr.as_ptr(), attr.len()))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// For each mapping: its fields to the stack, the stack's record to the reader. After the last one
/// it is called without a mapping and does nothing.
fn instructions(offsets: &[u32]) -> Vec<u64> {
    const LOAD: u8 = 0x79;
    const STORE: u8 = 0x7b;
    const MOVE: u8 = 0xbf;
    const MOVE_NUMBER: u8 = 0xb7;
    const ADD_NUMBER: u8 = 0x07;
    const JUMP_IF_EQUAL: u8 = 0x15;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const SEQ_WRITE: i32 = 127;
    /// Offsets in the context of the program: the description of the walk, and the mapping.
    const META: i16 = 0;
    const VMA: i16 = 16;
    let op = |code: u8, to: u8, from: u8, offset: i16, number: i32| {
        u64::from(code)
            | u64::from(to | from << 4) << 8
            | u64::from(offset as u16) << 16
            | u64::from(number as u32) << 32
    };
    let record = -(RECORD as i32);
    let body = 2 * offsets.len() as i16 + 6;
    let mut code =
        vec![op(MOVE, 6, 1, 0, 0), op(LOAD, 7, 6, VMA, 0), op(JUMP_IF_EQUAL, 7, 0, body, 0)];
    for (index, offset) in offsets.iter().enumerate() {
        code.push(op(LOAD, 2, 7, *offset as i16, 0));
        code.push(op(STORE, 10, 2, record as i16 + 8 * index as i16, 0));
    }
    code.extend([
        op(LOAD, 1, 6, META, 0),
        op(LOAD, 1, 1, 0, 0),
        op(MOVE, 2, 10, 0, 0),
        op(ADD_NUMBER, 2, 0, 0, record),
        op(MOVE_NUMBER, 3, 0, 0, RECORD as i32),
        op(CALL, 0, 0, 0, SEQ_WRITE),
        op(MOVE_NUMBER, 0, 0, 0, 0),
        op(EXIT, 0, 0, 0, 0),
    ]);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs the right to load such programs; elsewhere nothing is claimed.
    #[test]
    fn the_list_is_that_of_proc() {
        let lister = match VmaLister::load() {
            Ok(lister) => lister,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return,
            Err(error) => panic!("{error}"),
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        // it is done with its start when it sleeps
        while !std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap().contains("sleep") {
            std::thread::yield_now();
        }
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let listed = lister.list(pid as i32).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let ranges: Vec<String> =
            listed.iter().map(|vma| format!("{:08x}-{:08x}", vma.start, vma.end)).collect();
        // the last line of proc is a page of the kernel's, which is no mapping
        let told: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(ranges, told[..ranges.len()]);
        assert!(told.len() - ranges.len() <= 1);
        for (vma, line) in listed.iter().zip(text.lines()) {
            assert!(vma.is_understood());
            let letters: Vec<&str> = vma.letters().collect();
            let perms = line.split(' ').nth(1).unwrap();
            for (letters_of, sign) in [("rd", 'r'), ("wr", 'w'), ("ex", 'x')] {
                assert_eq!(letters.contains(&letters_of), perms.contains(sign), "{line}");
            }
            assert_eq!(vma.file != 0, line.contains('/'), "{line}");
        }
    }
}
