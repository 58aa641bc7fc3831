//! Limits of resources (prlimit(2)).

use crate::check;
use std::io;

/// Soft and hard limit of another process.
pub fn rlimit_of(pid: i32, resource: u32) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call; no new limit is passed.
    check(unsafe { libc::prlimit64(pid, resource, std::ptr::null(), &raw mut limit) }.into())?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Lowers a limit of this process permanently; a lower one stays.
pub fn lower_limit(resource: u32, most: u64) -> io::Result<()> {
    let (soft, hard) = rlimit_of(0, resource)?;
    set_limit(resource, soft.min(most), hard.min(most))
}

/// Sets both limits of this process to exactly this.
pub fn fix_limit(resource: u32, both: u64) -> io::Result<()> {
    set_limit(resource, both, both)
}

/// Raises this process's descriptor limit to the kernel's maximum; without privileges, to its hard
/// limit.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let (_, hard) = rlimit_of(0, libc::RLIMIT_NOFILE)?;
    let all = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let all = all.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(hard);
    let all = all.max(hard);
    fix_limit(libc::RLIMIT_NOFILE, all).or_else(|_| fix_limit(libc::RLIMIT_NOFILE, hard))
}

fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` outlives the call; no old limit is asked for.
    check(unsafe { libc::prlimit64(0, resource, &raw const limit, std::ptr::null_mut()) }.into())
        .map(drop)
}
