//! From the list to a filter: a search tree over call numbers, with the tests of arguments at its
//! leaves.
//!
//! The kernel runs the filter once for every call number when it is installed (to know which calls
//! need no run at all), so its depth counts and not only its length.

use super::list::{Call, Purpose, Refusal, When};
use stasis_sys::libc;

const LOAD: u32 = 0x20;
const JUMP: u32 = 0x05;
const JUMP_EQUAL: u32 = 0x15;
const JUMP_NOT_BELOW: u32 = 0x35;
const JUMP_ANY_BIT: u32 = 0x45;
const RETURN: u32 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;

const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const FIRST_ARGUMENT_AT: u32 = 16;
const X86_64: u32 = 0xc000_003e;

/// One instruction in the kernel's layout.
fn op(code: u32, value: u32, if_true: u8, if_false: u8) -> u64 {
    u64::from(code) | u64::from(if_true) << 16 | u64::from(if_false) << 24 | u64::from(value) << 32
}

fn errno(error: i32) -> u64 {
    op(RETURN, ERRNO | error as u32, 0, 0)
}

/// What happens to calls from a number on, up to the next entry.
struct Leaf {
    from: u32,
    code: Vec<u64>,
}

/// Compiles a list. Calls it does not name do not exist; another architecture's way to make calls
/// ends the process.
pub fn compile(allowed: &[Purpose], refused: &[Refusal]) -> Vec<u64> {
    let mut program = vec![
        op(LOAD, ARCH_AT, 0, 0),
        op(JUMP_EQUAL, X86_64, 1, 0),
        op(RETURN, KILL_PROCESS, 0, 0),
        op(LOAD, NUMBER_AT, 0, 0),
    ];
    program.extend(search(&leaves(allowed, refused)));
    program
}

fn leaves(allowed: &[Purpose], refused: &[Refusal]) -> Vec<Leaf> {
    let absent = || vec![errno(libc::ENOSYS)];
    let calls = allowed.iter().flat_map(|purpose| purpose.calls);
    let let_through = calls.map(|call| (call.number as u32, test(call)));
    let answered = refused.iter().flat_map(|refusal| {
        refusal.calls.iter().map(|(_, number)| (*number as u32, vec![errno(refusal.errno)]))
    });
    let mut named: Vec<(u32, Vec<u64>)> = let_through.chain(answered).collect();
    named.sort_unstable();
    let mut leaves = vec![Leaf { from: 0, code: absent() }];
    for (number, code) in named {
        push(&mut leaves, number, code);
        push(&mut leaves, number + 1, absent());
    }
    leaves
}

/// Adds what happens from a number on; neighbours with the same fate become one.
fn push(leaves: &mut Vec<Leaf>, from: u32, code: Vec<u64>) {
    if leaves.last().is_some_and(|last| last.from == from) {
        leaves.pop();
    }
    if leaves.last().is_none_or(|last| last.code != code) {
        leaves.push(Leaf { from, code });
    }
}

fn search(leaves: &[Leaf]) -> Vec<u64> {
    let [only] = leaves else {
        let (below, above) = leaves.split_at(leaves.len() / 2);
        let (left, right) = (search(below), search(above));
        let mut code = match u8::try_from(left.len()) {
            Ok(far) => vec![op(JUMP_NOT_BELOW, above[0].from, far, 0)],
            Err(_) => {
                vec![op(JUMP_NOT_BELOW, above[0].from, 0, 1), op(JUMP, left.len() as u32, 0, 0)]
            }
        };
        code.extend(left);
        code.extend(right);
        return code;
    };
    only.code.clone()
}

