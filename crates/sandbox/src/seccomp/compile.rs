//! From the list to a filter: a search tree over call numbers, with the tests of arguments at its
//! leaves.
//!
//! When the filter is installed, the kernel runs it once for every call number (to find calls that
//! need no run at all), so its depth counts and not only its length.

use super::arguments::{ArgumentRow, ArgumentWord, Rule};
use super::list::{RefusedSyscalls, SyscallGroup};
use stasis_sys::libc;

const LOAD: u32 = 0x20;
const JUMP: u32 = 0x05;
const JUMP_EQUAL: u32 = 0x15;
const JUMP_NOT_BELOW: u32 = 0x35;
const AND: u32 = 0x54;
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

/// The answer for calls from a number on, up to the next entry.
struct Leaf {
    from: u32,
    code: Vec<u64>,
}

/// Compiles a list. Calls it does not name do not exist; another architecture's way to make calls
/// ends the process.
pub fn compile(allowed: &[SyscallGroup], refused: &[RefusedSyscalls]) -> Vec<u64> {
    let mut program = vec![
        op(LOAD, ARCH_AT, 0, 0),
        op(JUMP_EQUAL, X86_64, 1, 0),
        op(RETURN, KILL_PROCESS, 0, 0),
        op(LOAD, NUMBER_AT, 0, 0),
    ];
    program.extend(search(&leaves(allowed, refused)));
    program
}

