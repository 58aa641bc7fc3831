//! Streamable HTTP at `/mcp`, with the tool set named by the path or the header `x-stasis-tools`.
//!
//!   request ──► account ──► the account's own service ──► sessions (old clients), or none (new)
//!
//! Each account has its own sessions, so a session's id is useless to another account. A Host or
//! Origin that is not allowed is refused: a web page must not reach a local service.

use crate::call_limiter::CallLimiter;
use crate::changes::{Changes, EarlyReceiver};
use crate::server::Server;
use crate::sessions::Sessions;
use crate::sets::ToolSet;
use crate::tool_texts::ToolTexts;
use crate::{legacy, sse};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use stasis_forkd::Forkd;
use stasis_machine::Host;
use stasis_mcpv8::{V8, V8Settings, V8Setup};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The header that selects a tool set.
const TOOLS: &str = "x-stasis-tools";

/// The caller of a request. The service that checked the token puts it into the extensions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct McpCaller {
    pub name: String,
    /// Whether this token may build templates. Tokens that may not have separate sessions.
    pub may_build: bool,
    /// Whether its user may answer calls of tools that wait for a person.
    pub may_approve: bool,
}

impl Default for McpCaller {
    fn default() -> McpCaller {
        McpCaller { name: "root".to_owned(), may_build: true, may_approve: true }
    }
}

#[derive(Debug, Clone)]
pub struct McpOptions {
    /// Host names of this service, with or without a port.
    pub hosts: Vec<String>,
    /// Web origins that may call it, such as `https://app.example.com:443`; none, if empty.
    pub origins: Vec<String>,
    /// Maximum sessions of one account and tool set. Clients of revision 2026-07-28 need none.
    pub max_sessions: usize,
    /// Maximum silence of a session, including a call without output.
    pub session_idle: Duration,
    /// Maximum bytes of one request.
    pub max_body: usize,
    /// The account of requests without one; refused, if absent.
    pub anonymous: Option<McpCaller>,
    /// Also serves the fixtures of the conformance suite: for tests only.
    pub conformance: bool,
    /// Instructions and descriptions that replace ours.
    pub words: Arc<ToolTexts>,
    /// Sharing of blocking work between accounts.
    pub limiter: CallLimiter,
}

impl Default for McpOptions {
    fn default() -> McpOptions {
        McpOptions {
            hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            origins: Vec::new(),
            max_sessions: 1000,
            session_idle: Duration::from_secs(3600),
            max_body: 20 << 20,
            anonymous: Some(McpCaller::default()),
            conformance: false,
            words: Arc::default(),
            limiter: CallLimiter::default(),
        }
    }
}

impl McpOptions {
    /// The account of a request, if known.
    pub fn account(&self, extensions: &Extensions) -> Option<McpCaller> {
        extensions.get::<McpCaller>().cloned().or_else(|| self.anonymous.clone())
    }
}

type Service = StreamableHttpService<Server, Sessions>;

/// The MCP endpoint and its shared state.
pub struct McpRoutes {
    host: Arc<Host>,
    forkd: Forkd,
    v8: V8,
    options: McpOptions,
    changes: Arc<Changes>,
    accounts: Mutex<HashMap<OwnedKey, Owned>>,
    pub posts: Arc<sse::SseSenders>,
}

/// A tool set, an account, and the id of a setup.
type OwnedKey = (ToolSet, McpCaller, Option<String>);

/// State of one account for a tool set.
#[derive(Clone)]
struct Owned {
    service: Service,
    sessions: Arc<Sessions>,
}

