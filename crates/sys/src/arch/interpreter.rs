//! The only code that ever runs inside a restored process before its own does.
//!
//! It is a position-independent, stackless loop over a list of operations, one page long. A planner
//! in ordinary code writes the list; this loop executes it:
//!
//!   rbx ──► op  { call, args[6], store, mode, target }   80 bytes each
//!           │   perform the call; keep the result where `store` says
//!           │   mode Must:    a negative result ends the process group, reported
//!           │   mode Any:     whatever the result, go on
//!           └── mode IfZero:  zero goes to `target`, else as Must
//!
//! It uses no stack, so it survives unmapping everything but itself, and threads or CLONE_VM
//! children can run it at once. Calls with numbers from `SPECIAL` on are its own few verbs.
//!
//! Failure: the address of the failing operation and its result are written to the report page
//! (r13), then the whole process ends with status 111. The planner reads the report.

use std::arch::global_asm;

/// First call number that is not a system call.
pub const SPECIAL: u64 = 0x1_0000;
/// Go to `target`.
pub const JUMP: u64 = SPECIAL;
/// Load the signal frame at args[0] and become the program.
pub const SIGRETURN: u64 = SPECIAL + 1;
/// Wait until the 32-bit word at args[0] is at least args[1].
pub const AWAIT: u64 = SPECIAL + 2;
/// Add one to the 32-bit word at args[0] and wake its waiters.
pub const ARRIVE: u64 = SPECIAL + 3;
/// Write the 64-bit value args[1] at args[0].
pub const STORE: u64 = SPECIAL + 4;
/// Set the report page's address to args[0].
pub const REPORT: u64 = SPECIAL + 5;

/// Watch the 32-bit word at args[0] until it is at least args[1], without a system call.
pub const WATCH: u64 = SPECIAL + 6;

/// Stop, for a tracer.
pub const TRAP: u64 = SPECIAL + 7;

/// One operation, as the loop reads it from memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    pub call: u64,
    pub args: [u64; 6],
    /// The address for the result; 0: none.
    pub store: u64,
    pub mode: u64,
    pub target: u64,
}

/// The meaning of an operation's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum ResultMode {
    Must = 0,
    Any = 1,
    IfZero = 2,
}

pub const OP_SIZE: u64 = size_of::<Op>() as u64;

impl Op {
    pub fn to_bytes(&self) -> [u8; OP_SIZE as usize] {
        let mut out = [0; OP_SIZE as usize];
        let words =
            [self.call].into_iter().chain(self.args).chain([self.store, self.mode, self.target]);
        for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        out
    }
}

/// Words of the report page.
pub const REPORT_FAILED_OP: u64 = 0;
pub const REPORT_RESULT: u64 = 8;
/// Exit status of a process group that a failed operation ended.
pub const FAILED_STATUS: i32 = 111;

