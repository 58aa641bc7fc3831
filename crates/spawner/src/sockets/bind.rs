//! Binding sockets to names, files among them.
//!
//! The file of a captured socket was restored with the other files, so the name is taken: the old
//! file is renamed, the socket is bound, and the new file gets the old one's place, mode and owner.
//! A program reads back the name it once gave, relative or not, so the binding happens in the
//! directory it was relative to.
//!
//! Everything here happens below the machine's root; links of the machine lead nowhere else.

use super::steps::descriptor_address;
use stasis_spawner::socket_plan::SocketPath;
use stasis_sys::{libc, socket};
use std::ffi::OsStr;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub fn bind(fd: BorrowedFd, address: &[u8], place: &SocketPath) -> io::Result<()> {
    match place {
        SocketPath::Nowhere => socket::bind(fd, address),
        SocketPath::File { directory, path } => {
            std::env::set_current_dir(directory)?;
            let bound = bind_file(fd, address, path.as_deref().map(Path::new));
            std::env::set_current_dir("/")?;
            bound
        }
    }
}

fn bind_file(fd: BorrowedFd, address: &[u8], path: Option<&Path>) -> io::Result<()> {
    let name = path_of(address)?;
    let aside = step_aside(&name)?;
    let bound = socket::bind(fd, address).and_then(|()| settle(&name, path, aside.as_deref()));
    match aside {
        // still there: it belongs to something else, or nothing took its place
        Some(aside) if aside.exists() => fs::rename(&aside, &name).and(bound),
        _ => bound,
    }
}

/// The path in a unix address, as far as its NUL.
fn path_of(address: &[u8]) -> io::Result<PathBuf> {
    let bytes = address.get(2..).unwrap_or(&[]);
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
    if bytes.is_empty() {
        return Err(io::Error::other("a socket file without a name"));
    }
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Renames the file at `name` out of the way.
fn step_aside(name: &Path) -> io::Result<Option<PathBuf>> {
    if fs::symlink_metadata(name).is_err() {
        return Ok(None);
    }
    let aside = name.with_file_name(".stasis-aside");
    fs::rename(name, &aside)?;
    Ok(Some(aside))
}

/// Moves the new file to its place: the old one's, or none.
fn settle(name: &Path, path: Option<&Path>, aside: Option<&Path>) -> io::Result<()> {
    let Some(path) = path else { return fs::remove_file(name) };
    let bound_at = fs::canonicalize(name)?;
    if bound_at == path {
        let Some(aside) = aside else { return Ok(()) };
        let old = fs::symlink_metadata(aside)?;
        fs::remove_file(aside)?;
        return take_over(path, &old);
    }
    // it was renamed after it was bound
    let old = fs::symlink_metadata(path).ok();
    fs::rename(name, path)?;
    old.map_or(Ok(()), |old| take_over(path, &old))
}

fn take_over(path: &Path, old: &Metadata) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(old.uid()), Some(old.gid()))?;
    fs::set_permissions(path, Permissions::from_mode(old.mode() & 0o7777))
}

/// An address that leads to a bound socket, also when its file has no name any more. Good while
/// the descriptor beside it is open.
pub fn address_of(fd: BorrowedFd) -> io::Result<(Option<OwnedFd>, Vec<u8>)> {
    let name = socket::local_name(fd)?;
    let is_path =
        name.len() > 2 && name[..2] == (libc::AF_UNIX as u16).to_ne_bytes() && name[2] != 0;
    if !is_path {
        return Ok((None, name));
    }
    let file = socket::bound_file(fd)?;
    let address = descriptor_address(&file);
    Ok((Some(file), address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_at_its_nul() {
        assert_eq!(path_of(b"\x01\x00run/x\x00yz").unwrap(), Path::new("run/x"));
        assert!(path_of(b"\x01\x00\x00abstract").is_err());
        assert!(path_of(b"\x01\x00").is_err());
    }
}