/// The code that decides one call by its arguments.
fn test(call: &Call) -> Vec<u64> {
    let allow = op(RETURN, ALLOW, 0, 0);
    let load = |argument: u32| op(LOAD, FIRST_ARGUMENT_AT + 8 * argument, 0, 0);
    // one jump per value, over the rest of them and the first ending, to the second
    let jumps = |values: &[u32]| -> Vec<u64> {
        let far = |index: usize| (values.len() - index) as u8;
        values.iter().enumerate().map(|(i, value)| op(JUMP_EQUAL, *value, far(i), 0)).collect()
    };
    match call.when {
        When::Always => vec![allow],
        When::OneOf(argument, values, error) => {
            [vec![load(argument)], jumps(values), vec![errno(error), allow]].concat()
        }
        When::NoneOf(argument, values, error) => {
            [vec![load(argument)], jumps(values), vec![allow, errno(error)]].concat()
        }
        When::NoBits(argument, bits, error) => {
            vec![load(argument), op(JUMP_ANY_BIT, bits, 1, 0), allow, errno(error)]
        }
        When::Families(values, (family, protocol), error) => {
            let other = vec![
                op(JUMP_EQUAL, family, 0, 2),
                load(2),
                op(JUMP_EQUAL, protocol, 1, 0),
                errno(error),
                allow,
            ];
            let far = |index: usize| (values.len() - index + 3) as u8;
            let jumps = values.iter().enumerate();
            let jumps = jumps.map(|(i, value)| op(JUMP_EQUAL, *value, far(i), 0)).collect();
            [vec![load(0)], jumps, other].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ALLOWED, REFUSED, filter};
    use super::*;
    use stasis_sys::seccomp::MAX_INSTRUCTIONS;

    /// Runs a filter as the kernel would.
    fn run(program: &[u64], arch: u32, number: u32, args: [u32; 6]) -> u32 {
        let mut at = 0;
        let mut word = 0;
        loop {
            let code = program[at] as u16;
            let (yes, no) = ((program[at] >> 16) as u8, (program[at] >> 24) as u8);
            let value = (program[at] >> 32) as u32;
            at += 1;
            let mut branch = |holds: bool| at += usize::from(if holds { yes } else { no });
            match u32::from(code) {
                LOAD => {
                    word = match value {
                        NUMBER_AT => number,
                        ARCH_AT => arch,
                        other => args[((other - FIRST_ARGUMENT_AT) / 8) as usize],
                    }
                }
                JUMP => at += value as usize,
                JUMP_EQUAL => branch(word == value),
                JUMP_NOT_BELOW => branch(word >= value),
                JUMP_ANY_BIT => branch(word & value != 0),
                RETURN => return value,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn answer(number: i64, args: [u32; 6]) -> u32 {
        run(filter(), X86_64, number as u32, args)
    }

    /// What the list says, by reading it and not the filter.
    fn expected(number: u32) -> u32 {
        let mut calls = ALLOWED.iter().flat_map(|purpose| purpose.calls);
        if let Some(call) = calls.find(|call| call.number as u32 == number) {
            return match call.when {
                When::Always | When::NoneOf(..) | When::NoBits(..) => ALLOW,
                When::OneOf(_, values, _) if values.contains(&0) => ALLOW,
                When::OneOf(_, _, error) | When::Families(_, _, error) => ERRNO | error as u32,
            };
        }
        let refusal = REFUSED
            .iter()
            .find(|refusal| refusal.calls.iter().any(|(_, own)| *own as u32 == number));
        ERRNO | refusal.map_or(libc::ENOSYS, |refusal| refusal.errno) as u32
    }

    #[test]
    fn every_number_meets_what_the_list_says() {
        for number in (0..1000).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
            let found = run(filter(), X86_64, number, [0; 6]);
            assert_eq!(found, expected(number), "call {number}");
        }
    }

    #[test]
    fn no_call_is_named_twice() {
        let allowed = ALLOWED.iter().flat_map(|purpose| purpose.calls).map(|call| call.number);
        let refused = REFUSED.iter().flat_map(|refusal| refusal.calls).map(|(_, number)| *number);
        let mut all: Vec<i64> = allowed.chain(refused).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn arguments_decide() {
        let refused = |error: i32| ERRNO | error as u32;
        let clone = |flags: i32| answer(libc::SYS_clone, [flags as u32, 0, 0, 0, 0, 0]);
        assert_eq!(clone(libc::CLONE_VM | libc::CLONE_THREAD | libc::SIGCHLD), ALLOW);
        assert_eq!(clone(libc::CLONE_NEWUSER), refused(libc::EPERM));
        let socket = |family: i32, protocol: i32| {
            answer(libc::SYS_socket, [family as u32, 0, protocol as u32, 0, 0, 0])
        };
        assert_eq!(socket(libc::AF_UNIX, 0), ALLOW);
        assert_eq!(socket(libc::AF_INET6, 6), ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, libc::NETLINK_ROUTE), ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, libc::NETLINK_AUDIT), refused(libc::EAFNOSUPPORT));
        assert_eq!(socket(libc::AF_PACKET, 0), refused(libc::EAFNOSUPPORT));
        let ioctl = |request: u32| answer(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]);
        assert_eq!(ioctl(0x5401), ALLOW);
        assert_eq!(ioctl(0x5412), refused(libc::EPERM));
        let prctl = |option: i32| answer(libc::SYS_prctl, [option as u32, 0, 0, 0, 0, 0]);
        assert_eq!(prctl(libc::PR_SET_NAME), ALLOW);
        assert_eq!(prctl(libc::PR_SET_VMA), ALLOW);
        assert_eq!(prctl(libc::PR_SET_MM), refused(libc::EINVAL));
    }

    #[test]
    fn another_architecture_ends_the_process() {
        const I386: u32 = 0x4000_0003;
        assert_eq!(run(filter(), I386, 1, [0; 6]), KILL_PROCESS);
    }

    #[test]
    fn the_filter_is_short_and_no_path_through_it_long() {
        assert!(filter().len() < MAX_INSTRUCTIONS / 4, "{} instructions", filter().len());
    }
}
