//! `stasis serve`: machines as a service, or as the private keeper of a data directory.
//!
//!   settings ─► Host (the directory's lock) ─► listen ─► until a signal or nobody came for a while
//!
//! A keeper that finds the directory kept by another ends quietly: whoever started it finds the
//! other's socket.

use crate::bench::setup;
use crate::client::Keeper;
use crate::config::Config;
use crate::context::Context;
use crate::failure::{Exit, Failure, Result};
use crate::show::{self, Progress};
use serde_json::json;
use stasis_api::Ranged;
use stasis_machine::{Host, Quota, Settings};
use stasis_server::{Bound, JwtOptions, Listen, Options, Traces};
use stasis_sys::{files, process};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// What opening a directory says that another keeps, or has not quite let go of yet.
const KEPT: [&str; 2] = ["data.in_use", "store.busy"];

#[derive(clap::Args)]
pub struct Args {
    /// Where to listen, such as 127.0.0.1:7717
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Serve forkd's routes at an address of their own, such as 127.0.0.1:8889
    #[arg(long, value_name = "ADDRESS", conflicts_with = "private")]
    forkd_listen: Option<String>,
    /// Only on the data directory's own socket, for this user
    #[arg(long, conflicts_with_all = ["listen", "tls_certificate"])]
    private: bool,
    /// End when nobody used it for this long, in seconds, or `none`
    #[arg(long, value_name = "SECONDS")]
    linger: Option<String>,
    /// A collector to send traces to, such as http://127.0.0.1:4318 (OTLP over HTTP)
    #[arg(long, value_name = "URL", conflicts_with = "private")]
    otlp_endpoint: Option<String>,
    /// A chain of certificates, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Its key, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// A name the service is called by, besides its addresses
    #[arg(long = "allow-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// A page that may use the service from a browser, such as https://example.org
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    allowed_origins: Vec<String>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let mut config = context.config.clone();
    let flags = [
        ("listen", &args.listen),
        ("linger_seconds", &args.linger),
        ("otlp_endpoint", &args.otlp_endpoint),
    ];
    for (key, text) in flags.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?))) {
        config.flag(key, text)?;
    }
    let mut options = options(&args, &config)?;
    stand_alone(args.private);
    let mut settings = settings(&config)?;
    if !args.private {
        options.traces = Traces::start(config.text("otlp_endpoint").as_deref()).map_err(failed)?;
        settings.observer = options.traces.as_ref().map(Traces::observer);
    }
    if !args.private {
        relieve(&config)?;
    }
    let host = match Host::open(settings) {
        Err(error) if args.private && KEPT.contains(&error.code()) => return Ok(ExitCode::SUCCESS),
        other => Arc::new(other?),
    };
    if !args.private {
        prepare(&host)?;
    }
    let data = config.data_dir();
    let (as_json, is_secure) = (context.json, options.tls.is_some());
    let ready = move |bound: &Bound| {
        match Place::of(bound, &data, is_secure) {
            // a line, so that programs can read on
            Some(place) if as_json => show::say(&json!(place).to_string()),
            Some(place) => place.announce(),
            None => {}
        }
        tell_manager();
    };
    stasis_server::serve(host, options, ready).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn failed(error: stasis_server::Error) -> Failure {
    Failure::new(error.code(), error.to_string()).hint(error.hint())
}

/// A keeper that commands started gives way to a service, which does the same and more.
fn relieve(config: &Config) -> Result<()> {
    let Some(running) = Keeper::of(config)?.running() else { return Ok(()) };
    let line = std::fs::read(format!("/proc/{}/cmdline", running.pid)).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    if words.any(|word| word == b"--private") {
        return running.stop();
    }
    let dir = config.data_dir();
    let message = format!("{} is served already, by process {}", dir.display(), running.pid);
    Err(Failure::new("data.in_use", message).hint("commands use it by themselves; or --data-dir"))
}

/// What a process needs that outlives the one who started it and holds many machines.
fn stand_alone(private: bool) {
    // files of templates are read by the users of machines; the data directory itself is closed
    files::umask(0o022);
    if private {
        // fails for the first of a group, which stands alone already
        let _ = process::setsid();
    }
    // fewer descriptors mean fewer machines in memory at once, not a failure
    let _ = process::raise_descriptor_limit();
    let level = if private { tracing::Level::WARN } else { tracing::Level::INFO };
    let asked = std::env::var("STASIS_LOG").ok().and_then(|level| level.parse().ok());
    let level = asked.unwrap_or(level);
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
}

fn settings(config: &Config) -> Result<Settings> {
    let plain = Settings::new(config.data_dir(), setup::spawner()?);
    let wrong = |fault: stasis_api::OutOfRange| {
        Failure::new("config.invalid", format!("limits.{fault}")).exit(Exit::Usage)
    };
    config.limits().check().map_err(wrong)?;
    Ok(Settings {
        idle_swap: config.seconds("idle_swap_seconds"),
        timeout: config.seconds("timeout_seconds"),
        cold_after: config.seconds("cold_seconds"),
        keep_free: config.count("keep_free_mb").map(|mb| mb.saturating_mul(1 << 20)),
        limits: config.limits().or(plain.limits),
        retention: config.retention(),
        quota: Quota {
            machines: config.count("quota.machines"),
            memory_mb: config.count("quota.memory_mb"),
            instructions: config.count("quota.instructions"),
            disk_mb: config.count("quota.disk_mb"),
        },
        max_artifact: config.count("max_artifact_mb").map_or(plain.max_artifact, |mb| mb << 20),
        ..plain
    })
}

