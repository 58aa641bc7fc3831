//! Reads the requests to hosts whose rules are about requests: methods, paths, secrets.
//!
//!   machine ═ TLS, a certificate of its own authority ═► here ═ TLS, checked ═► the host outside
//!                                                         └─ each request ─► policy, secrets
//!
//! Only connections that need it come here (`tcp`), with the socket that is connected already; all
//! others pass through untouched. The tasks of all machines share a few threads, which are
//! restricted like the relay: the first relay that needs them starts them. A fault in a connection
//! ends that connection and no other.

mod authority;
mod connection;
pub mod fuzzing;
mod head;
mod http;
mod oauth;
mod ongoing;
mod roots;
mod secrets;
mod tokens;

pub use authority::MachineAuthority;
pub use roots::TrustedRoots;

use crate::budget::SocketPermit;
use crate::rules::MachineRules;
use crate::unguarded::EgressGuard;
use hyper::Version;
use hyper::http::request::Parts;
use parking_lot::Mutex;
use stasis_policy::http::HttpRequest;
use stasis_policy::reach::Protocol;
use stasis_secrets::{GrantedSecret, SecretBook};
use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use tokens::TokenCache;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

/// Threads for all machines.
const THREADS: usize = 2;
/// Threads beside them, while policies wait for a server.
const BLOCKED: usize = 64;
/// Of one machine.
const WAITS: usize = 4;

/// State that all machines of a host share.
pub struct Interception {
    pub roots: TrustedRoots,
    pub secrets: Arc<SecretBook>,
    /// The file that names the host's resolvers, for hosts that give out tokens.
    pub resolv_conf: PathBuf,
    tokens: TokenCache,
    runtime: Mutex<Option<Runtime>>,
}

impl std::fmt::Debug for Interception {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Interception").field("roots", &self.roots).finish_non_exhaustive()
    }
}

impl Interception {
    pub fn new(roots: TrustedRoots, secrets: Arc<SecretBook>, resolv_conf: PathBuf) -> Self {
        let (tokens, runtime) = (TokenCache::default(), Mutex::default());
        Interception { roots, secrets, resolv_conf, tokens, runtime }
    }

