//! From start to end: listen, serve, stop, save.
//!
//!   serving ──signal, linger──► stopping: no new work ──► machines saved ──► closed ──► end

use crate::app::{App, Phase, Shared};
use crate::audit::Audit;
use crate::connection::Doorman;
use crate::error::{Doing, Error};
use crate::guard::Guard;
use crate::jwt::{Jwt, JwtOptions};
use crate::keyring::{Keyring, first_token};
use crate::listen::{Bound, Listen, Listener, own_user};
use crate::metrics::Metrics;
use crate::routes;
use crate::trace::Traces;
use crate::turns::Turns;
use crate::unproven::Register;
use stasis_api::Timestamp;
use stasis_machine::Host;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How long answers may take after the machines are saved.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often machines whose time is over are looked for.
const EXPIRY: Duration = Duration::from_secs(5);
/// How often checkpoints that no rule keeps are looked for, and the least time between two
/// collections because of them.
const TENDING: Duration = Duration::from_secs(60);
/// How often memory is looked at.
const RELIEF: Duration = Duration::from_secs(1);
const COLLECTING: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub struct Options {
    pub listen: Vec<Listen>,
    /// Where forkd's routes are served alone, besides among all others.
    pub forkd: Option<SocketAddr>,
    /// Certificate chain and key, as PEM files; for TCP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// End when nobody was there and nothing ran for this long.
    pub linger: Option<Duration>,
    /// Names the service is called by, besides loopback and the addresses it listens on.
    pub allowed_hosts: Vec<String>,
    /// Pages that may use the service from a browser.
    pub allowed_origins: Vec<String>,
    /// The first token, `id.secret`; one is made otherwise.
    pub root_token: Option<String>,
    pub max_connections: usize,
    /// How long a body, or the next piece of a long one, may take to arrive.
    pub patience: Duration,
    /// Tokens of somebody else that are taken, too.
    pub jwt: Option<JwtOptions>,
    /// Spans of requests; the host's settings name who watches its machines.
    pub traces: Option<Traces>,
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
            traces: None,
        }
    }
}

/// Ends the service from inside its process.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<Phase>);

impl Stop {
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

/// Serves until SIGTERM, SIGINT or the end of `linger`; then saves every machine. `ready` is
/// called when connections are taken.
pub fn serve(host: Arc<Host>, options: Options, ready: impl FnOnce(&Bound)) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(workers())
        .thread_name("service")
        .build();
    let runtime = runtime.doing(|| "start the service's threads".into())?;
    let traces = options.traces.clone();
    let done = runtime.block_on(run(host, options, ready));
    runtime.shutdown_timeout(FAREWELL);
    if let Some(traces) = traces {
        traces.end();
    }
    done
}

/// Handlers call into the records, which now and then wait for the disk: a few more threads than
/// processors keep the others going.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(4, |count| count.get().max(4))
}

/// How many descriptors this process may have.
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(usize::MAX)
}

async fn run(host: Arc<Host>, options: Options, ready: impl FnOnce(&Bound)) -> Result<(), Error> {
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
    let app = prepare(host, &options, &all, jwt.clone())?;
    let doorman = Doorman {
        router: routes::router(app.clone()),
        tls: options.tls.as_ref().map(|(chain, key)| acceptor(chain, key)).transpose()?,
        room: Arc::new(Semaphore::new(options.max_connections)),
        register: Register::new(options.max_connections, descriptors()),
        user: own_user()?,
        app: app.clone(),
    };
    let mut signals = Signals::new()?;
    listeners.into_iter().for_each(|listener| {
        tokio::spawn(doorman.clone().receive(listener));
    });
    if let Some(listener) = apart {
        let router = crate::forkd::alone(app.clone());
        tokio::spawn(Doorman { router, ..doorman.clone() }.receive(listener));
    }
    tokio::spawn(expire(app.clone()));
    tokio::spawn(tend(app.clone()));
    tokio::spawn(relieve(app.clone()));
    if let Some(jwt) = jwt {
        tokio::spawn(jwt.keep_reading());
    }
    let stop = Stop(app.phase.clone());
    ready(&Bound { listen, forkd, stop: stop.clone() });
    tokio::select! {
        () = signals.next() => {}
        () = lonely(&app, options.linger) => {}
        () = app.reached(Phase::Stopping) => {}
    }
    stop.stop();
    let unsaved = tokio::select! {
        unsaved = close(app.host.clone()) => unsaved,
        // who signals twice does not want to wait
        () = signals.next() => vec!["a second signal came".to_owned()],
    };
    app.phase.send_replace(Phase::Closed);
    let all = options.max_connections as u32;
    let _ = tokio::time::timeout(FAREWELL, doorman.room.acquire_many(all)).await;
    match unsaved.is_empty() {
        true => Ok(()),
        false => Err(Error::Unsaved(unsaved)),
    }
}

fn prepare(
    host: Arc<Host>,
    options: &Options,
    listen: &[Listen],
    jwt: Option<Arc<Jwt>>,
) -> Result<App, Error> {
    let data = host.data_dir().to_owned();
    let addresses = listen.iter().filter_map(|place| match place {
        Listen::Tcp(address) => Some(address.ip()),
        Listen::Unix(_) => None,
    });
    let guard = Guard::new(addresses.clone(), &options.allowed_hosts, &options.allowed_origins);
    if addresses.count() > 0 {
        first_token(&host, options.root_token.as_deref(), &data.join("token"))?;
    }
    let broken = |error: prometheus::Error| Error::Io {
        doing: "set up the metrics".into(),
        source: std::io::Error::other(error.to_string()),
    };
    let counters = options.traces.iter().flat_map(Traces::counters);
    let metrics = Metrics::new().and_then(|metrics| metrics.with(counters)).map_err(broken)?;
    Ok(App::new(Shared {
        forkd: stasis_forkd::Forkd::new(host.clone()),
        keyring: Keyring::load(&host)?,
        jwt,
        secure: options.tls.is_some(),
        patience: options.patience,
        guard,
        turns: Turns::new(),
        metrics,
        traces: options.traces.clone(),
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

/// Returns when nobody was connected and nothing ran for as long as `linger`.
async fn lonely(app: &App, linger: Option<Duration>) {
    let Some(linger) = linger else { return std::future::pending().await };
    let mut since = Instant::now();
    loop {
        tokio::time::sleep((linger / 8).max(Duration::from_millis(20))).await;
        let busy = || app.host.machines().iter().any(|machine| machine.pending() > 0);
        let quiet = app.metrics.connections.get() == 0 && app.metrics.sockets.get() == 0;
        if !quiet || busy() {
            since = Instant::now();
        } else if since.elapsed() >= linger {
            return;
        }
    }
}

/// Removes machines whose time is over, now and then.
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

/// Makes room when the host's memory runs short.
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

/// Compresses what nobody uses, forgets checkpoints that no rule keeps, and frees their space now
/// and then.
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

async fn close(host: Arc<Host>) -> Vec<String> {
    let closed = tokio::task::spawn_blocking(move || host.close()).await.unwrap_or_default();
    closed.into_iter().map(|(name, error)| format!("{name}: {error}")).collect()
}
