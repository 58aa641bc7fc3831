//! The lifecycle of the service: listen, serve, stop, save.
//!
//!   serving ──signal, linger──► stopping: no new work ──► machines saved ──► closed ──► end

use crate::account_queue::AccountQueue;
use crate::app::{App, AppState, Phase};
use crate::audit::Audit;
use crate::connection::ConnectionContext;
use crate::error::{Error, ErrorContext};
use crate::guard::OriginGuard;
use crate::instruments::Instruments;
use crate::jwt::{Jwt, JwtOptions};
use crate::keyring::{Keyring, first_token};
use crate::listen::{BoundAddresses, Listen, Listener, own_user};
use crate::routes;
use crate::unproven::ConnectionRegister;
use stasis_api::Timestamp;
use stasis_machine::Host;
use stasis_sandbox::service::{ServiceThread, restrict_thread};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Time for responses to finish after the machines are saved.
const FAREWELL: Duration = Duration::from_secs(5);
/// Interval between checks for expired machines.
const EXPIRY: Duration = Duration::from_secs(5);
/// Interval between applications of the retention rules, and the minimum interval between
/// collections because of them.
const TENDING: Duration = Duration::from_secs(60);
/// Pause between rounds while states remain to be stored as differences; a round takes a quarter of
/// a second.
const THINNING: Duration = Duration::from_secs(1);
/// Interval between memory checks.
const RELIEF: Duration = Duration::from_secs(1);
const COLLECTING: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub struct Options {
    pub listen: Vec<Listen>,
    /// The address that serves only forkd's routes, in addition to the main one.
    pub forkd: Option<SocketAddr>,
    /// Certificate chain and key, as PEM files; for TCP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Exit when no client was connected and nothing ran for this long.
    pub linger: Option<Duration>,
    /// Host names of the service, besides loopback and its listening addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may use the service from a browser.
    pub allowed_origins: Vec<String>,
    /// The first token, `id.secret`; generated if absent.
    pub root_token: Option<String>,
    pub max_connections: usize,
    /// Maximum time for a body, or the next piece of a long one, to arrive.
    pub patience: Duration,
    /// Further accepted tokens, of another issuer.
    pub jwt: Option<JwtOptions>,
    /// The instruments for requests and machines; counters only, if absent.
    pub instruments: Option<Instruments>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: Vec::new(),
            forkd: None,
            tls: None,
            linger: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            root_token: None,
            max_connections: 4096,
            patience: Duration::from_secs(60),
            jwt: None,
            instruments: None,
        }
    }
}

/// Stops the service from inside its process.
#[derive(Debug, Clone)]
pub struct StopHandle(watch::Sender<Phase>);

impl StopHandle {
    pub fn stop(&self) {
        self.0.send_if_modified(|phase| {
            let serving = *phase == Phase::Serving;
            if serving {
                *phase = Phase::Stopping;
            }
            serving
        });
    }
}

/// Serves until SIGTERM, SIGINT or the end of `linger`; then saves every machine. `ready` is called
/// when the service accepts connections.
pub fn serve(
    host: Arc<Host>,
    options: Options,
    ready: impl FnOnce(&BoundAddresses),
) -> Result<(), Error> {
    serve_until_stopped(host, options, Box::new(ready))
}

type Ready<'a> = Box<dyn FnOnce(&BoundAddresses) + 'a>;

/// Not generic, so that the service is compiled with this crate and not with each of its users.
fn serve_until_stopped(host: Arc<Host>, options: Options, ready: Ready<'_>) -> Result<(), Error> {
    let runtime = restricted_runtime(host.data_dir())?;
    let instruments = options.instruments.clone().map_or_else(Instruments::plain, Ok)?;
    host.observe(Arc::new(instruments.clone()));
    // dropped here, on a thread that may end the engine
    let _host = host.clone();
    let done = runtime.block_on(run(host, options, instruments.clone(), ready));
    runtime.shutdown_timeout(FAREWELL);
    instruments.end();
    done
}

