//! The body of `POST /api/exec`: a request in JSON, or the script itself with its options in the
//! query. Pure.

use crate::V8RunRequest;
use crate::error::{Error, Result};
use crate::heaps::HeapTags;
use crate::routes::parsed;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
pub struct ExecBody {
    code: String,
    heap: Option<String>,
    fs: Option<String>,
    session: Option<String>,
    heap_memory_max_mb: Option<u64>,
    execution_timeout_secs: Option<i64>,
    tags: Option<HeapTags>,
    repl: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
pub struct ExecQuery {
    heap: Option<String>,
    fs: Option<String>,
    session: Option<String>,
    heap_memory_max_mb: Option<u64>,
    execution_timeout_secs: Option<i64>,
    repl: Option<bool>,
    /// Seconds to wait for the end.
    pub wait: Option<f64>,
}

impl ExecBody {
    /// A request in JSON, or a script whose options are in the query.
    pub fn of(kind: Option<&str>, bytes: &[u8], query: &ExecQuery) -> Result<ExecBody> {
        match kind.map(str::to_ascii_lowercase) {
            Some(kind) if kind.contains("multipart") => {
                Err(Error::new(415, "multipart bodies are not supported: send JSON or the script"))
            }
            Some(kind) if !kind.contains("json") => {
                let code = String::from_utf8(bytes.to_vec());
                Ok(ExecBody {
                    code: code.map_err(|_| Error::invalid("the script is not UTF-8"))?,
                    heap: query.heap.clone(),
                    fs: query.fs.clone(),
                    session: query.session.clone(),
                    heap_memory_max_mb: query.heap_memory_max_mb,
                    execution_timeout_secs: query.execution_timeout_secs,
                    tags: None,
                    repl: query.repl,
                })
            }
            _ => parsed(bytes),
        }
    }

    pub fn request(self) -> V8RunRequest {
        V8RunRequest {
            code: Some(self.code),
            file: None,
            heap: self.heap,
            fs: self.fs,
            session: self.session,
            heap_memory_max_mb: self.heap_memory_max_mb,
            execution_timeout_secs: self.execution_timeout_secs,
            tags: self.tags,
            repl: self.repl.unwrap_or(false),
            ..V8RunRequest::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_json() {
        let query = ExecQuery { session: Some("s".into()), ..ExecQuery::default() };
        let script = ExecBody::of(Some("text/javascript"), b"1", &query).expect("a script");
        assert_eq!((&*script.code, script.session.as_deref()), ("1", Some("s")));
        let json = ExecBody::of(None, br#"{"code":"2","heap":null}"#, &query).expect("JSON");
        assert_eq!((&*json.code, json.session), ("2", None));
        let odd = |kind, bytes: &[u8]| ExecBody::of(Some(kind), bytes, &query).expect_err("odd");
        assert_eq!(odd("multipart/form-data", b"").status, 415);
        assert_eq!(odd("application/json", b"{").status, 400);
        assert_eq!(odd("text/plain", b"\xff").status, 400);
    }
}