global_asm!(
    ".pushsection .rodata.stasis_interpreter,\"a\",@progbits",
    ".balign 16",
    ".globl stasis_interpreter_start",
    ".hidden stasis_interpreter_start",
    "stasis_interpreter_start:",
    "2:", // next operation
    "mov rax, [rbx]",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8,  [rbx + 40]",
    "mov r9,  [rbx + 48]",
    "cmp rax, 0x10000",
    "jae 5f",
    "syscall",
    "mov rcx, [rbx + 56]", // store
    "test rcx, rcx",
    "jz 3f",
    "mov [rcx], rax",
    "3:",
    "mov rcx, [rbx + 64]", // mode
    "cmp rcx, 1",
    "je 4f",
    "cmp rax, -4095",
    "jae 9f",
    "cmp rcx, 2",
    "jne 4f",
    "test rax, rax",
    "jnz 4f",
    "mov rbx, [rbx + 72]",
    "jmp 2b",
    "4:",
    "add rbx, 80",
    "jmp 2b",
    // the verbs that are not system calls
    "5:",
    "cmp rax, 0x10000",
    "jne 6f",
    "mov rbx, [rbx + 72]",
    "jmp 2b",
    "6:",
    "cmp rax, 0x10001",
    "jne 7f",
    "mov rsp, rdi",
    "mov eax, 15",
    "syscall",
    "ud2",
    "7:",
    "cmp rax, 0x10002",
    "jne 8f",
    "mov edx, [rdi]",
    "cmp edx, [rbx + 16]",
    "jae 4b",
    "mov esi, 0", // FUTEX_WAIT, shared
    "xor r10d, r10d",
    "mov eax, 202",
    "syscall",
    "jmp 2b",
    "8:",
    "cmp rax, 0x10003",
    "jne 20f",
    "lock inc dword ptr [rdi]",
    "mov esi, 1", // FUTEX_WAKE, shared
    "mov edx, 0x7fffffff",
    "mov eax, 202",
    "syscall",
    "jmp 4b",
    "20:",
    "cmp rax, 0x10004",
    "jne 21f",
    "mov [rdi], rsi",
    "jmp 4b",
    "21:",
    "cmp rax, 0x10005",
    "jne 22f",
    "mov r13, rdi",
    "jmp 4b",
    "22:",
    "cmp rax, 0x10006",
    "jne 23f",
    "pause",
    "mov edx, [rdi]",
    "cmp edx, [rbx + 16]",
    "jb 22b",
    "jmp 4b",
    "23:",
    "int3",
    "ud2",
    // a Must failed
    "9:",
    "mov [r13], rbx",
    "mov [r13 + 8], rax",
    "mov edi, 111",
    "mov eax, 231",
    "syscall",
    "ud2",
    ".globl stasis_interpreter_end",
    ".hidden stasis_interpreter_end",
    "stasis_interpreter_end:",
    ".popsection",
);

unsafe extern "C" {
    static stasis_interpreter_start: u8;
    static stasis_interpreter_end: u8;
}

/// The interpreter's machine code. Execution starts at its first byte with `rbx` at the first
/// operation and `r13` at the report page.
pub fn interpreter_code() -> &'static [u8] {
    // SAFETY: both symbols bound one read-only section that the assembler above emitted, so the
    // bytes between them exist for the whole life of the program.
    unsafe {
        let start = &raw const stasis_interpreter_start;
        let end = &raw const stasis_interpreter_end;
        std::slice::from_raw_parts(start, end.offset_from(start) as usize)
    }
}

/// The address of a thread that executed `TRAP`, relative to the code.
pub fn interpreter_trap_end() -> u64 {
    /// `int3` and the `ud2` behind it.
    const TRAP: [u8; 3] = [0xcc, 0x0f, 0x0b];
    let at = interpreter_code().windows(TRAP.len()).position(|code| code == TRAP);
    at.expect("the interpreter can stop") as u64 + 1
}

/// Leaves ordinary code for good and runs the operations at `first`, using the copy of the
/// interpreter at `code`.
///
/// # Safety
/// `code` must hold `interpreter_code()` in executable memory, `first` a list of operations that
/// never ends, and nothing of the current program may be needed again.
pub unsafe fn enter_interpreter(code: u64, first: u64, report: u64) -> ! {
    // SAFETY: the caller gave the program up; the interpreter needs only these registers.
    unsafe {
        std::arch::asm!(
            "mov rbx, {first}",
            "mov r13, {report}",
            "jmp {code}",
            code = in(reg) code,
            first = in(reg) first,
            report = in(reg) report,
            options(noreturn)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_fits_in_one_page_and_does_not_depend_on_where_it_lies() {
        let code = interpreter_code();
        assert!(!code.is_empty() && code.len() < crate::PAGE as usize);
    }

    #[test]
    fn an_operation_is_laid_out_as_the_assembly_reads_it() {
        let op = Op { call: 1, args: [2, 3, 4, 5, 6, 7], store: 8, mode: 9, target: 10 };
        let words: Vec<u64> = op
            .to_bytes()
            .chunks_exact(8)
            .map(|c| u64::from_ne_bytes(c.try_into().unwrap()))
            .collect();
        assert_eq!(words, (1..=10).collect::<Vec<u64>>());
    }
}