    /// Hands a connection to the threads that read requests. The caller is restricted, and so are
    /// threads that it starts.
    fn take(&self, connection: InterceptedConnection, ends: InterceptedEnds) -> io::Result<()> {
        let mut runtime = self.runtime.lock();
        if runtime.is_none() {
            let mut builder = Builder::new_multi_thread();
            builder
                .worker_threads(THREADS)
                .max_blocking_threads(BLOCKED)
                .thread_stack_size(1 << 20);
            *runtime = Some(builder.thread_name("stasis-intercept").enable_all().build()?);
        }
        let Some(runtime) = runtime.as_ref() else { return Ok(()) };
        runtime.spawn(connection::carry(Arc::new(connection), ends));
        Ok(())
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        // it may be dropped by one of its own threads, which cannot wait for itself
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

/// One machine, as far as its requests are read.
#[derive(Debug)]
pub struct InterceptedMachine {
    pub shared: Arc<Interception>,
    pub account: String,
    /// The first machine of its line: a branch has its parent's authority and placeholders.
    pub lineage: i64,
    authority: OnceLock<Result<MachineAuthority, String>>,
    /// Requests whose policies may wait: the threads for that are shared by all machines.
    waits: Semaphore,
}

impl InterceptedMachine {
    pub fn new(shared: Arc<Interception>, account: String, lineage: i64) -> Self {
        let (authority, waits) = (OnceLock::new(), Semaphore::new(WAITS));
        InterceptedMachine { shared, account, lineage, authority, waits }
    }

    /// Signs the certificates that the machine gets.
    pub fn authority(&self) -> Result<&MachineAuthority, String> {
        let made = self.authority.get_or_init(|| {
            let key = self.shared.secrets.key().map_err(|error| error.to_string())?;
            let made = MachineAuthority::of(key, &self.account, self.lineage);
            made.map_err(|error| error.to_string())
        });
        made.as_ref().map_err(String::clone)
    }

    /// The placeholders of all secrets of the account on this line of machines.
    fn placeholders(&self) -> Vec<GrantedSecret> {
        self.shared.secrets.granted(&self.account, self.lineage, |_, _| true)
    }

    /// Whether a secret of the account may go to a host, by what it is bound to.
    pub fn has_secret_for(&self, host: &str, port: u16, is_granted: impl Fn(&str) -> bool) -> bool {
        let own = self.shared.secrets.of_account(&self.account);
        let bound = |name: &str, secret: &stasis_secrets::StoredSecret| {
            [true, false].iter().any(|tls| secret.covers(host, port, *tls)) && is_granted(name)
        };
        own.iter().any(|(name, secret)| bound(name, secret))
    }
}

/// A connection whose requests are read.
pub struct InterceptedConnection {
    pub machine: Arc<InterceptedMachine>,
    pub rules: Arc<MachineRules>,
    /// The name that it is judged by; none, for an address.
    pub name: Option<String>,
    pub to: SocketAddrV4,
    pub is_tls: bool,
    /// Set when the connection ends because a request under way is not allowed any more.
    pub is_revoked: Arc<AtomicBool>,
}

/// Its two ends: to the machine, and to the host outside.
struct InterceptedEnds {
    inside: UnixStream,
    outside: TcpStream,
    _room: SocketPermit,
}

impl InterceptedConnection {
    /// Has the requests on a connection read: what is given back takes the place of `outside`.
    pub fn begin(self, outside: TcpStream) -> io::Result<UnixStream> {
        let room = SocketPermit::take().ok_or(io::ErrorKind::OutOfMemory)?;
        let (own, inside) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        inside.set_nonblocking(true)?;
        outside.set_nonblocking(true)?;
        let shared = self.machine.shared.clone();
        shared.take(self, InterceptedEnds { inside, outside, _room: room })?;
        Ok(own)
    }

    /// The host as requests name it.
    fn host(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.to.ip().to_string())
    }

    /// Whether a request is allowed; if not, why. Policies may evaluate, or wait for a server, for
    /// seconds: meanwhile the thread does not serve other machines, and another takes its place.
    async fn judge(&self, parts: &Parts) -> Result<(), String> {
        if !self.rules.waits() {
            return self.allows(parts);
        }
        let turn = self.machine.waits.acquire().await;
        let _turn = turn.map_err(|error| error.to_string())?;
        tokio::task::block_in_place(|| self.allows(parts))
    }

    fn allows(&self, parts: &Parts) -> Result<(), String> {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let headers: Vec<(&str, &str)> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()))
            .collect();
        let (secure, method) = (self.is_tls, parts.method.as_str());
        let http2 = parts.version == Version::HTTP_2;
        let what = HttpRequest { secure, method, path, headers: &headers, http2 };
        self.rules.request(self.name.as_deref(), self.to, what)
    }

    /// Whether a secret may be part of a request to this host.
    fn grants(&self, secret: &str) -> bool {
        let (host, port) = (self.host(), self.to.port());
        let stored = self.machine.shared.secrets.get(&self.machine.account, secret);
        let bound = stored.is_some_and(|stored| stored.covers(&host, port, self.is_tls));
        if !bound && !self.rules.is_removed(EgressGuard::Binding) {
            let said = format!("secret `{secret}` is not bound to this host");
            self.rules.report_plain(&format!("secret {secret} for {host}:{port}"), &said);
            return false;
        }
        self.rules.secret(secret, &host, port)
    }

    /// The connection as reports show it.
    fn access(&self) -> String {
        crate::guard::connection(self.name.as_deref(), self.to, Protocol::Tcp)
    }

    /// Reports a request that is refused for what it is.
    fn report(&self, method: &str, path: &str, reason: &str) {
        let access = crate::rules::request(self.name.as_deref(), self.to, method, path);
        self.rules.report_plain(&access, reason);
    }
}
