//! Programs for the interpreter: a list of operations and the data they point at.
//!
//! Pure: builds bytes for known addresses, touches no process.

use stasis_sys::arch::{
    ARRIVE, AWAIT, JUMP, OP_SIZE, Op, REPORT, ResultMode, SIGRETURN, STORE, TRAP, WATCH,
};

/// Operations from `ops_base` on, data from `data_base` on.
pub struct Program {
    ops_base: u64,
    ops: Vec<Op>,
    /// The purpose of each operation, for errors.
    notes: Vec<&'static str>,
    data_base: u64,
    data: Vec<u8>,
}

/// Index of an operation, for jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

impl Program {
    pub fn new(ops_base: u64, data_base: u64) -> Program {
        Program { ops_base, ops: Vec::new(), notes: Vec::new(), data_base, data: Vec::new() }
    }

    /// Address of the operation that will be added next.
    pub fn here(&self) -> u64 {
        self.ops_base + self.ops.len() as u64 * OP_SIZE
    }

    fn push(&mut self, note: &'static str, op: Op) -> Label {
        self.ops.push(op);
        self.notes.push(note);
        Label(self.ops.len() - 1)
    }

    fn op(call: u64, args: &[u64], mode: ResultMode) -> Op {
        let mut padded = [0; 6];
        padded[..args.len()].copy_from_slice(args);
        Op { call, args: padded, store: 0, mode: mode as u64, target: 0 }
    }

    /// A system call that must succeed.
    pub fn must(&mut self, note: &'static str, call: i64, args: &[u64]) -> Label {
        self.push(note, Program::op(call as u64, args, ResultMode::Must))
    }

    /// A system call whose result does not matter.
    pub fn any(&mut self, note: &'static str, call: i64, args: &[u64]) -> Label {
        self.push(note, Program::op(call as u64, args, ResultMode::Any))
    }

    /// A system call that continues at a label (set with `land`) when it returns zero.
    pub fn if_zero(&mut self, note: &'static str, call: i64, args: &[u64]) -> Label {
        self.push(note, Program::op(call as u64, args, ResultMode::IfZero))
    }

    pub fn jump_to(&mut self, address: u64) {
        let mut op = Program::op(JUMP, &[], ResultMode::Any);
        op.target = address;
        self.push("jump", op);
    }

    /// A jump whose end is set later with `land`.
    pub fn jump(&mut self) -> Label {
        self.push("jump", Program::op(JUMP, &[], ResultMode::Any))
    }

    /// Makes `label` continue at the next operation.
    pub fn land(&mut self, label: Label) {
        self.ops[label.0].target = self.here();
    }

    /// Stores the result of an operation at an address.
    pub fn store_result(&mut self, label: Label, address: u64) {
        self.ops[label.0].store = address;
    }

    /// Uses the result of `label` as argument `index` of the operation added next.
    pub fn result_becomes_argument(&mut self, label: Label, index: u64) {
        self.ops[label.0].store = self.here() + 8 * (1 + index);
    }

    pub fn store(&mut self, address: u64, value: u64) {
        self.push("store", Program::op(STORE, &[address, value], ResultMode::Any));
    }

    /// Stops for a tracer.
    pub fn trap(&mut self) {
        self.push("trap", Program::op(TRAP, &[], ResultMode::Any));
    }

    /// The address for failures from here on.
    pub fn report_to(&mut self, address: u64) {
        self.push("report", Program::op(REPORT, &[address], ResultMode::Any));
    }

    /// Waits until the word at `address` is at least `value`.
    pub fn await_word(&mut self, address: u64, value: u32) {
        self.push("await", Program::op(AWAIT, &[address, value.into()], ResultMode::Any));
    }

    /// The same without a system call.
    pub fn watch_word(&mut self, address: u64, value: u32) {
        self.push("watch", Program::op(WATCH, &[address, value.into()], ResultMode::Any));
    }

    pub fn arrive(&mut self, address: u64) {
        self.push("arrive", Program::op(ARRIVE, &[address], ResultMode::Any));
    }

    pub fn sigreturn(&mut self, frame: u64) {
        self.push("sigreturn", Program::op(SIGRETURN, &[frame], ResultMode::Any));
    }

    /// Adds bytes to the data area; their address.
    pub fn data(&mut self, bytes: &[u8]) -> u64 {
        self.data.resize(self.data.len().next_multiple_of(16), 0);
        let address = self.data_base + self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        address
    }

    pub fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.data(&bytes)
    }

    pub fn text(&mut self, text: &str) -> u64 {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.data(&bytes)
    }

    pub fn ops_bytes(&self) -> Vec<u8> {
        self.ops.iter().flat_map(|op| op.to_bytes()).collect()
    }

    pub fn data_bytes(&self) -> &[u8] {
        &self.data
    }

    /// The purpose of the operation at `address`, with its call and arguments.
    pub fn describe(&self, address: u64) -> Option<String> {
        let index = address.checked_sub(self.ops_base)? / OP_SIZE;
        let op = self.ops.get(index as usize)?;
        let args: Vec<String> = op.args.iter().map(|arg| format!("{arg:#x}")).collect();
        Some(format!("{} (call {}: {})", self.notes[index as usize], op.call, args.join(", ")))
    }
}

/// A message for recvmsg that takes `bytes` bytes to `buffer` and up to `fds` descriptors.
/// Returns the address of the msghdr.
pub fn receive_message(program: &mut Program, buffer: u64, bytes: u64, fds: u64) -> u64 {
    let control = program.data(&vec![0; 16 + 4 * fds as usize + 8]);
    let iov = program.words(&[buffer, bytes]);
    program.words(&[0, 0, iov, 1, control, 16 + (4 * fds).next_multiple_of(8), 0])
}
