//! `stasis serve`: the service, or the private daemon of a data directory.
//!
//!   settings ─► fewer privileges ─► Host (the directory's lock) ─► listen ─► until a signal, or
//!   the idle limit
//!
//! A daemon that finds the directory locked by another exits quietly: the command that started it
//! connects to the other.

use crate::client::Daemon;
use crate::config::Config;
use crate::context::Context;
use crate::failure::{CliFailure, Exit, PathContext, Result};
use crate::logging;
use crate::show::{self, BuildProgress};
use serde_json::json;
use stasis_api::Ranged;
use stasis_command::install;
use stasis_machine::{Host, ImportRule, Quota, Settings, ToolServer};
use stasis_sandbox::service;
use stasis_server::{BoundAddresses, Instruments, JwtOptions, Listen, Options};
use stasis_sys::{files, process};
use stasis_template::{NoProgress, Recipe};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use tracing_subscriber::filter::LevelFilter;

/// The errors of a directory that another process holds, or is about to release.
const KEPT: [&str; 2] = ["data.in_use", "store.busy"];

#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on, such as 127.0.0.1:7717
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Second address for forkd's routes only, such as 127.0.0.1:8889
    #[arg(long, value_name = "ADDRESS", conflicts_with = "private")]
    forkd_listen: Option<String>,
    /// Listen only on a socket in the data directory, for this user
    #[arg(long, conflicts_with_all = ["listen", "tls_certificate"])]
    private: bool,
    /// Exit after this many idle seconds, or `none`
    #[arg(long, value_name = "SECONDS")]
    linger: Option<String>,
    /// OpenTelemetry collector for traces, such as http://127.0.0.1:4318 (OTLP over HTTP)
    #[arg(long, value_name = "URL", conflicts_with = "private")]
    otlp_endpoint: Option<String>,
    /// Log filter: a level, and levels per target, such as `warn,stasis_machine=debug`
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Log format: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", value_parser = logging::FORMATS)]
    log_format: Option<String>,
    /// Certificate chain, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Private key, as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this host without TLS, for example behind a proxy that terminates it
    #[arg(long, conflicts_with = "private")]
    plain_http: bool,
    /// Public host name of the service
    #[arg(long = "allow-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// Origin whose pages may use the service, such as https://example.org
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    allowed_origins: Vec<String>,
    /// Build this language's template in the background, unless it exists
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "private")]
    prepare: Vec<String>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let mut config = context.config.clone();
    let flags = [
        ("listen", &args.listen),
        ("linger_seconds", &args.linger),
        ("otlp_endpoint", &args.otlp_endpoint),
        ("log", &args.log),
        ("log_format", &args.log_format),
    ];
    for (key, text) in flags.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?))) {
        config.flag(key, text)?;
    }
    let mut options = options(&args, &config)?;
    let later = args.prepare.iter().map(|name| recipe_of(name)).collect::<Result<Vec<_>>>()?;
    service::restrict_process().map_err(|error| {
        CliFailure::new("service.restrict", format!("cannot drop privileges: {error}"))
            .hint("`stasis doctor` checks this host")
    })?;
    stand_alone(args.private);
    logging::start(&config, if args.private { LevelFilter::WARN } else { LevelFilter::INFO })?;
    let settings = settings(&config)?;
    if !args.private {
        let endpoint = config.text("otlp_endpoint");
        options.instruments = Some(Instruments::start(endpoint.as_deref()).map_err(failed)?);
        relieve(&config)?;
    }
    let host = match Host::open(settings) {
        Err(error) if args.private && KEPT.contains(&error.code()) => return Ok(ExitCode::SUCCESS),
        other => Arc::new(other?),
    };
    if !args.private {
        prepare(&host)?;
        host.warm_template(None)?;
    }
    let data = config.data_dir();
    let (as_json, is_secure) = (context.json, options.tls.is_some());
    let logs_json = logging::is_json(&config);
    let weak = Arc::downgrade(&host);
    let ready = move |bound: &BoundAddresses| {
        prepare_later(&weak, &later);
        match Place::of(bound, &data, is_secure) {
            // one line, so that programs can keep reading
            Some(place) if as_json => show::say(&json!(place).to_string()),
            Some(place) if logs_json => place.log(),
            Some(place) => place.announce(),
            None => {}
        }
        tell_manager();
    };
    stasis_server::serve(host, options, ready).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn failed(error: stasis_server::Error) -> CliFailure {
    CliFailure::new(error.code(), error.to_string()).hint(error.hint())
}

