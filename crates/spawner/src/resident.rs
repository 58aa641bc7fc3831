//! The program every template runs: take an order, fork a clone, again.
//!
//!   loop:   take a message (which namespace, which pids, which program)
//!           enter the pid namespace, make a helper that shares our memory
//!             helper: fork the clone with its captured pid, end
//!                     clone: map its stage, run the program there
//!           wait for the helper, return to our own namespace, answer, again
//!
//! The helper ends at once so that the clone falls to the namespace's init, as a process started
//! there would: its parent is 1. End of the socket ends the template.

use crate::layout;
use crate::program::{Program, receive_message};
use crate::protocol::ORDER_SIZE;
use stasis_sys::process::{CLONE_ARGS_SIZE, CloneArgs};
use stasis_sys::{PAGE, libc};

/// The loop as bytes for `layout::LOOP`, and the address of its first operation. The ranges in
/// `sweep` are unmapped first.
pub fn resident_loop(sweep: &[(u64, u64)]) -> (u64, Vec<u8>) {
    let ops = layout::LOOP + PAGE;
    let mut program = Program::new(ops, layout::LOOP + 3 * PAGE);
    for (start, end) in sweep {
        program.any("unmap the spawner", libc::SYS_munmap, &[*start, end - start]);
    }
    loop_ops(&mut program);
    let mut image = vec![0u8; layout::LOOP_SIZE as usize];
    let bytes = program.ops_bytes();
    assert!(bytes.len() as u64 <= 2 * PAGE, "the resident loop outgrew its pages");
    image[PAGE as usize..][..bytes.len()].copy_from_slice(&bytes);
    image[3 * PAGE as usize..][..program.data_bytes().len()].copy_from_slice(program.data_bytes());
    (ops, image)
}

fn loop_ops(program: &mut Program) {
    let control = layout::TEMPLATE_CONTROL_FD as u64;
    // the message: helper's clone arguments, clone's clone arguments, their pids
    let set_tid = program.words(&[0, 0]);
    let helper = program.data(&CloneArgs::default().to_bytes());
    let clone = program.data(&CloneArgs::default().to_bytes());
    let order = ORDER_SIZE as u64;
    debug_assert_eq!(set_tid, layout::ORDER);
    debug_assert_eq!(clone - set_tid + 96, order);
    let message = receive_message(program, set_tid, order, layout::ORDER_FDS);
    let answer = program.words(&[0]);

    let start = program.here();
    // the kernel shortens the lengths in the header; they are set anew each time
    program.store(message + 40, 16 + 4 * layout::ORDER_FDS);
    let received = program.if_zero("take an order", libc::SYS_recvmsg, &[control, message, 0]);
    let namespace = [layout::CLONE_PIDNS_FD as u64, libc::CLONE_NEWPID as u64];
    program.must("enter the pid namespace", libc::SYS_setns, &namespace);
    let fork = program.if_zero("make the helper", libc::SYS_clone3, &[helper, CLONE_ARGS_SIZE]);
    let wait = [u64::MAX, 0, libc::__WALL as u64, 0];
    program.any("wait for the helper", libc::SYS_wait4, &wait);
    let home = [layout::TEMPLATE_PIDNS_FD as u64, libc::CLONE_NEWPID as u64];
    program.must("return to the own pid namespace", libc::SYS_setns, &home);
    program.must("drop the order's descriptors", libc::SYS_close_range, &[0, control - 1, 0]);
    let args = [control, answer, 8, libc::MSG_NOSIGNAL as u64, 0, 0];
    program.any("answer", libc::SYS_sendto, &args);
    program.jump_to(start);

    program.land(fork);
    let cloned = program.if_zero("fork the clone", libc::SYS_clone3, &[clone, CLONE_ARGS_SIZE]);
    program.store_result(cloned, answer);
    program.any("end the helper", libc::SYS_exit, &[0]);
    program.any("end the helper", libc::SYS_exit, &[1]);

    program.land(cloned);
    let map = [
        layout::STAGE,
        layout::STAGE_SIZE,
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_SHARED | libc::MAP_FIXED) as u64,
        layout::CLONE_STAGE_FD as u64,
        0,
    ];
    program.must("map the stage", libc::SYS_mmap, &map);
    program.jump_to(layout::OPS);

    program.land(received);
    program.any("the engine has exited", libc::SYS_exit_group, &[0]);
}
