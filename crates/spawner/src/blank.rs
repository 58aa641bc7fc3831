//! The blank template: a process with nothing in it but the interpreter and its loop.

use stasis_spawner::layout;
use stasis_spawner::resident::resident_loop;
use stasis_sys::{arch, fds, memory, process};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Gives this process up. Returns only when that failed.
pub fn become_blank(socket: OwnedFd) -> ! {
    let result = prepare(socket);
    eprintln!("stasis-spawner: a blank template: {result:?}");
    process::exit_now(1)
}

fn prepare(socket: OwnedFd) -> io::Result<()> {
    process::block_signals();
    process::default_signals();
    process::set_name("stasis-template")?;
    let own = File::open("/proc/self/ns/pid")?;
    fds::place(socket.as_fd(), layout::TEMPLATE_CONTROL_FD)?;
    fds::place(own.as_fd(), layout::TEMPLATE_PIDNS_FD)?;
    std::mem::forget((socket, own));
    fds::close_range(0, layout::TEMPLATE_CONTROL_FD as u32 - 1)?;
    fds::close_range(layout::TEMPLATE_PIDNS_FD as u32 + 1, u32::MAX)?;
    forget_rseq();
    let (first, image) = resident_loop(&sweep_ranges());
    enter(first, &image)
}

/// glibc registered this thread's rseq area; it is about to be unmapped.
#[allow(unsafe_code)]
fn forget_rseq() {
    let (address, length, signature) = stasis_sys::arch::own_rseq();
    if length != 0 {
        let _ = process::unregister_rseq(address, length, signature);
    }
}

#[allow(unsafe_code)]
fn enter(first: u64, image: &[u8]) -> io::Result<()> {
    // SAFETY: the reserved range is free in this program (NOREPLACE refuses otherwise), the code
    // is the interpreter, the list at `first` loops for ever, and nothing of this program is
    // needed once it runs.
    unsafe {
        memory::map_fixed(layout::CODE, arch::interpreter_code(), true)?;
        memory::map_fixed(layout::LOOP, image, false)?;
        arch::enter_interpreter(layout::CODE, first, layout::LOOP)
    }
}

/// All of the address space but our own pages and the kernel's.
fn sweep_ranges() -> Vec<(u64, u64)> {
    const TOP: u64 = 0x7fff_ffff_f000;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut keep: Vec<(u64, u64)> = maps
        .lines()
        .filter(|line| ["[vdso]", "[vvar]", "[vvar_vclock]"].iter().any(|n| line.ends_with(n)))
        .filter_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        })
        .collect();
    keep.push((layout::RESERVED, layout::RESERVED_END));
    keep.sort_unstable();
    let mut ranges = Vec::new();
    let mut from = 0;
    for (start, end) in keep {
        ranges.push((from, start));
        from = end;
    }
    ranges.push((from, TOP));
    ranges.retain(|(start, end)| start < end);
    ranges
}