/// Stops a daemon that commands started, because the service replaces it. A process that was just
/// killed still accepts connections, so its end is awaited.
fn relieve(config: &Config) -> Result<()> {
    let Some(running) = Daemon::of(config)?.running() else { return Ok(()) };
    if stasis_machine::is_process_ending(running.pid) && running.wait() {
        return Ok(());
    }
    let line = std::fs::read(format!("/proc/{}/cmdline", running.pid)).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    if words.any(|word| word == b"--private") {
        return running.stop();
    }
    let dir = config.data_dir();
    let message = format!("process {} already serves {}", running.pid, dir.display());
    Err(CliFailure::new("data.in_use", message)
        .hint("commands connect to it; or choose another --data-dir"))
}

/// Setup of a process that outlives its parent and holds many machines.
fn stand_alone(private: bool) {
    // files of templates are read by the users of machines; the data directory itself is private
    files::umask(0o022);
    if private {
        // fails for a group leader, which is separate already
        let _ = process::setsid();
    }
    // fewer descriptors mean fewer machines in memory at once, not a failure
    let _ = process::raise_descriptor_limit();
}

/// A setting that was validated when read.
fn word<T: FromStr>(config: &Config, key: &str) -> Result<Option<T>>
where
    T::Err: std::fmt::Display,
{
    let wrong = |error: T::Err| {
        CliFailure::new("config.invalid", format!("{key}: {error}")).exit(Exit::Usage)
    };
    config.text(key).map(|text| text.parse().map_err(wrong)).transpose()
}

