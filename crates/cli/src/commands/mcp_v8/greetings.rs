//! Sessions of MCP clients that outlive the daemon.
//!
//!   initialize ─► remembered by the id that the daemon gave ─► 404 after a restart
//!              ─► sent again in the client's name ─► the client's id stands for the new session
//!
//! A daemon that was started again knows no session. The client would have to connect anew, and
//! many do not. Its state is under the first id, which the new session is opened with, unless the
//! client named a session itself.

use super::front::{DaemonAnswer, Front, Passed};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use stasis_mcpv8::settings::{FRONT_SESSION, SESSION};
use std::collections::HashMap;
use std::time::Duration;

/// The protocol's own header for a session.
pub const SESSION_ID: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// How long a daemon may take to answer a greeting.
const PATIENCE: Duration = Duration::from_secs(30);
/// Sessions that are remembered. The service has no more.
const MOST: usize = 1000;

/// How a client opened its session.
#[derive(Clone)]
struct Greeting {
    headers: HeaderMap,
    body: Bytes,
    /// The session's id at the daemon.
    now: HeaderValue,
}

#[derive(Default)]
pub struct Greetings {
    /// By the ids that clients know.
    all: Mutex<HashMap<Vec<u8>, Greeting>>,
    /// Held while a session is opened again.
    again: tokio::sync::Mutex<()>,
}

fn is_greeting(body: &[u8]) -> bool {
    let message = serde_json::from_slice::<Value>(body).unwrap_or_default();
    message["method"] == "initialize"
}

impl Greetings {
    /// Sends a request of an MCP client, in its session.
    pub async fn send(&self, front: &Front, mut passed: Passed) -> reqwest::Result<DaemonAnswer> {
        let Some(known_as) = passed.headers.get(SESSION_ID).cloned() else {
            let answer = front.send(&passed).await?;
            self.remember(&passed, &answer);
            return Ok(answer);
        };
        let Some(mut now) = self.now(&known_as) else { return front.send(&passed).await };
        if passed.method == Method::DELETE {
            self.all.lock().remove(known_as.as_bytes());
        }
        passed.headers.insert(SESSION_ID, now.clone());
        let mut answer = front.send(&passed).await?;
        let is_unknown = answer.answer.status() == StatusCode::NOT_FOUND;
        if is_unknown
            && passed.method != Method::DELETE
            && let Some(new) = self.open_again(front, &known_as, &now, &passed).await?
        {
            passed.headers.insert(SESSION_ID, new.clone());
            answer = front.send(&passed).await?;
            now = new;
        }
        let is_named = answer.answer.headers().contains_key(SESSION_ID) && now != known_as;
        Ok(DaemonAnswer { session: is_named.then_some(known_as), ..answer })
    }

    fn now(&self, known_as: &HeaderValue) -> Option<HeaderValue> {
        self.all.lock().get(known_as.as_bytes()).map(|greeting| greeting.now.clone())
    }

    fn remember(&self, passed: &Passed, answer: &DaemonAnswer) {
        let Some(id) = answer.answer.headers().get(SESSION_ID) else { return };
        if answer.answer.status() != StatusCode::OK || !is_greeting(&passed.body) {
            return;
        }
        let mut all = self.all.lock();
        if all.len() >= MOST {
            // most likely the oldest have left without a word; which, is not known
            let Some(other) = all.keys().next().cloned() else { return };
            all.remove(&other);
        }
        let greeting = Greeting {
            headers: passed.headers.clone(),
            body: passed.body.clone(),
            now: id.clone(),
        };
        all.insert(id.as_bytes().to_vec(), greeting);
    }

    /// The new id of a session that the daemon does not know; none, if the client has ended it.
    async fn open_again(
        &self,
        front: &Front,
        known_as: &HeaderValue,
        before: &HeaderValue,
        passed: &Passed,
    ) -> reqwest::Result<Option<HeaderValue>> {
        let _alone = self.again.lock().await;
        let Some(own) = self.all.lock().get(known_as.as_bytes()).cloned() else { return Ok(None) };
        if own.now != *before {
            return Ok(Some(own.now));
        }
        let mut headers = own.headers;
        if !headers.contains_key(SESSION) {
            headers.insert(FRONT_SESSION, known_as.clone());
        }
        let post = |headers: &HeaderMap, body: Bytes| Passed {
            method: Method::POST,
            path: passed.path.clone(),
            headers: headers.clone(),
            body,
        };
        let greeted = front.send(&post(&headers, own.body)).await?.answer;
        let Some(id) = greeted.headers().get(SESSION_ID).cloned() else { return Ok(None) };
        // the answer says nothing that the client does not know
        let _ = tokio::time::timeout(PATIENCE, greeted.bytes()).await;
        headers.insert(SESSION_ID, id.clone());
        if let Some(version) = passed.headers.get(VERSION) {
            headers.insert(VERSION, version.clone());
        }
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        front.send(&post(&headers, ready.to_string().into())).await?;
        if let Some(own) = self.all.lock().get_mut(known_as.as_bytes()) {
            own.now = id.clone();
        }
        Ok(Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_greeting_is() {
        assert!(is_greeting(br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#));
        for other in [&b"[]"[..], b"", b"{\"method\":\"tools/list\"}"] {
            assert!(!is_greeting(other));
        }
    }
}
