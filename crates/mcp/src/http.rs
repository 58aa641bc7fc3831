//! Streamable HTTP: `/mcp` with our tools, `/mcp/forevervm` with foreverVM's two.
//!
//!   request ──► account ──► the account's own service ──► sessions (old clients), or none (new)
//!
//! Each account has its own sessions, so that a session's id is worth nothing to another. A Host
//! or an Origin that is not on the lists is refused: a web page must not reach a local service.

use crate::changes::Changes;
use crate::server::{Server, ToolSet};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use stasis_machine::Host;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Whose request it is: put into the request's extensions by whoever checked its token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account(pub String);

impl Default for Account {
    fn default() -> Account {
        Account("root".to_owned())
    }
}

#[derive(Debug, Clone)]
pub struct McpOptions {
    /// Names this service is reached by, with or without a port.
    pub hosts: Vec<String>,
    /// Web origins that may call it, such as `https://app.example.com:443`; none, if empty.
    pub origins: Vec<String>,
    /// Sessions of one account and tool set. Clients of revision 2026-07-28 need none.
    pub max_sessions: usize,
    /// How long a session may be silent, which includes a call that prints nothing.
    pub session_idle: Duration,
    /// Bytes of one request.
    pub max_body: usize,
    /// Serves what the protocol's conformance suite calls, beside our tools: for tests only.
    pub conformance: bool,
}

impl Default for McpOptions {
    fn default() -> McpOptions {
        McpOptions {
            hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            origins: Vec::new(),
            max_sessions: 1000,
            session_idle: Duration::from_secs(3600),
            max_body: 20 << 20,
            conformance: false,
        }
    }
}

type Service = StreamableHttpService<Server, LocalSessionManager>;

struct Mount {
    host: Arc<Host>,
    tools: ToolSet,
    options: McpOptions,
    changes: Arc<Changes>,
    accounts: Mutex<HashMap<Account, Owned>>,
}

/// What one account has of a mount.
#[derive(Clone)]
struct Owned {
    service: Service,
    sessions: Arc<LocalSessionManager>,
}

/// Both tool sets. The account of a request is the `Account` among its extensions, or `root`.
pub fn router(host: Arc<Host>, options: McpOptions) -> Router {
    let changes = Changes::new(&host);
    let mount = |tools| {
        let (host, options, changes) = (host.clone(), options.clone(), changes.clone());
        Arc::new(Mount { host, tools, options, changes, accounts: Mutex::default() })
    };
    let ours = if options.conformance { ToolSet::Conformance } else { ToolSet::Stasis };
    Router::new()
        .route("/mcp", any(handle).with_state(mount(ours)))
        .route("/mcp/forevervm", any(handle).with_state(mount(ToolSet::ForeverVm)))
}

async fn handle(State(mount): State<Arc<Mount>>, mut request: Request<Body>) -> Response {
    if is_own_page(request.headers()) {
        request.headers_mut().remove(header::ORIGIN);
    }
    let account = request.extensions().get::<Account>().cloned().unwrap_or_default();
    let owned = mount.owned(account);
    if opens_session(&request)
        && owned.sessions.sessions.read().await.len() >= mount.options.max_sessions
    {
        let words = "too many sessions: end some, or use protocol 2026-07-28, which needs none";
        return (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
    }
    owned.service.handle(request).await.map(Body::new)
}

/// Whether a page of this service itself asks: of the host it asks for, which is checked next.
fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else {
        return false;
    };
    let of = |scheme| origin.strip_prefix(scheme).is_some_and(|own| own.eq_ignore_ascii_case(host));
    of("http://") || of("https://")
}

/// Whether a request may end up as a new session.
fn opens_session(request: &Request<Body>) -> bool {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let stateless = header("mcp-protocol-version").is_some_and(|version| version >= "2026-07-28");
    request.method() == Method::POST && header("mcp-session-id").is_none() && !stateless
}

impl Mount {
    fn owned(&self, account: Account) -> Owned {
        let mut accounts = self.accounts.lock().unwrap_or_else(|poison| poison.into_inner());
        accounts.entry(account.clone()).or_insert_with(|| self.open(account)).clone()
    }

    fn open(&self, account: Account) -> Owned {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(self.options.session_idle);
        let sessions = Arc::new(sessions);
        let (host, changes) = (self.host.clone(), self.changes.clone());
        let server = Server { host, account: account.0, tools: self.tools, changes };
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(self.options.hosts.clone())
            .with_allowed_origins(self.options.origins.clone())
            .with_max_request_body_bytes(self.options.max_body)
            // an empty list must mean nobody, not everybody
            .enforce_origin_validation();
        let service =
            StreamableHttpService::new(move || Ok(server.clone()), sessions.clone(), config);
        Owned { service, sessions }
    }
}