fn settings(config: &Config) -> Result<Settings> {
    let plain = Settings::new(config.data_dir(), install::spawner()?);
    let wrong = |fault: stasis_api::OutOfRange| {
        CliFailure::new("config.invalid", format!("limits.{fault}")).exit(Exit::Usage)
    };
    config.limits().check().map_err(wrong)?;
    Ok(Settings {
        idle_swap: config.seconds("idle_swap_seconds"),
        timeout: config.seconds("timeout_seconds"),
        cold_after: config.seconds("cold_seconds"),
        keep_free: config.count("keep_free_mb").map(|mb| mb.saturating_mul(1 << 20)),
        limits: config.limits().or(plain.limits),
        network: word(config, "network")?.unwrap_or_default(),
        policy: word(config, "policy")?,
        imports: match config.text("imports").as_deref() {
            Some("packages") => ImportRule::Packages,
            Some("all") => ImportRule::All,
            _ => ImportRule::Network,
        },
        tools: tool_servers(config)?,
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

/// The upstream servers in the file that the setting `tools` names.
pub fn tool_servers(config: &Config) -> Result<Vec<ToolServer>> {
    let Some(path) = config.text("tools").map(PathBuf::from) else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(&path).at("read", &path)?;
    let variable = |name: &str| std::env::var(name).ok();
    ToolServer::read(&text, variable).map_err(|fault| {
        CliFailure::new("config.invalid", format!("{}: {fault}", path.display())).exit(Exit::Usage)
    })
}

fn options(args: &Args, config: &Config) -> Result<Options> {
    let mut listen = vec![Listen::Unix(config.data_dir().join("stasis.sock"))];
    if !args.private {
        listen.push(Listen::Tcp(address(&config.text("listen").unwrap_or_default())?));
    }
    let forkd = args.forkd_listen.as_deref().map(address).transpose()?;
    if args.tls_certificate.is_none() && !args.plain_http && !config.is_set("plain_http") {
        let tcp = listen.iter().filter_map(Listen::address).chain(forkd);
        tcp.into_iter().try_for_each(refuse_open)?;
    }
    Ok(Options {
        listen,
        forkd,
        tls: args.tls_certificate.clone().zip(args.tls_key.clone()),
        // a service started by hand stays, unless a flag says otherwise
        linger: config.seconds("linger_seconds").filter(|_| args.private || args.linger.is_some()),
        allowed_hosts: args.allowed_hosts.clone(),
        allowed_origins: args.allowed_origins.clone(),
        root_token: std::env::var("STASIS_ROOT_TOKEN").ok().filter(|token| !token.is_empty()),
        jwt: jwt(config)?,
        ..Options::default()
    })
}

/// Refuses to send tokens over a network in the clear.
fn refuse_open(address: std::net::SocketAddr) -> Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let message = format!("other hosts can reach {address}, and without TLS they can read tokens");
    Err(CliFailure::new("service.plain_http", message).exit(Exit::Usage).hint(
        "pass --tls-certificate and --tls-key, or --plain-http if a proxy or private network \
         protects it",
    ))
}

/// The issuer of accepted web tokens: all three keys, or none.
fn jwt(config: &Config) -> Result<Option<JwtOptions>> {
    let all = ["jwt.jwks", "jwt.issuer", "jwt.audience"].map(|key| config.text(key));
    match all {
        [None, None, None] => Ok(None),
        [Some(jwks), Some(issuer), Some(audience)] => {
            Ok(Some(JwtOptions { jwks, issuer, audience }))
        }
        _ => Err(CliFailure::usage("set all of jwt.jwks, jwt.issuer and jwt.audience, or none")),
    }
}

fn address(text: &str) -> Result<std::net::SocketAddr> {
    text.parse().map_err(|_| {
        CliFailure::usage(format!("{text:?} is not an address to listen on"))
            .hint("write it as 127.0.0.1:7717 or [::1]:7717")
    })
}

/// A service started by hand builds its default template before it reports that it is ready.
fn prepare(host: &Host) -> Result<()> {
    if host.template(None).is_ok() {
        return Ok(());
    }
    let recipe = Recipe::default_template();
    let shown = Shown(RefCell::new(BuildProgress::new(&format!("template {}", recipe.name))));
    let built = host.build_template(&recipe, &shown);
    shown.0.into_inner().end(if built.is_ok() { "ready" } else { "failed" });
    Ok(built.map(drop)?)
}

/// The recipe of a language's own template.
fn recipe_of(language: &str) -> Result<Recipe> {
    Recipe::built_in(language).ok_or_else(|| {
        let known: Vec<_> = stasis_agent::LANGUAGES.iter().map(|own| own.name()).collect();
        CliFailure::usage(format!("--prepare: there is no language {language:?}"))
            .hint(format!("languages are {}", known.join(" and ")))
    })
}

/// Builds templates while the service works. A build that fails is tried again by the first
/// command that needs the template.
fn prepare_later(host: &Weak<Host>, recipes: &[Recipe]) {
    if recipes.is_empty() {
        return;
    }
    let (host, recipes) = (host.clone(), recipes.to_vec());
    stasis_machine::hand_over(move || {
        for recipe in recipes {
            let Some(host) = host.upgrade() else { return };
            if host.template(Some(&recipe.name)).is_ok() {
                continue;
            }
            let template = recipe.name.as_str();
            tracing::info!(template, "building a template in the background");
            match host.build_template(&recipe, &NoProgress) {
                Ok(_) => tracing::info!(template, "the template is ready"),
                Err(error) => tracing::warn!(template, %error, "the template is not built"),
            }
        }
    });
}

/// A build in this process, shown as others are.
struct Shown(RefCell<BuildProgress>);

impl stasis_template::Progress for Shown {
    fn step(&self, name: &str, done: u64, total: Option<u64>) {
        self.0.borrow_mut().step(name, done, total);
    }

    fn say(&self, line: &str) {
        self.0.borrow().say(line);
    }
}

/// Notifies the service manager (systemd's `Type=notify`) that the service accepts requests.
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

/// Its addresses.
#[derive(serde::Serialize)]
struct Place {
    url: String,
    forkd_url: Option<String>,
    /// Absent if the token was given by the caller.
    token_file: Option<PathBuf>,
}

impl Place {
    fn of(bound: &BoundAddresses, data: &Path, is_secure: bool) -> Option<Place> {
        let scheme = if is_secure { "https" } else { "http" };
        let forkd_url = match &bound.forkd {
            Some(Listen::Tcp(address)) => Some(format!("{scheme}://{address}")),
            _ => None,
        };
        let given = std::env::var_os("STASIS_ROOT_TOKEN").is_some();
        let token_file = (!given).then(|| data.join("token"));
        Some(Place { url: format!("{scheme}://{}", bound.tcp()?), forkd_url, token_file })
    }

    /// Prints the address for programs that read the log.
    fn log(&self) {
        let token_file = self.token_file.as_ref().map(|file| file.display().to_string());
        let (url, forkd_url) = (&self.url, self.forkd_url.as_deref());
        tracing::info!(url, forkd_url, token_file, "listening");
    }

    /// Prints the address, and how to use it.
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
        eprintln!("               set STASIS_TOKEN to the token in that file");
    }
}