fn options(args: &Args, config: &Config) -> Result<Options> {
    let mut listen = vec![Listen::Unix(config.data_dir().join("stasis.sock"))];
    if !args.private {
        listen.push(Listen::Tcp(address(&config.text("listen").unwrap_or_default())?));
    }
    Ok(Options {
        listen,
        forkd: args.forkd_listen.as_deref().map(address).transpose()?,
        tls: args.tls_certificate.clone().zip(args.tls_key.clone()),
        // a service that was started by hand stays, unless it was told otherwise by hand
        linger: config.seconds("linger_seconds").filter(|_| args.private || args.linger.is_some()),
        allowed_hosts: args.allowed_hosts.clone(),
        allowed_origins: args.allowed_origins.clone(),
        root_token: std::env::var("STASIS_ROOT_TOKEN").ok().filter(|token| !token.is_empty()),
        jwt: jwt(config)?,
        ..Options::default()
    })
}

/// Whose web tokens are taken: all three keys, or none.
fn jwt(config: &Config) -> Result<Option<JwtOptions>> {
    let all = ["jwt.jwks", "jwt.issuer", "jwt.audience"].map(|key| config.text(key));
    match all {
        [None, None, None] => Ok(None),
        [Some(jwks), Some(issuer), Some(audience)] => {
            Ok(Some(JwtOptions { jwks, issuer, audience }))
        }
        _ => Err(Failure::usage("jwt.jwks, jwt.issuer and jwt.audience belong together")),
    }
}

fn address(text: &str) -> Result<std::net::SocketAddr> {
    text.parse().map_err(|_| {
        Failure::usage(format!("{text:?} is not an address to listen on"))
            .hint("write it as 127.0.0.1:7717 or [::1]:7717")
    })
}

/// A service that was started by hand has its default template before it says it is ready.
fn prepare(host: &Host) -> Result<()> {
    if host.template(None).is_ok() {
        return Ok(());
    }
    let recipe = stasis_template::Recipe::default_python();
    let shown = Shown(RefCell::new(Progress::new(&format!("template {}", recipe.name))));
    let built = host.build_template(&recipe, &shown);
    shown.0.into_inner().end(if built.is_ok() { "ready" } else { "failed" });
    Ok(built.map(drop)?)
}

/// A build in this process, shown as others are.
struct Shown(RefCell<Progress>);

impl stasis_template::Progress for Shown {
    fn step(&self, name: &str, done: u64, total: Option<u64>) {
        self.0.borrow_mut().step(name, done, total);
    }

    fn say(&self, line: &str) {
        self.0.borrow().say(line);
    }
}

/// Tells a service manager that asked for it (systemd's `Type=notify`) that requests are taken.
fn tell_manager() {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let place = place.as_bytes();
    let address = match place.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(OsStr::from_bytes(place)),
    };
    let told = address.and_then(|to| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &to));
    if let Err(error) = told {
        tracing::warn!("NOTIFY_SOCKET: {error}");
    }
}

/// Where it is.
#[derive(serde::Serialize)]
struct Place {
    url: String,
    forkd_url: Option<String>,
    /// Absent where the token was given from outside.
    token_file: Option<PathBuf>,
}

impl Place {
    fn of(bound: &Bound, data: &Path, is_secure: bool) -> Option<Place> {
        let scheme = if is_secure { "https" } else { "http" };
        let forkd_url = match &bound.forkd {
            Some(Listen::Tcp(address)) => Some(format!("{scheme}://{address}")),
            _ => None,
        };
        let given = std::env::var_os("STASIS_ROOT_TOKEN").is_some();
        let token_file = (!given).then(|| data.join("token"));
        Some(Place { url: format!("{scheme}://{}", bound.tcp()?), forkd_url, token_file })
    }

    /// Says where it is, and what to do with it.
    fn announce(&self) {
        let url = &self.url;
        eprintln!("listening on {url}");
        if let Some(forkd) = &self.forkd_url {
            eprintln!("forkd at     {forkd}");
        }
        let Some(token) = self.token_file.as_ref().map(|file| file.display()) else { return };
        eprintln!("token in     {token}");
        eprintln!("try          curl -sS -X POST {url}/v1/machine/new \\");
        eprintln!("               -H \"authorization: Bearer $(cat {token})\"");
        let headers = json!({ "Authorization": "Bearer ${STASIS_TOKEN}" });
        let server = json!({ "url": format!("{url}/mcp"), "headers": headers });
        let paste = json!({ "mcpServers": { "stasis": server } });
        eprintln!("MCP client   {paste}");
        eprintln!("               with STASIS_TOKEN set to what is in that file, or written there");
    }
}
