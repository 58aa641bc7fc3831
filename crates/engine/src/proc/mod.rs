//! `/proc` as typed values. The text comes from the kernel but names in it come from programs, so
//! every parser accepts only known forms and refuses the rest.

mod fdinfo;
mod maps;
mod status;

pub use fdinfo::*;
pub use maps::*;
pub use status::*;

use crate::error::{ErrorContext, Result};
use std::fs::File;
use std::io::Read;

pub fn read_text(pid: i32, name: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{name}");
    let bytes = read_at_once(&path).doing(|| format!("read {path}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The kernel makes most of these files anew for each read, and says nothing of their size: the
/// standard library would begin with a few bytes and ask again and again.
fn read_at_once(path: &str) -> std::io::Result<Vec<u8>> {
    const USUAL: usize = 16 << 10;
    let mut file = File::open(path)?;
    let mut bytes = vec![0; USUAL];
    let mut filled = 0;
    loop {
        match file.read(&mut bytes[filled..])? {
            0 => break,
            count => filled += count,
        }
        if filled == bytes.len() {
            bytes.resize(2 * filled, 0);
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

pub fn read_link(pid: i32, name: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{name}");
    let target = std::fs::read_link(&path).doing(|| format!("read the link {path}"))?;
    Ok(target.to_string_lossy().into_owned())
}

/// Pages of a process's address space, mapped or not.
pub fn size(pid: i32) -> std::io::Result<u64> {
    let bytes = read_at_once(&format!("/proc/{pid}/statm"))?;
    let size = String::from_utf8_lossy(&bytes);
    let size = size.split(' ').next().and_then(|pages| pages.parse().ok());
    size.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// All processes of the host.
pub fn processes() -> Result<Vec<i32>> {
    numbers("/proc")
}

/// Thread ids of a process, in the host's numbering.
pub fn threads(pid: i32) -> Result<Vec<i32>> {
    numbers(&format!("/proc/{pid}/task"))
}

/// Numbers of a process's open descriptors.
pub fn descriptors(pid: i32) -> Result<Vec<i32>> {
    let mut all = numbers(&format!("/proc/{pid}/fd"))?;
    all.sort_unstable();
    Ok(all)
}

fn numbers(path: &str) -> Result<Vec<i32>> {
    let entries = std::fs::read_dir(path).doing(|| format!("list {path}"))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Children of every thread of a process, in the host's numbering.
pub fn children(pid: i32) -> Result<Vec<i32>> {
    let mut all = Vec::new();
    for tid in threads(pid)? {
        let text = read_text(pid, &format!("task/{tid}/children"))?;
        all.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(all)
}

/// Everything below a process, in the host's numbering.
pub fn descendants(pid: i32) -> Result<Vec<i32>> {
    let mut all = children(pid)?;
    let mut next = 0;
    while next < all.len() {
        let more = children(all[next]).unwrap_or_default();
        all.extend(more);
        next += 1;
    }
    Ok(all)
}
