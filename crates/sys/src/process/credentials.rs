//! Rights of this process: ids, groups, capabilities, keyrings.

use super::prctl;
use crate::check;
use std::io;

pub fn set_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the raw calls change this thread alone; with others, the process would be half
    // privileged. The callers are single-threaded.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Ids under which files are accessed and made, while everything else stays.
pub fn set_fs_ids(uid: u32, gid: u32) {
    // SAFETY: changes the credentials with which this thread's later calls open files, and nothing
    // in memory. The calls return the old id and no error.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
}

pub fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: count and pointer describe the list.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// No program started later gains a capability.
pub fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        // numbers the kernel does not know end the list
        if prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0).is_err() {
            break;
        }
        prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0)?;
    }
    Ok(())
}

/// The form of sets that has 64 of them.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Drops every capability.
pub fn drop_capabilities() -> io::Result<()> {
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0, 0, 0)?;
    set_capabilities([0; 6])
}

/// Whether this thread has no capability that works or could be made to.
pub fn has_no_capabilities() -> io::Result<bool> {
    let sets = capabilities()?;
    Ok([sets[0], sets[1], sets[3], sets[4]] == [0; 4])
}

/// This thread's sets: effective, permitted and inheritable, first of the lower 32 and then of the
/// others.
fn capabilities() -> io::Result<[u32; 6]> {
    let header = [CAPABILITY_VERSION, 0];
    let mut sets = [0u32; 6];
    // SAFETY: both arrays have the layout of the header and of two sets, and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    Ok(sets)
}

fn set_capabilities(sets: [u32; 6]) -> io::Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// Drops some capabilities, also for programs started later. Must be called before any thread is
/// started.
pub fn give_up_capabilities(numbers: &[u32]) -> io::Result<()> {
    for number in numbers {
        // a kernel that does not know it does not give it
        let _ = prctl(libc::PR_CAPBSET_DROP, u64::from(*number), 0, 0, 0);
    }
    let mut sets = capabilities()?;
    for number in numbers {
        let half = *number as usize / 32 * 3;
        sets[half..half + 3].iter_mut().for_each(|set| *set &= !(1 << (number % 32)));
    }
    set_capabilities(sets)
}

/// Nothing this process starts gains privileges from the file it is.
pub fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).map(drop)
}

/// keyctl(2)'s request for a new session keyring.
pub const KEYCTL_JOIN_SESSION_KEYRING: u64 = 1;

/// Replaces the inherited session keyring of this thread by an empty one.
pub fn own_keyring() -> io::Result<()> {
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: no name is passed.
    check(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, unnamed) })
        .map(drop)
}

/// Whether keyrings are usable: a kernel may lack them, and the filter of a surrounding container
/// may refuse them, to us and to all programs we start.
pub fn has_keyrings() -> bool {
    const GET_KEYRING_ID: u64 = 0;
    const SESSION: i32 = -3;
    // SAFETY: KEYCTL_GET_KEYRING_ID takes a keyring's number and a flag; 0 makes no new keyring.
    let asked = check(unsafe { libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, SESSION, 0) });
    let refused =
        |error: io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
    !asked.is_err_and(refused)
}
