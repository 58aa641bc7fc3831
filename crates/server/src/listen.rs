//! Listening addresses of the service.

use crate::error::{Error, ErrorContext};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, UnixListener};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    /// A private socket: only for processes of the same user, and without tokens.
    Unix(PathBuf),
}

impl Listen {
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listen::Tcp(address) => Some(*address),
            Listen::Unix(_) => None,
        }
    }
}

/// The listening sockets; ports are resolved.
#[derive(Debug, Clone)]
pub struct BoundAddresses {
    pub listen: Vec<Listen>,
    /// The address that serves only forkd's routes.
    pub forkd: Option<Listen>,
    /// Stops the service, like a signal.
    pub stop: crate::StopHandle,
}

impl BoundAddresses {
    /// The first TCP address.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.listen.iter().find_map(Listen::address)
    }
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub async fn bind(place: &Listen) -> Result<Listener, Error> {
        let wrong = |source| Error::Listen { place: format!("{place:?}"), source };
        match place {
            Listen::Tcp(address) => {
                Ok(Listener::Tcp(TcpListener::bind(address).await.map_err(wrong)?))
            }
            Listen::Unix(path) => {
                clear(path).map_err(wrong)?;
                let listener = UnixListener::bind(path).map_err(wrong)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(wrong)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    pub fn place(&self) -> Result<Listen, Error> {
        Ok(match self {
            Listener::Tcp(listener) => {
                Listen::Tcp(listener.local_addr().doing(|| "ask for a port".into())?)
            }
            Listener::Unix(_, path) => Listen::Unix(path.clone()),
        })
    }
}

/// Removes the socket file of a process that has exited; never anything else.
fn clear(path: &Path) -> std::io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// The user this process runs as.
pub fn own_user() -> Result<u32, Error> {
    Ok(fs::metadata("/proc/self").doing(|| "look at /proc/self".into())?.uid())
}