/// All tool sets and transports. The account of a request is the `McpCaller` among its extensions,
/// or `root`.
pub fn router(host: Arc<Host>, surfaces: (Forkd, V8), options: McpOptions) -> Router {
    let (forkd, v8) = surfaces;
    let changes = Changes::new(&host);
    let (accounts, posts) = (Mutex::default(), Arc::default());
    let mounts = Arc::new(McpRoutes { host, forkd, v8, options, changes, accounts, posts });
    let at = |tools: Option<ToolSet>| {
        any(move |State(mounts), request| handle(mounts, tools, request)).with_state(mounts.clone())
    };
    let mut router = Router::new().route("/mcp", at(None)).merge(sse::routes(mounts.clone()));
    for (name, tools) in ToolSet::PUBLIC {
        router = router.route(&format!("/mcp/{name}"), at(Some(tools)));
    }
    router
}

async fn handle(
    mounts: Arc<McpRoutes>,
    tools: Option<ToolSet>,
    mut request: Request<Body>,
) -> Response {
    let tools = match mounts.choose(tools, request.headers()) {
        Ok(tools) => tools,
        Err(words) => return (StatusCode::BAD_REQUEST, words).into_response(),
    };
    if is_own_page(request.headers()) {
        request.headers_mut().remove(header::ORIGIN);
    }
    let Some(account) = mounts.options.account(request.extensions()) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let owned = match mounts.owned(tools, account, request.headers()).await {
        Ok(owned) => owned,
        Err(words) => return (StatusCode::BAD_REQUEST, words).into_response(),
    };
    if opens_session(&request) && owned.sessions.count().await >= mounts.options.max_sessions {
        let words = "too many sessions: end some, or use protocol 2026-07-28, which needs none";
        return (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
    }
    let request = match of_earlier_revision(request.headers()) {
        true => match marked(request, mounts.options.max_body).await {
            Ok(request) => request,
            Err(status) => return status.into_response(),
        },
        false => request,
    };
    let ends = request.method() == Method::DELETE;
    let mut answer = owned.service.handle(request).await.map(Body::new);
    // clients treat anything but 200 and 204 as a failure
    if ends && answer.status() == StatusCode::ACCEPTED {
        *answer.status_mut() = StatusCode::NO_CONTENT;
    }
    answer
}

fn of_earlier_revision(headers: &HeaderMap) -> bool {
    headers.get("mcp-protocol-version").is_some_and(|version| version == legacy::REVISION)
        && headers.contains_key("mcp-session-id")
}

/// The request, renamed to a method of ours if it is about tasks.
async fn marked(
    request: Request<Body>,
    max_body: usize,
) -> std::result::Result<Request<Body>, StatusCode> {
    let (mut parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, max_body).await;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    let message = legacy::may_concern(&body).then(|| serde_json::from_slice::<Value>(&body).ok());
    let Some(mut message) = message.flatten().filter(Value::is_object) else {
        return Ok(Request::from_parts(parts, Body::from(body)));
    };
    if !legacy::mark(&mut message) {
        return Ok(Request::from_parts(parts, Body::from(body)));
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Request::from_parts(parts, Body::from(message.to_string())))
}

/// Whether the request comes from a page of this service itself: of the requested host, which is
/// checked next.
fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else {
        return false;
    };
    let of = |scheme| origin.strip_prefix(scheme).is_some_and(|own| own.eq_ignore_ascii_case(host));
    of("http://") || of("https://")
}

/// Whether a request may create a session.
fn opens_session(request: &Request<Body>) -> bool {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let stateless = header("mcp-protocol-version").is_some_and(|version| version >= "2026-07-28");
    request.method() == Method::POST && header("mcp-session-id").is_none() && !stateless
}

impl McpRoutes {
    /// The tool set named by a path or header; ours by default.
    pub fn choose(
        &self,
        by_path: Option<ToolSet>,
        headers: &HeaderMap,
    ) -> std::result::Result<ToolSet, String> {
        let named = headers.get(TOOLS).map(|name| name.to_str().unwrap_or_default());
        let named = named.map(|name| ToolSet::named(name).ok_or_else(|| no_such_set(name)));
        let chosen = by_path.map_or_else(|| named.unwrap_or(Ok(ToolSet::Stasis)), Ok)?;
        let test = self.options.conformance && chosen == ToolSet::Stasis;
        Ok(if test { ToolSet::Conformance } else { chosen })
    }

