//! `stasis mcp-v8`, and `stasis` under the name `mcp-v8`: a server with mcp-v8's flags. The daemon
//! does the work; this process forwards messages over standard streams, or serves a port.

mod equipment;
mod flags;
mod front;
mod greetings;
mod headers;
mod host_files;
mod policies;
mod servers;

use crate::context::{Context, Global};
use crate::failure::{CliFailure, Result};
use flags::GivenFlags;
use host_files::HostFiles;
use stasis_mcpv8::settings::{FRONT_SESSION, MEMORY, MODE, SETUP, TIMEOUT};
use stasis_mcpv8::{TEMPLATE, V8Mode};
use stasis_server::TokenKeys;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub const NAME: &str = "mcp-v8";

#[derive(clap::Args)]
pub struct Args {
    /// Flags of mcp-v8, such as `--http-port 3000 --heap-store dir`
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<String>,
}

/// The flags of a call as mcp-v8: by the program's own name, or as the first word. They bypass the
/// parser of our own flags, which has some of the same names.
pub fn called() -> Option<Vec<String>> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    let is_named = Path::new(&program).file_name().is_some_and(|name| name == NAME);
    let words: Vec<OsString> = words.collect();
    let own =
        if is_named { &words[..] } else { words.strip_prefix(&[OsString::from(NAME)][..])? };
    let asks = |word: &OsString| word == "--help" || word == "-h" || word == "--version";
    (!own.iter().any(asks) || is_named)
        .then(|| own.iter().map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Runs as mcp-v8.
pub fn serve(words: &[String]) -> Result<ExitCode> {
    run_with(words, &Context::new(Global::default(), true)?)
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    run_with(&args.flags, context)
}

fn run_with(words: &[String], context: &Context) -> Result<ExitCode> {
    let given = GivenFlags::read(words, |name| std::env::var(name).ok())?;
    if given.is_set("print-openapi") {
        let text = serde_json::to_string_pretty(&stasis_mcpv8::openapi());
        println!("{}", text.unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    for note in given.notes() {
        eprintln!("{note}");
    }
    let port = given.number("http-port", 1, 65535)?.or(given.number("sse-port", 1, 65535)?);
    let mut headers = run_settings(&given)?;
    let client = Arc::new(context.client()?);
    super::making::built_in(&client, TEMPLATE)?;
    let (setup, files) = equipment::send(&given, &client)?;
    headers.extend(setup.map(|setup| (SETUP, setup)));
    if let (Some(from), Some(to)) = (given.text("session-fork-from"), given.text("session-id")) {
        let body = serde_json::json!({ "from": from, "to": to });
        client.post::<serde_json::Value>("/api/sessions/fork", &body)?;
    }
    let tools = match given.mode() {
        V8Mode::Stateless => "v8-stateless",
        V8Mode::Heap => "v8",
        V8Mode::Files => "v8-fs",
        V8Mode::HeapAndFiles => "v8-heap-fs",
    };
    match port {
        None => {
            let upstream = client.upstream(&format!("/mcp/{tools}")).with_headers(headers);
            let upstream = upstream.with_edit(move |message| {
                files.fill(message);
            });
            let done = client.block(stasis_mcp::proxy(upstream));
            done.map_err(|error| CliFailure::new("mcp.proxy", error.to_string()))?;
        }
        Some(port) => listen(&given, client, (tools, files), headers, port)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Settings of this process for the runs of its clients.
fn run_settings(given: &GivenFlags) -> Result<Vec<(&'static str, String)>> {
    let mut all = vec![(MODE, given.mode().name().to_owned())];
    if let Some(seconds) = given.number("execution-timeout", 1, 300)? {
        all.push((TIMEOUT, seconds.to_string()));
    }
    if let Some(mb) = given.number("heap-memory-max", 1, 1 << 20)? {
        all.push((MEMORY, mb.to_string()));
    }
    let has_port = given.is_set("http-port") || given.is_set("sse-port");
    if !has_port {
        // a daemon that is started again gives the connection another id
        let session = given.text("session-id").map(str::to_owned);
        all.push((FRONT_SESSION, session.unwrap_or_else(stasis_mcpv8::fresh_session)));
    }
    Ok(all)
}

fn listen(
    given: &GivenFlags,
    client: Arc<crate::client::Client>,
    (tools, files): (&'static str, HostFiles),
    headers: Vec<(&'static str, String)>,
    port: u64,
) -> Result<()> {
    let host = given.text("bind-host").map(str::parse::<IpAddr>).transpose();
    let host = host.map_err(|_| CliFailure::usage("--bind-host is an IP address"))?;
    let place = given.text("jwks-url");
    if host.is_none() {
        let how = if place.is_some() { "with a token" } else { "without a token" };
        eprintln!("listening on this host only; --bind-host 0.0.0.0 lets others in, {how}");
    }
    let host = host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let address = SocketAddr::new(host, u16::try_from(port).unwrap_or_default());
    let mut hosts = given.list("allowed-hosts");
    if hosts.is_empty() {
        hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    }
    let origins = given.list("allowed-origins");
    let failed = |error: std::io::Error| {
        CliFailure::new("mcp_v8.listen", format!("cannot serve {address}: {error}"))
            .hint("choose another port")
    };
    client.block(async {
        let keys = match place {
            Some(place) => Some(TokenKeys::open(place).await.map_err(|why| no_keys(place, &why))?),
            None => None,
        };
        if let Some(keys) = &keys {
            tokio::spawn(keys.clone().keep_reading());
        }
        let greetings = greetings::Greetings::default();
        let client = client.clone();
        let front = front::Front { client, tools, headers, hosts, origins, keys, greetings, files };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
        eprintln!("mcp-v8 on http://{address}");
        front::serve(listener, front).await.map_err(failed)
    })
}

fn no_keys(place: &str, why: &str) -> CliFailure {
    CliFailure::new("mcp_v8.jwks", format!("cannot read the keys at {place}: {why}"))
        .hint("--jwks-url is the address of a JSON Web Key Set, or a file with one")
}
