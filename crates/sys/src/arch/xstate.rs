//! Sizes of the processor's extended register state.

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// AMX tile state (components 17 and 18) is allotted to a process only on request, so a frame
/// that claims it would be refused by a process that did not ask.
const AMX: u64 = 0b11 << 17;

/// Components the operating system enabled, without the ones given on request.
pub fn enabled_components() -> u64 {
    // SAFETY: XGETBV is usable when OSXSAVE is set, which every x86_64 kernel that can run this
    // program does (the baseline kernel of this project requires XSAVE hosts).
    unsafe { _xgetbv(0) & !AMX }
}

/// Bytes of a standard-format XSAVE area that holds the enabled components.
pub fn enabled_area_size() -> usize {
    // CPUID is slow under a hypervisor, which has to answer it
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| area_size(enabled_components()))
}

fn area_size(components: u64) -> usize {
    let legacy_and_header = 512 + 64;
    (2..63)
        .filter(|bit| components & (1 << bit) != 0)
        .map(|bit| {
            let leaf = __cpuid_count(0xd, bit);
            (leaf.ebx + leaf.eax) as usize
        })
        .fold(legacy_and_header, usize::max)
}

/// The CPU vendor string.
pub fn vendor() -> String {
    let leaf = __cpuid_count(0, 0);
    let bytes: Vec<u8> =
        [leaf.ebx, leaf.edx, leaf.ecx].iter().flat_map(|word| word.to_le_bytes()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The calling thread's rseq area as the C library registered it: address, length, signature.
/// Length 0 when it did not.
pub fn own_rseq() -> (u64, u32, u32) {
    const SIGNATURE: u32 = 0x5305_3053;
    // SAFETY: the symbols are data that glibc (2.35 and newer) exports for this purpose; the
    // thread pointer is read from fs:0, where the ABI keeps it.
    unsafe {
        let name = |name: &std::ffi::CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let (offset, size) = (name(c"__rseq_offset"), name(c"__rseq_size"));
        if offset.is_null() || size.is_null() || size.cast::<u32>().read() == 0 {
            return (0, 0, 0);
        }
        let thread_pointer: u64;
        std::arch::asm!("mov {}, fs:0", out(reg) thread_pointer);
        let address = thread_pointer.wrapping_add_signed(offset.cast::<isize>().read() as i64);
        // glibc reports the features it uses, but registers the original 32 bytes
        (address, size.cast::<u32>().read().max(32), SIGNATURE)
    }
}