/// Threads that answer requests. They are restricted before they read data of a client; jobs that
/// need more go to the engine's threads ([`stasis_machine::block`]).
fn restricted_runtime(data: &Path) -> Result<Runtime, Error> {
    let kind = ServiceThread::Service { data: data.to_owned() };
    let tried = kind.clone();
    // tried once here, where an error can be reported
    let tried = std::thread::spawn(move || restrict_thread(&tried)).join();
    tried
        .unwrap_or_else(|_| Err(std::io::Error::other("the thread failed")))
        .doing(|| "restrict the service's threads (no capabilities, seccomp, Landlock)".into())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(workers())
        .thread_name("service")
        .on_thread_start(move || {
            stasis_machine::forbid_records_on_this_thread();
            restrict_thread(&kind).expect("it worked on another thread");
        })
        .build();
    runtime.doing(|| "start the service's threads".into())
}

/// Handlers take locks and write to sockets: a few more threads than processors keep the others
/// running.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(4, |count| count.get().max(4))
}

/// The descriptor limit of this process.
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(usize::MAX)
}

async fn run(
    host: Arc<Host>,
    options: Options,
    instruments: Instruments,
    ready: Ready<'_>,
) -> Result<(), Error> {
    let mut listeners = Vec::new();
    for place in &options.listen {
        listeners.push(Listener::bind(place).await?);
    }
    let listen = listeners.iter().map(Listener::place).collect::<Result<Vec<_>, _>>()?;
    let jwt = match options.jwt.clone() {
        Some(jwt) => Some(Jwt::open(jwt).await?),
        None => None,
    };
    let apart = match options.forkd {
        Some(address) => Some(Listener::bind(&Listen::Tcp(address)).await?),
        None => None,
    };
    let forkd = apart.as_ref().map(Listener::place).transpose()?;
    let all: Vec<Listen> = listen.iter().chain(&forkd).cloned().collect();
    let app = prepare(host, &options, instruments, &all, jwt.clone())?;
    let connections = ConnectionContext {
        router: routes::router(app.clone()),
        tls: options.tls.as_ref().map(|(chain, key)| acceptor(chain, key)).transpose()?,
        room: Arc::new(Semaphore::new(options.max_connections)),
        register: ConnectionRegister::new(options.max_connections, descriptors()),
        user: own_user()?,
        app: app.clone(),
    };
    let mut signals = Signals::new()?;
    listeners.into_iter().for_each(|listener| {
        tokio::spawn(connections.clone().receive(listener));
    });
    if let Some(listener) = apart {
        let router = crate::forkd::alone(app.clone());
        tokio::spawn(ConnectionContext { router, ..connections.clone() }.receive(listener));
    }
    start_upkeep(&app, jwt);
    let stop = StopHandle(app.phase.clone());
    ready(&BoundAddresses { listen, forkd, stop: stop.clone() });
    tokio::select! {
        () = signals.next() => {}
        () = lonely(&app, options.linger) => {}
        () = app.reached(Phase::Stopping) => {}
    }
    stop.stop();
    shut_down(&connections, &mut signals, options.max_connections).await
}

/// Starts the tasks that run beside the requests.
fn start_upkeep(app: &App, jwt: Option<Arc<Jwt>>) {
    tokio::spawn(expire(app.clone()));
    tokio::spawn(tend(app.clone()));
    tokio::spawn(thin(app.clone()));
    tokio::spawn(relieve(app.clone()));
    if let Some(jwt) = jwt {
        tokio::spawn(jwt.keep_reading());
    }
}

/// Saves the machines, then gives open connections time to end.
async fn shut_down(
    connections: &ConnectionContext,
    signals: &mut Signals,
    max_connections: usize,
) -> Result<(), Error> {
    let app = &connections.app;
    let unsaved = tokio::select! {
        unsaved = close(app.host.clone()) => unsaved,
        // a second signal skips the wait
        () = signals.next() => vec!["a second signal arrived".to_owned()],
    };
    app.phase.send_replace(Phase::Closed);
    let all = max_connections as u32;
    let _ = tokio::time::timeout(FAREWELL, connections.room.acquire_many(all)).await;
    match unsaved.is_empty() {
        true => Ok(()),
        false => Err(Error::Unsaved(unsaved)),
    }
}