fn leaves(allowed: &[SyscallGroup], refused: &[RefusedSyscalls]) -> Vec<Leaf> {
    let absent = || vec![errno(libc::ENOSYS)];
    let calls = allowed.iter().flat_map(|purpose| purpose.calls);
    let let_through = calls.map(|call| (call.number as u32, rules(call.rules)));
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

/// Adds the answer from a number on; neighbours with the same answer are merged.
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

/// The code that decides one call by its arguments: the first rule that is broken answers.
fn rules(rules: &[Rule]) -> Vec<u64> {
    let mut code: Vec<u64> = rules.iter().flat_map(rule).collect();
    code.push(op(RETURN, ALLOW, 0, 0));
    code
}

/// Goes on behind itself if a row fits, else answers with the rule's error.
fn rule(rule: &Rule) -> Vec<u64> {
    let mut code = vec![errno(rule.errno)];
    for own in rule.rows.iter().rev() {
        let fits = op(JUMP, code.len() as u32, 0, 0);
        let mut before = row(own);
        before.push(fits);
        before.append(&mut code);
        code = before;
    }
    code
}

/// Goes on behind itself if all words are right, else past the operation after that.
fn row(row: ArgumentRow) -> Vec<u64> {
    let mut code = Vec::new();
    for own in row.iter().rev() {
        let mut before = word(own);
        // skips the following words, and the answer if all of them match
        before.push(op(JUMP, code.len() as u32 + 1, 0, 0));
        before.append(&mut code);
        code = before;
    }
    code
}

/// Passes over the operation after itself if the word is right.
fn word(word: &ArgumentWord) -> Vec<u64> {
    let mut code = vec![op(LOAD, FIRST_ARGUMENT_AT + 4 * word.index, 0, 0)];
    if word.mask != u32::MAX {
        code.push(op(AND, word.mask, 0, 0));
    }
    let count = u8::try_from(word.values.len()).expect("a list of values fits a jump");
    for (index, value) in (0..count).zip(word.values) {
        let rest = count - 1 - index;
        // if none may match, the last comparison skips the answer of a match
        let (equal, other) = match (word.among, rest) {
            (true, _) => (rest + 1, 0),
            (false, 0) => (0, 1),
            (false, _) => (rest, 0),
        };
        code.push(op(JUMP_EQUAL, *value, equal, other));
    }
    code
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
                    let upper_half = |at: u32| !(at - FIRST_ARGUMENT_AT).is_multiple_of(8);
                    word = match value {
                        NUMBER_AT => number,
                        ARCH_AT => arch,
                        other if upper_half(other) => 0,
                        other => args[((other - FIRST_ARGUMENT_AT) / 8) as usize],
                    }
                }
                AND => word &= value,
                JUMP => at += value as usize,
                JUMP_EQUAL => branch(word == value),
                JUMP_NOT_BELOW => branch(word >= value),
                RETURN => return value,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn answer(number: i64, args: [u32; 6]) -> u32 {
        run(filter(), X86_64, number as u32, args)
    }

    /// The answer of the list for arguments of zero, computed from the list and not from the
    /// filter.
    fn expected(number: u32) -> u32 {
        let mut calls = ALLOWED.iter().flat_map(|purpose| purpose.calls);
        if let Some(call) = calls.find(|call| call.number as u32 == number) {
            let right = |word: &ArgumentWord| word.values.contains(&0) == word.among;
            let holds = |rule: &Rule| rule.rows.iter().any(|row| row.iter().all(right));
            let broken = call.rules.iter().find(|rule| !holds(rule));
            return broken.map_or(ALLOW, |rule| ERRNO | rule.errno as u32);
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
        let ioctl = |request: u32| answer(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]);
        assert_eq!(ioctl(0x5401), ALLOW);
        assert_eq!(ioctl(0x5412), refused(libc::ENOTTY));
        assert_eq!(ioctl(0x8946), refused(libc::EOPNOTSUPP));
        let prctl = |option: i32| answer(libc::SYS_prctl, [option as u32, 0, 0, 0, 0, 0]);
        assert_eq!(prctl(libc::PR_SET_NAME), ALLOW);
        assert_eq!(prctl(libc::PR_SET_VMA), ALLOW);
        assert_eq!(prctl(libc::PR_SET_MM), refused(libc::EINVAL));
        let limit =
            |resource: u32, new: u32| answer(libc::SYS_prlimit64, [0, resource, new, 0, 0, 0]);
        assert_eq!(limit(libc::RLIMIT_NOFILE, 0x1000), ALLOW);
        assert_eq!(limit(libc::RLIMIT_CORE, 0), ALLOW);
        assert_eq!(limit(libc::RLIMIT_CORE, 0x1000), refused(0));
    }

    #[test]
    fn sockets_are_told_apart_by_kind_and_protocol() {
        const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let socket = |family: i32, kind: i32, protocol: i32| {
            let args = [family as u32, kind as u32, protocol as u32, 0, 0, 0];
            answer(libc::SYS_socket, args)
        };
        let refused = |error: i32| ERRNO | error as u32;
        let [inet, inet6] = [libc::AF_INET, libc::AF_INET6];
        for (family, kind, protocol) in [
            (libc::AF_UNIX, libc::SOCK_SEQPACKET | FLAGS, 0),
            (inet, libc::SOCK_STREAM, 0),
            (inet6, libc::SOCK_STREAM | FLAGS, libc::IPPROTO_TCP),
            (inet, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::IPPROTO_UDP),
            (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE),
        ] {
            assert_eq!(socket(family, kind, protocol), ALLOW, "{family} {kind} {protocol}");
        }
        for (family, kind, protocol) in [
            (inet, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
            (inet6, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
            (inet, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE),
            (inet, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
            (inet, libc::SOCK_STREAM, libc::IPPROTO_UDP),
            (inet, libc::SOCK_RAW, libc::IPPROTO_ICMP),
            (inet, libc::SOCK_SEQPACKET, 0),
            (libc::AF_UNIX, libc::SOCK_RAW, 0),
            (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
        ] {
            let answered = socket(family, kind, protocol);
            assert_eq!(answered, refused(libc::EPROTONOSUPPORT), "{family} {kind} {protocol}");
        }
        assert_eq!(socket(libc::AF_PACKET, libc::SOCK_RAW, 0), refused(libc::EAFNOSUPPORT));
        assert_eq!(socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0), refused(libc::EAFNOSUPPORT));
    }

    #[test]
    fn options_of_sockets_are_allowed_by_level() {
        let set = |level: i32, option: u32| {
            answer(libc::SYS_setsockopt, [3, level as u32, option, 0, 0, 0])
        };
        let refused = ERRNO | libc::ENOPROTOOPT as u32;
        assert_eq!(set(libc::IPPROTO_TCP, libc::TCP_NODELAY as u32), ALLOW);
        assert_eq!(set(libc::IPPROTO_TCP, libc::TCP_ULP as u32), refused);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_REUSEADDR as u32), ALLOW);
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER as u32), refused);
        assert_eq!(set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY as u32), ALLOW);
        assert_eq!(set(libc::SOL_TLS, 1), refused);
        let ask = |option: i32| {
            let args = [3, libc::SOL_SOCKET as u32, option as u32, 0, 0, 0];
            answer(libc::SYS_getsockopt, args)
        };
        assert_eq!(ask(libc::SO_ERROR), ALLOW);
        assert_eq!(ask(libc::SO_GET_FILTER), refused);
    }

    #[test]
    fn a_filter_of_ones_own_has_no_listener() {
        let seccomp = |flags: u32| answer(libc::SYS_seccomp, [1, flags, 0, 0, 0, 0]);
        assert_eq!(seccomp(0), ALLOW);
        assert_eq!(seccomp(1 | 16), ALLOW);
        assert_eq!(seccomp(8), ERRNO | libc::EINVAL as u32);
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