    /// Whether host and origin of a request are on the lists.
    pub fn admits(&self, headers: &HeaderMap) -> std::result::Result<(), StatusCode> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).unwrap_or_default().to_ascii_lowercase();
        let bare = host.rsplit_once(':').map_or(&*host, |(bare, _)| bare);
        let bare = bare.trim_matches(['[', ']']);
        let known = |own: &String| *own == host || own.trim_matches(['[', ']']) == bare;
        let origin = headers.contains_key(header::ORIGIN).then(|| text(header::ORIGIN));
        let foreign = origin.is_some_and(|origin| {
            !is_own_page(headers)
                && !self.options.origins.iter().any(|own| Some(own.as_str()) == origin)
        });
        match self.options.hosts.iter().any(known) && !foreign {
            true => Ok(()),
            false => Err(StatusCode::FORBIDDEN),
        }
    }

    pub fn options(&self) -> &McpOptions {
        &self.options
    }

    pub fn server(
        &self,
        tools: ToolSet,
        account: &McpCaller,
        setup: Option<Arc<V8Setup>>,
    ) -> Server {
        Server {
            host: self.host.clone(),
            forkd: self.forkd.clone(),
            v8: self.v8.clone(),
            account: account.clone(),
            tools,
            changes: self.changes.clone(),
            words: self.options.words.clone(),
            setup,
            limiter: self.options.limiter.clone(),
            notebook: Arc::default(),
            notes: None,
            early: EarlyReceiver::default(),
        }
    }

    /// The setup named by a request; only mcp-v8's tools have one.
    pub async fn setup(
        &self,
        tools: ToolSet,
        account: &McpCaller,
        headers: &HeaderMap,
    ) -> std::result::Result<Option<Arc<V8Setup>>, String> {
        let id = V8Settings::of(headers).setup.filter(|_| tools.v8_mode().is_some());
        let Some(id) = id else { return Ok(None) };
        let (v8, name) = (self.v8.clone(), account.name.clone());
        // the service's own threads open no files
        let read = stasis_machine::block(move || v8.setup(&name, &id)).await;
        let read = read.map_err(|error| error.to_string())?;
        read.map(|setup| Some(Arc::new(setup))).map_err(|error| error.message)
    }

    /// The state of an account for a tool set and a setup. A removed setup stays usable for
    /// connections that have it open.
    async fn owned(
        &self,
        tools: ToolSet,
        account: McpCaller,
        headers: &HeaderMap,
    ) -> std::result::Result<Owned, String> {
        let setup = V8Settings::of(headers).setup.filter(|_| tools.v8_mode().is_some());
        let key = (tools, account, setup);
        if let Some(owned) = self.accounts.lock().get(&key) {
            return Ok(owned.clone());
        }
        let setup = self.setup(tools, &key.1, headers).await?;
        let open = || self.open(self.server(tools, &key.1, setup));
        Ok(self.accounts.lock().entry(key.clone()).or_insert_with(open).clone())
    }

    fn open(&self, server: Server) -> Owned {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(self.options.session_idle);
        let sessions = Arc::new(Sessions::new(sessions, server.clone()));
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(self.options.hosts.clone())
            .with_allowed_origins(self.options.origins.clone())
            .with_max_request_body_bytes(self.options.max_body)
            // an empty list must mean none, not all
            .enforce_origin_validation();
        let service =
            StreamableHttpService::new(move || Ok(server.for_client()), sessions.clone(), config);
        Owned { service, sessions }
    }
}

fn no_such_set(name: &str) -> String {
    let names: Vec<_> = ToolSet::PUBLIC.iter().map(|(name, _)| *name).collect();
    let shown = crate::text::first_line(name, 40);
    format!("there is no tool set `{shown}`; the sets are {}", names.join(", "))
}
