//! Hiding the vdso from a new program.
//!
//! The C library calls into the kernel's vdso by addresses from the auxiliary vector. An image of
//! such a program could be restored only on the same kernel build. At exec the entry is turned into
//! AT_IGNORE, in the program's stack and in the kernel's copy, so the library uses system calls
//! instead.

use crate::error::{ErrorContext, Result};
use crate::inject::{InjectionSite, Injector};
use stasis_sys::memory::ProcessMemory;
use stasis_sys::{libc, ptrace};

const AT_IGNORE: u64 = 1;
pub const PR_SET_MM: u64 = 35;
pub const PR_SET_MM_MAP: u64 = 14;
pub const AT_SYSINFO_EHDR: u64 = 33;

/// Called at the exec stop, before the first instruction of the new program.
pub fn hide(pid: i32) -> Result<()> {
    let memory = ProcessMemory::open(pid).doing(|| format!("open the memory of {pid}"))?;
    let regs = ptrace::regs(pid).doing(|| format!("read registers of {pid}"))?;
    let auxv = auxv_address(&memory, regs.rsp)?;
    let mut at = auxv;
    loop {
        let kind = word(&memory, at)?;
        if kind == 0 {
            return Ok(());
        }
        if kind == AT_SYSINFO_EHDR {
            memory.write(at, &AT_IGNORE.to_ne_bytes()).doing(|| "hide the vdso".into())?;
            return forget_in_kernel(pid, &memory);
        }
        at += 16;
    }
}

/// The stack of a new program: argc, argv, 0, envp, 0, auxv.
fn auxv_address(memory: &ProcessMemory, stack: u64) -> Result<u64> {
    let mut at = stack + 8 * (word(memory, stack)? + 2);
    while word(memory, at)? != 0 {
        at += 8;
    }
    Ok(at + 8)
}

/// `/proc/PID/auxv` comes from the kernel's own copy; it is made to agree.
fn forget_in_kernel(pid: i32, memory: &ProcessMemory) -> Result<()> {
    let regs = ptrace::regs(pid).doing(|| format!("read registers of {pid}"))?;
    // a new program has no rseq yet; setting these fields is not for machines to do
    let site = InjectionSite::find(pid, memory, &regs, &[])?.under(true);
    let mut injector = Injector::of_copy(pid, memory, site)?;
    let mut fields = crate::capture::mm_fields(pid)?;
    fields.brk = injector.must("brk", libc::SYS_brk, [0; 6])? as u64;
    for pair in fields.auxv.chunks_exact_mut(2) {
        if pair[0] == AT_SYSINFO_EHDR {
            pair[0] = AT_IGNORE;
        }
    }
    let auxv: Vec<u8> = fields.auxv.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let auxv_at = injector.put(128, &auxv)?;
    let map = crate::plan::mm_map(&fields, auxv_at, u32::MAX);
    let at = injector.put(0, &map)?;
    let args = [PR_SET_MM, PR_SET_MM_MAP, at, map.len() as u64, 0, 0];
    injector.must("hide the vdso", libc::SYS_prctl, args)?;
    crate::inject::install_interpreter(&mut injector)?;
    injector.finish()
}

fn word(memory: &ProcessMemory, at: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    memory.read(at, &mut bytes).doing(|| "read a new program's stack".into())?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Hash of this kernel's vdso code; `None` where there is none.
pub fn own_hash() -> Option<[u8; 32]> {
    let pid = std::process::id() as i32;
    let maps = crate::proc::parse_maps(&crate::proc::read_text(pid, "maps").ok()?)?;
    let vdso = maps.iter().find(|map| map.path == "[vdso]")?;
    let mut bytes = vec![0; (vdso.end - vdso.start) as usize];
    ProcessMemory::open(pid).ok()?.read(vdso.start, &mut bytes).ok()?;
    Some(*blake3::hash(&bytes).as_bytes())
}
