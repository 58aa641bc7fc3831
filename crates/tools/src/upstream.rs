//! One upstream server: its connection, its tools, and calls.
//!
//!   first use ─► connect ─► list ─► call, call, ...       list_changed ─► the list is read again
//!      ▲                              │
//!      └───── the connection ended ◄──┘                   a call that was sent is never sent again

use crate::bounds::BoundedLines;
use crate::config::{ServerTransport, ToolServer};
use crate::error::ToolFault;
use crate::http::BoundedHttp;
use crate::sse::OlderHttp;
use crate::tokens::TokenSource;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    Implementation, PaginatedRequestParams, Tool,
};
use rmcp::service::{NotificationContext, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::future::Future;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Calls of one server at a time.
const MOST_CALLS: usize = 32;
/// How long a server may take to start, and to list its tools.
const CONNECT: Duration = Duration::from_secs(30);
/// After a failure the next attempt waits so long.
const RETRY: Duration = Duration::from_secs(1);
/// Tools of one server, pages of its list, bytes of the list.
const MOST_TOOLS: usize = 1000;
const MOST_PAGES: usize = 100;
const LONGEST_LIST: usize = 4 << 20;
const LONGEST_TOOL_NAME: usize = 128;
/// Bytes of standard error that are told when a server fails.
const TOLD: usize = 600;
/// Variables of the service that its child processes see.
const PASSED_ON: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER"];

/// A tool, as its server describes it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ToolInfo {
    pub name: String,
    pub description: Option<String>,
    pub input_schema: Map<String, Value>,
    pub output_schema: Option<Map<String, Value>>,
}

/// All tools of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolList {
    /// Differs where the list does.
    pub etag: String,
    pub tools: Vec<ToolInfo>,
    /// Tools that were left out, and why.
    pub left_out: Option<String>,
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    pub content: Vec<Value>,
    pub structured: Option<Value>,
    /// The tool itself failed; the content says how.
    pub is_error: bool,
}

pub struct ToolUpstream {
    pub config: ToolServer,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    list: Mutex<Option<(u64, Arc<ToolList>)>>,
    calls: Semaphore,
    failed: Mutex<Option<(Instant, String)>>,
    /// Counts connections and changes of the list.
    changes: Arc<AtomicU64>,
    /// Shared by all connections: a token is got once.
    tokens: Mutex<Option<Arc<TokenSource>>>,
    used: Mutex<Instant>,
}

struct Connection {
    service: RunningService<RoleClient, UpstreamHandler>,
    /// The end of what its process wrote to standard error.
    told: Arc<Mutex<VecDeque<u8>>>,
    /// Killed when it is dropped.
    _child: Option<Child>,
}

#[derive(Clone)]
struct UpstreamHandler {
    changes: Arc<AtomicU64>,
}

impl ClientHandler for UpstreamHandler {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("stasis", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    fn on_tool_list_changed(
        &self,
        _context: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.changes.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    }
}

impl ToolUpstream {
    pub fn new(config: ToolServer) -> ToolUpstream {
        ToolUpstream {
            config,
            connection: tokio::sync::Mutex::default(),
            list: Mutex::default(),
            calls: Semaphore::new(MOST_CALLS),
            failed: Mutex::default(),
            changes: Arc::default(),
            tokens: Mutex::default(),
            used: Mutex::new(Instant::now()),
        }
    }

    fn unreachable(&self, why: impl ToString) -> ToolFault {
        ToolFault::Unreachable { server: self.config.name.clone(), why: why.to_string() }
    }

