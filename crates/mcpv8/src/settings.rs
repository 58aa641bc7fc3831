//! Settings of a connection for its runs, in headers. `stasis mcp-v8` sends them for its flags;
//! other clients may, too.

use crate::{V8Mode, V8RunRequest};
use axum::http::HeaderMap;
use std::collections::BTreeMap;

/// The session, chosen by the client.
pub const SESSION: &str = "x-mcp-session-id";
/// Time limit and memory of runs that do not set them.
pub const TIMEOUT: &str = "x-mcp-v8-execution-timeout";
pub const MEMORY: &str = "x-mcp-v8-heap-memory-max";
/// The mode of runs over HTTP, which has one path for all modes.
pub const MODE: &str = "x-mcp-v8-mode";
/// The id of the front process's setup.
pub const SETUP: &str = "x-mcp-v8-setup";
/// The session that a front names where its client did not.
pub const FRONT_SESSION: &str = "x-mcp-v8-session";
/// Beginnings of headers that policies see, and of those above, which they do not.
const SHOWN: &str = "x-mcp-";
pub const OWN: &str = "x-mcp-v8-";
/// Their number, and the bytes of all of them.
const MOST_SHOWN: usize = 64;
const LONGEST_SHOWN: usize = 16 << 10;

/// The `X-MCP-*` headers of a connection: names in lower case without the prefix, and values.
pub type McpHeaders = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct V8Settings {
    pub session: Option<String>,
    pub seconds: Option<i64>,
    pub memory_mb: Option<u64>,
    pub mode: V8Mode,
    pub setup: Option<String>,
    pub mcp_headers: McpHeaders,
}

/// The headers that policies see, as far as they fit.
fn shown(headers: &HeaderMap) -> McpHeaders {
    let mut all = McpHeaders::new();
    let mut room = LONGEST_SHOWN;
    for (name, value) in headers {
        let name = name.as_str();
        let (Some(bare), Ok(value)) = (name.strip_prefix(SHOWN), value.to_str()) else { continue };
        let size = bare.len() + value.len();
        if name.starts_with(OWN) || bare.is_empty() || all.len() == MOST_SHOWN || size > room {
            continue;
        }
        room -= size;
        all.insert(bare.to_owned(), value.to_owned());
    }
    all
}

impl V8Settings {
    /// The settings of a request. Invalid headers are ignored.
    pub fn of(headers: &HeaderMap) -> V8Settings {
        let text = |name: &str| {
            let value = headers.get(name)?.to_str().ok()?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let mode = text(MODE).and_then(|mode| V8Mode::named(&mode));
        V8Settings {
            session: text(SESSION).or_else(|| text(FRONT_SESSION)),
            seconds: text(TIMEOUT).and_then(|value| value.parse().ok()),
            memory_mb: text(MEMORY).and_then(|value| value.parse().ok()),
            mode: mode.unwrap_or_default(),
            setup: text(SETUP),
            mcp_headers: shown(headers),
        }
    }

    /// Whether a request may use file trees: they belong to the account, so only a connection in a
    /// mode without them may not.
    pub fn allows_files(headers: &HeaderMap) -> bool {
        !headers.contains_key(MODE) || V8Settings::of(headers).mode.keeps_files()
    }

    /// Fills in the omitted settings of a request, except the session and the headers for policies:
    /// REST names its own session, and has no connection.
    pub fn fill(&self, request: V8RunRequest) -> V8RunRequest {
        V8RunRequest {
            execution_timeout_secs: request.execution_timeout_secs.or(self.seconds),
            heap_memory_max_mb: request.heap_memory_max_mb.or(self.memory_mb),
            mode: self.mode,
            setup: request.setup.or_else(|| self.setup.clone()),
            ..request
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_for_policies_are_bounded() {
        let mut headers = HeaderMap::new();
        let long = "x".repeat(LONGEST_SHOWN);
        headers.insert("x-mcp-long", long.parse().expect("a value"));
        for n in 0..100 {
            let name = axum::http::HeaderName::try_from(format!("x-mcp-{n}")).expect("a name");
            headers.insert(name, "v".parse().expect("a value"));
        }
        let own = V8Settings::of(&headers).mcp_headers;
        assert_eq!((own.len(), own.contains_key("long")), (MOST_SHOWN, false));
    }

    #[test]
    fn headers_are_defaults() {
        let mut headers = HeaderMap::new();
        assert_eq!(V8Settings::of(&headers), V8Settings::default());
        for (name, value) in [(TIMEOUT, "7"), (MEMORY, "x"), (MODE, "stateless"), (SESSION, " ")] {
            headers.insert(name, value.parse().expect("a value"));
        }
        headers.insert("x-mcp-tenant", "a".parse().expect("a value"));
        let own = V8Settings::of(&headers);
        let shown = [("session-id", " "), ("tenant", "a")];
        let shown = shown.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(own.mcp_headers, McpHeaders::from(shown));
        assert_eq!((own.seconds, own.memory_mb, &own.session), (Some(7), None, &None));
        assert_eq!(own.mode, V8Mode::Stateless);
        assert!(!V8Settings::allows_files(&headers) && V8Settings::allows_files(&HeaderMap::new()));
        let asked = V8RunRequest { execution_timeout_secs: Some(3), ..V8RunRequest::default() };
        assert_eq!(own.fill(asked).execution_timeout_secs, Some(3));
        assert_eq!(own.fill(V8RunRequest::default()).execution_timeout_secs, Some(7));
    }
}
