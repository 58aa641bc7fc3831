//! Requests under way on one connection, which are judged again when a policy or a secret changes.
//!
//!   request allowed ─► OngoingRequest ─► its answer has passed, or its WebSocket has ended
//!                          └─ a change, and it is refused ─► the connection ends, with a report
//!
//! A connection without a request under way waits for nothing: its next request is judged anyway.

use super::InterceptedConnection;
use hyper::Request;
use hyper::http::request::Parts;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;

/// How often a connection with a request under way looks for a change.
const LOOK: Duration = Duration::from_millis(250);

/// The requests under way on one connection.
#[derive(Debug, Default)]
pub struct OngoingRequests {
    heads: Mutex<Heads>,
    begun: Notify,
}

#[derive(Debug, Default)]
struct Heads {
    /// Heads as they were judged, without values of secrets.
    judged: BTreeMap<u64, Arc<Parts>>,
    next: u64,
    /// The version of the rules that all of them were judged by.
    version: u64,
}

/// A request that is under way for as long as this exists.
#[derive(Debug)]
pub struct OngoingRequest {
    all: Arc<OngoingRequests>,
    id: u64,
}

impl OngoingRequests {
    /// Takes a request that was allowed by the rules of a version.
    pub fn begin(self: &Arc<Self>, parts: &Parts, version: u64) -> OngoingRequest {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method.clone_from(&parts.method);
        head.uri.clone_from(&parts.uri);
        head.version = parts.version;
        head.headers.clone_from(&parts.headers);
        let mut heads = self.heads.lock();
        let id = heads.next;
        heads.next += 1;
        // the oldest counts: what is judged once too often is judged alike
        heads.version = if heads.judged.is_empty() { version } else { heads.version.min(version) };
        heads.judged.insert(id, Arc::new(head));
        drop(heads);
        self.begun.notify_one();
        OngoingRequest { all: self.clone(), id }
    }

    /// Waits until a request under way is not allowed any more.
    pub async fn refused(&self, connection: &InterceptedConnection) {
        loop {
            if self.heads.lock().judged.is_empty() {
                self.begun.notified().await;
            }
            tokio::time::sleep(LOOK).await;
            if !self.are_allowed(connection).await {
                connection.is_revoked.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// Judges all requests under way, if the rules have changed.
    async fn are_allowed(&self, connection: &InterceptedConnection) -> bool {
        let version = connection.rules.version();
        let judged: Vec<Arc<Parts>> = {
            let mut heads = self.heads.lock();
            if heads.version == version {
                return true;
            }
            heads.version = version;
            heads.judged.values().cloned().collect()
        };
        for parts in judged {
            if connection.judge(&parts).await.is_err() {
                return false;
            }
        }
        true
    }
}

impl Drop for OngoingRequest {
    fn drop(&mut self) {
        self.all.heads.lock().judged.remove(&self.id);
    }
}