    /// The connection, made if there is none.
    async fn connected(&self) -> Result<Arc<Connection>, ToolFault> {
        *self.used.lock() = Instant::now();
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| !open.service.is_closed()) {
            return Ok(open.clone());
        }
        *connection = None;
        if let Some((at, why)) = self.failed.lock().as_ref()
            && at.elapsed() < RETRY
        {
            return Err(self.unreachable(why));
        }
        let made = timeout(CONNECT, self.connect()).await;
        let made = made.unwrap_or_else(|_| Err(format!("no answer within {CONNECT:?}")));
        match made {
            Ok(made) => {
                self.changes.fetch_add(1, Ordering::Relaxed);
                tracing::info!(server = %self.config.name, "connected to a tool server");
                Ok(connection.insert(Arc::new(made)).clone())
            }
            Err(why) => {
                tracing::warn!(server = %self.config.name, %why, "tool server not reached");
                *self.failed.lock() = Some((Instant::now(), why.clone()));
                Err(self.unreachable(why))
            }
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let handler = UpstreamHandler { changes: self.changes.clone() };
        match &self.config.transport {
            ServerTransport::Http { url, headers, .. } => {
                let client = BoundedHttp::new(headers, self.tokens()?)?;
                let service = connect_http(handler, client, url).await?;
                Ok(Connection { service, told: Arc::default(), _child: None })
            }
            ServerTransport::Stdio { command, args, env, cwd } => {
                let mut child = Command::new(command);
                child.args(args).env_clear().kill_on_drop(true);
                let own = |name: &'static str| Some((name, std::env::var_os(name)?));
                child.envs(PASSED_ON.into_iter().filter_map(own)).envs(env);
                child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let started = child.current_dir(cwd.as_deref().unwrap_or("/".as_ref())).spawn();
                let mut child = started.map_err(|error| format!("start {command}: {error}"))?;
                let told = Arc::default();
                let streams = (child.stdout.take(), child.stdin.take(), child.stderr.take());
                let (Some(stdout), Some(stdin), Some(stderr)) = streams else {
                    return Err("its streams are missing".into());
                };
                tokio::spawn(keep_end(stderr, Arc::clone(&told)));
                let served = handler.serve((BoundedLines::new(stdout), stdin)).await;
                let service = served.map_err(|error| format!("{error}{}", end_of(&told)))?;
                Ok(Connection { service, told, _child: Some(child) })
            }
        }
    }

    /// Where its tokens come from, if it needs some.
    fn tokens(&self) -> Result<Option<Arc<TokenSource>>, String> {
        let ServerTransport::Http { url, auth: Some(auth), .. } = &self.config.transport else {
            return Ok(None);
        };
        let mut tokens = self.tokens.lock();
        if tokens.is_none() {
            *tokens = Some(Arc::new(TokenSource::new(&self.config.name, url, auth)?));
        }
        Ok(tokens.clone())
    }

    /// Ends a connection that was not used for so long, and has no call under way.
    pub async fn end_if_idle(&self, idle: Duration) {
        let is_idle = self.used.lock().elapsed() >= idle;
        if is_idle && self.calls.available_permits() == MOST_CALLS {
            *self.connection.lock().await = None;
        }
    }

    /// The tools that it listed last.
    pub fn last_list(&self) -> Option<Arc<ToolList>> {
        self.list.lock().as_ref().map(|(_, list)| list.clone())
    }

    /// The tools of the server.
    pub async fn list(&self) -> Result<Arc<ToolList>, ToolFault> {
        let connection = self.connected().await?;
        let version = self.changes.load(Ordering::Relaxed);
        if let Some((known, list)) = self.list.lock().as_ref()
            && *known == version
        {
            return Ok(list.clone());
        }
        let read = timeout(CONNECT, read_list(&connection.service)).await;
        let read = read.map_err(|_| self.unreachable("it does not list its tools in time"))?;
        let list = Arc::new(read.map_err(|error| self.unreachable(error))?);
        *self.list.lock() = Some((version, list.clone()));
        Ok(list)
    }

    /// Calls a tool, once.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, ToolFault> {
        let server = self.config.name.clone();
        let Ok(_turn) = self.calls.try_acquire() else {
            return Err(ToolFault::Busy(MOST_CALLS, server));
        };
        let connection = self.connected().await?;
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let tool = tool.to_owned();
        let peer = connection.service.peer();
        let refused =
            |why: String| ToolFault::Refused { server: server.clone(), tool: tool.clone(), why };
        match timeout(self.config.timeout, peer.call_tool_once(params)).await {
            Err(_) => {
                let seconds = self.config.timeout.as_secs();
                Err(ToolFault::TimedOut { server, tool, seconds })
            }
            Ok(Ok(CallToolResponse::Complete(result))) => Ok(outcome(result)),
            Ok(Ok(_)) => Err(refused("it asks for more input, which a call cannot give".into())),
            Ok(Err(ServiceError::McpError(error))) => Err(refused(error.message.to_string())),
            Ok(Err(error)) => {
                let why = format!("{error}{}", end_of(&connection.told));
                self.forget(&connection).await;
                Err(ToolFault::Broken { server, tool, why })
            }
        }
    }

