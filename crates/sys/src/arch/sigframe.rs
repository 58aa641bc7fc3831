//! Signal frames: how a thread gets all its registers at once.
//!
//!   frame ─ 8 ► return address (unused)
//!   frame     ► ucontext: flags, link, alternate stack, general registers, signal mask
//!   xsave     ► legacy area, header, components, MAGIC2          (64-byte aligned)
//!
//! rt_sigreturn with the stack pointer at `frame` loads all of it. A size or magic the kernel
//! does not expect makes it fall back to the legacy area *silently*, hence the exact sizes.

use super::xstate::{enabled_area_size, enabled_components};

/// General registers in the order of `struct user_regs_struct`.
pub type UserRegs = libc::user_regs_struct;

/// The inputs of a frame.
pub struct FrameParts<'a> {
    pub regs: &'a UserRegs,
    /// Standard-format XSAVE area as PTRACE_GETREGSET gave it.
    pub xstate: &'a [u8],
    pub sigmask: u64,
    pub altstack: (u64, u32, u64),
}

const UCONTEXT_SIZE: usize = 304;
const XSAVE_AT: usize = 320;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;

/// Bytes a frame takes on this processor.
pub fn frame_size() -> usize {
    (XSAVE_AT + enabled_area_size() + 4).next_multiple_of(64)
}

/// Builds the frame for address `at` (64-byte aligned). The stack pointer for rt_sigreturn is
/// `at` itself.
pub fn build_frame(at: u64, parts: &FrameParts) -> Vec<u8> {
    debug_assert!(at.is_multiple_of(64));
    let mut frame = vec![0u8; frame_size()];
    write_ucontext(&mut frame[..UCONTEXT_SIZE], at, parts);
    write_xsave(&mut frame[XSAVE_AT..], parts.xstate);
    frame
}

fn write_ucontext(out: &mut [u8], at: u64, parts: &FrameParts) {
    let r = parts.regs;
    let segments = (r.cs & 0xffff) | (r.gs & 0xffff) << 16 | (r.fs & 0xffff) << 32 | r.ss << 48;
    let words = [
        UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
        0,
        parts.altstack.0,
        u64::from(parts.altstack.1),
        parts.altstack.2,
        r.r8,
        r.r9,
        r.r10,
        r.r11,
        r.r12,
        r.r13,
        r.r14,
        r.r15,
        r.rdi,
        r.rsi,
        r.rbp,
        r.rbx,
        r.rdx,
        r.rax,
        r.rcx,
        r.rsp,
        r.rip,
        r.eflags,
        segments,
        0,
        0,
        0,
        0,
        at + XSAVE_AT as u64,
    ];
    for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    // eight reserved words follow the pointer, then the signal mask
    out[296..304].copy_from_slice(&parts.sigmask.to_ne_bytes());
}

fn write_xsave(out: &mut [u8], xstate: &[u8]) {
    let components = enabled_components();
    let size = enabled_area_size();
    let known = xstate.len().min(size);
    out[..known].copy_from_slice(&xstate[..known]);
    // the header's component bitmap may name only components that fit here
    let mut bitmap = u64::from_ne_bytes(out[512..520].try_into().expect("eight bytes"));
    bitmap &= components;
    out[512..520].copy_from_slice(&bitmap.to_ne_bytes());
    out[464..468].copy_from_slice(&MAGIC1.to_ne_bytes());
    out[468..472].copy_from_slice(&(size as u32 + 4).to_ne_bytes());
    out[472..480].copy_from_slice(&components.to_ne_bytes());
    out[480..484].copy_from_slice(&(size as u32).to_ne_bytes());
    out[484..512].fill(0);
    out[size..size + 4].copy_from_slice(&MAGIC2.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_ends_with_the_second_magic() {
        let regs: UserRegs = crate::ptrace::zeroed_regs();
        let parts = FrameParts { regs: &regs, xstate: &[], sigmask: 7, altstack: (1, 2, 3) };
        let frame = build_frame(0x1000, &parts);
        let size = enabled_area_size();
        assert_eq!(frame[XSAVE_AT + size..XSAVE_AT + size + 4], MAGIC2.to_ne_bytes());
        assert_eq!(frame[296..304], 7u64.to_ne_bytes());
    }
}
