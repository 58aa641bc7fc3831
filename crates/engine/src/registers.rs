//! A thread's registers: as the kernel has them, and as images do.

use stasis_image::model::Registers;
use stasis_sys::arch::UserRegs;

/// The other form of a thread's registers; every register is in both.
macro_rules! converted {
    ($from:expr, $to:ident, $($register:ident)+) => {
        $to { $($register: $from.$register),+ }
    };
    ($from:expr, $to:ident) => {
        converted!($from, $to, r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax
            rip cs eflags rsp ss fs_base gs_base ds es fs gs)
    };
}

pub fn captured(regs: &UserRegs) -> Registers {
    converted!(regs, Registers)
}

pub fn restored(regs: &Registers) -> UserRegs {
    converted!(regs, UserRegs)
}