    /// The next use makes a connection of its own.
    async fn forget(&self, broken: &Arc<Connection>) {
        let mut connection = self.connection.lock().await;
        if connection.as_ref().is_some_and(|own| Arc::ptr_eq(own, broken)) {
            *connection = None;
        }
    }
}

/// Streamable HTTP, or HTTP+SSE if the server refuses that.
async fn connect_http(
    handler: UpstreamHandler,
    client: BoundedHttp,
    url: &str,
) -> Result<RunningService<RoleClient, UpstreamHandler>, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.max_concurrent_requests = MOST_CALLS;
    let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
    let why = match handler.clone().serve(transport).await {
        Ok(service) => return Ok(service),
        Err(error) => error.to_string(),
    };
    if !client.is_older() {
        return Err(why);
    }
    let older = OlderHttp::open(client, url).await;
    let older = older.map_err(|error| format!("{why}; as HTTP+SSE: {error}"))?;
    handler.serve(older).await.map_err(|error| error.to_string())
}

/// Keeps the end of what comes.
async fn keep_end(mut stream: ChildStderr, told: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let mut told = told.lock();
        told.extend(&buffer[..read]);
        let surplus = told.len().saturating_sub(TOLD);
        told.drain(..surplus);
    }
}

fn end_of(told: &Mutex<VecDeque<u8>>) -> String {
    let bytes: Vec<u8> = told.lock().iter().copied().collect();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("; it wrote: {text}") }
}

fn outcome(result: CallToolResult) -> ToolOutcome {
    let content = result.content.iter().filter_map(|block| serde_json::to_value(block).ok());
    ToolOutcome {
        content: content.collect(),
        structured: result.structured_content.filter(|value| !value.is_null()),
        is_error: result.is_error == Some(true),
    }
}

/// Reads the list page by page, as far as it is of a decent size.
async fn read_list(
    service: &RunningService<RoleClient, UpstreamHandler>,
) -> Result<ToolList, ServiceError> {
    let (mut tools, mut left_out, mut bytes) = (Vec::new(), 0_usize, 0);
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = service.peer().list_tools(Some(params)).await?;
        for tool in page.tools {
            let tool = described(tool);
            let size = serde_json::to_vec(&tool).map_or(usize::MAX, |text| text.len());
            let fits = tools.len() < MOST_TOOLS && size <= LONGEST_LIST - bytes;
            if fits && is_tool_name(&tool.name) {
                bytes += size;
                tools.push(tool);
            } else {
                left_out += 1;
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= MOST_TOOLS {
            break;
        }
    }
    tools.sort_by(|one: &ToolInfo, other| one.name.cmp(&other.name));
    tools.dedup_by(|one, other| one.name == other.name);
    let text = serde_json::to_vec(&tools).unwrap_or_default();
    let etag = blake3::hash(&text).to_hex()[..16].to_owned();
    let more = cursor.is_some();
    let left_out = (left_out > 0 || more).then(|| {
        format!(
            "{}{left_out} tools were left out: a server has at most {MOST_TOOLS} tools, 4 MiB of \
             descriptions, and names of at most {LONGEST_TOOL_NAME} printable characters",
            if more { "more than " } else { "" }
        )
    });
    Ok(ToolList { etag, tools, left_out })
}

fn is_tool_name(name: &str) -> bool {
    let decent = |one: char| one.is_ascii_graphic();
    (1..=LONGEST_TOOL_NAME).contains(&name.len()) && name.chars().all(decent)
}

fn described(tool: Tool) -> ToolInfo {
    ToolInfo {
        name: tool.name.into_owned(),
        description: tool.description.map(|text| text.into_owned()).or(tool.title),
        input_schema: Arc::unwrap_or_clone(tool.input_schema),
        output_schema: tool.output_schema.map(Arc::unwrap_or_clone),
    }
}