fn prepare(
    host: Arc<Host>,
    options: &Options,
    instruments: Instruments,
    listen: &[Listen],
    jwt: Option<Arc<Jwt>>,
) -> Result<App, Error> {
    let data = host.data_dir().to_owned();
    let addresses = listen.iter().filter_map(Listen::address).map(|address| address.ip());
    let guard =
        OriginGuard::new(addresses.clone(), &options.allowed_hosts, &options.allowed_origins);
    if addresses.count() > 0 {
        first_token(&host, options.root_token.as_deref(), &data.join("token"))?;
    }
    Ok(App::new(AppState {
        forkd: stasis_forkd::Forkd::new(host.clone()),
        v8: stasis_mcpv8::V8::new(host.clone()),
        keyring: Keyring::load(&host)?,
        jwt,
        secure: options.tls.is_some(),
        patience: options.patience,
        guard,
        queue: AccountQueue::new(),
        instruments,
        audit: Audit::open(&data.join("audit.jsonl"))?,
        phase: watch::Sender::new(Phase::Serving),
        words: crate::mcp::words(&data)?,
        host,
    }))
}

fn acceptor(chain: &Path, key: &Path) -> Result<TlsAcceptor, Error> {
    fn wrong<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> Error {
        move |error| Error::Certificate { path: path.to_owned(), what: error.to_string() }
    }
    let certificates = CertificateDer::pem_file_iter(chain).map_err(wrong(chain))?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(wrong(chain))?;
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(wrong(key))?;
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(certificates, key_der).map_err(wrong(chain))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals, Error> {
        let listen = |kind| signal(kind).doing(|| "listen for signals".into());
        let (term, int) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Signals { term, int })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Returns when no client was connected and nothing ran for as long as `linger`.
async fn lonely(app: &App, linger: Option<Duration>) {
    let Some(linger) = linger else { return std::future::pending().await };
    let mut since = Instant::now();
    loop {
        tokio::time::sleep((linger / 8).max(Duration::from_millis(20))).await;
        let busy = || app.host.machines().iter().any(|machine| machine.pending() > 0);
        let quiet = app.instruments.metrics().connections.get() == 0
            && app.instruments.metrics().sockets.get() == 0;
        if !quiet || busy() {
            since = Instant::now();
        } else if since.elapsed() >= linger {
            return;
        }
    }
}

/// Removes expired machines periodically.
async fn expire(app: App) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EXPIRY) => {}
            () = app.reached(Phase::Stopping) => return,
        }
        if let Err(failure) = app.block(|host| host.expire(Timestamp::now())).await {
            tracing::error!(code = %failure.code, message = failure.message, "expiry");
        }
    }
}

/// Frees memory when the host runs short.
async fn relieve(app: App) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RELIEF) => {}
            () = app.reached(Phase::Stopping) => return,
        }
        if let Err(failure) = app.block(|host| host.relieve()).await {
            tracing::error!(code = %failure.code, failure.message, "making room in memory");
        }
    }
}

/// Compresses unused data, removes checkpoints that no rule keeps, and frees their space
/// periodically.
async fn tend(app: App) {
    let (mut last, mut freed) = (Instant::now(), 0);
    loop {
        tokio::select! {
            () = tokio::time::sleep(TENDING) => {}
            () = app.reached(Phase::Stopping) => return,
        }
        if let Err(failure) = app.block(|host| host.compress_cold()).await {
            tracing::error!(code = %failure.code, failure.message, "compression");
        }
        match app.block(|host| host.prune(Timestamp::now())).await {
            Ok(dropped) => freed += dropped,
            Err(failure) => tracing::error!(code = %failure.code, failure.message, "retention"),
        }
        if freed == 0 || last.elapsed() < COLLECTING {
            continue;
        }
        (last, freed) = (Instant::now(), 0);
        if let Err(failure) = app.block(|host| host.collect()).await {
            tracing::error!(code = %failure.code, failure.message, "collection");
        }
    }
}

/// Stores states that machines left a minute ago as differences, a few at a time.
async fn thin(app: App) {
    let mut pause = TENDING;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.reached(Phase::Stopping) => return,
        }
        pause = match app.block(|host| host.thin_states(TENDING)).await {
            Ok(0) => TENDING,
            Ok(_) => THINNING,
            Err(failure) => {
                tracing::error!(code = %failure.code, failure.message, "making states small");
                TENDING
            }
        };
    }
}

async fn close(host: Arc<Host>) -> Vec<String> {
    let closed = stasis_machine::block(move || host.close()).await.unwrap_or_default();
    closed.into_iter().map(|(name, error)| format!("{name}: {error}")).collect()
}
