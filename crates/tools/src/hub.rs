//! All upstream servers of a host, for callers that wait: those of the host, and sets of further
//! ones that a surface lends to some machines.
//!
//! The hub's runtime has a thread of its own, which the thread that opens the host starts. Child
//! processes therefore do not inherit the restrictions of the threads that serve clients.

use crate::config::ToolServer;
use crate::error::ToolFault;
use crate::upstream::{ToolList, ToolOutcome, ToolUpstream};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Sets that are lent at once; the oldest end first.
const MOST_SETS: usize = 64;
/// Connections of lent servers end after this long without a use.
const IDLE: Duration = Duration::from_secs(600);
const TEND: Duration = Duration::from_secs(60);

type Servers = BTreeMap<String, Arc<ToolUpstream>>;
type Lent = Arc<Mutex<VecDeque<(String, Arc<Servers>)>>>;

pub struct ToolHub {
    servers: Servers,
    lent: Lent,
    /// Always there, until the hub is dropped.
    runtime: Option<Runtime>,
}

/// Selects servers: those of an account, and those of a lent set, which come first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolScope {
    pub account: String,
    pub set: Option<String>,
}

impl ToolScope {
    pub fn of(account: &str, set: Option<&str>) -> ToolScope {
        ToolScope { account: account.to_owned(), set: set.map(str::to_owned) }
    }
}

fn upstreams(servers: Vec<ToolServer>) -> Servers {
    let one = |server: ToolServer| (server.name.clone(), Arc::new(ToolUpstream::new(server)));
    servers.into_iter().map(one).collect()
}

impl ToolHub {
    /// Connects to nothing yet.
    pub fn new(servers: Vec<ToolServer>) -> io::Result<ToolHub> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stasis-tools")
            .enable_all()
            .build()?;
        let lent = Lent::default();
        runtime.spawn(tend(lent.clone()));
        Ok(ToolHub { servers: upstreams(servers), lent, runtime: Some(runtime) })
    }

    /// Lends a set of servers, named by its content.
    pub fn lend(&self, set: &str, servers: Vec<ToolServer>) {
        let mut lent = self.lent.lock();
        if lent.iter().any(|(own, _)| own == set) {
            return;
        }
        lent.push_back((set.to_owned(), Arc::new(upstreams(servers))));
        while lent.len() > MOST_SETS {
            lent.pop_front();
        }
    }

    /// Whether a set is lent.
    pub fn lends(&self, set: &str) -> bool {
        self.lent(Some(set)).is_some()
    }

    fn lent(&self, set: Option<&str>) -> Option<Arc<Servers>> {
        let lent = self.lent.lock();
        lent.iter().find(|(own, _)| set == Some(own)).map(|(_, servers)| servers.clone())
    }

    /// Names of the servers of a scope, in order.
    pub fn servers(&self, scope: &ToolScope) -> Vec<String> {
        let own = self.servers.values().filter(|server| server.config.is_for(&scope.account));
        let mut names: Vec<String> = own.map(|server| server.config.name.clone()).collect();
        names.extend(self.lent(scope.set.as_deref()).iter().flat_map(|set| set.keys().cloned()));
        names.sort();
        names.dedup();
        names
    }

    fn server(&self, scope: &ToolScope, name: &str) -> Result<Arc<ToolUpstream>, ToolFault> {
        let lent = self.lent(scope.set.as_deref());
        if let Some(found) = lent.as_ref().and_then(|set| set.get(name)) {
            return Ok(found.clone());
        }
        let found = self.servers.get(name);
        let found = found.filter(|server| server.config.is_for(&scope.account));
        found.cloned().ok_or_else(|| ToolFault::NoServer(name.to_owned()))
    }

    fn wait<T>(&self, name: &str, work: impl Future<Output = Result<T, ToolFault>>) -> Fallible<T> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            None => Err(ToolFault::NoServer(name.to_owned())),
        }
    }

    /// Whether a scope has a server of this name.
    pub fn has(&self, scope: &ToolScope, name: &str) -> Result<(), ToolFault> {
        self.server(scope, name).map(drop)
    }

    /// The tools of a server. Waits; never called on a thread that serves clients.
    pub fn list(&self, scope: &ToolScope, name: &str) -> Result<Arc<ToolList>, ToolFault> {
        let server = self.server(scope, name)?;
        self.wait(name, server.list())
    }

    /// The tools of a server, or those it had last. Waits as well.
    pub fn known_list(&self, scope: &ToolScope, name: &str) -> Option<Arc<ToolList>> {
        let server = self.server(scope, name).ok()?;
        self.wait(name, server.list()).ok().or_else(|| server.last_list())
    }

    /// Calls a tool, once. Waits as well.
    pub fn call(
        &self,
        scope: &ToolScope,
        name: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, ToolFault> {
        let server = self.server(scope, name)?;
        self.wait(name, server.call(tool, arguments))
    }
}

type Fallible<T> = Result<T, ToolFault>;

/// Ends connections of lent servers that nothing uses: the process that asked for them may be gone.
async fn tend(lent: Lent) {
    loop {
        tokio::time::sleep(TEND).await;
        let sets: Vec<Arc<Servers>> = lent.lock().iter().map(|(_, set)| set.clone()).collect();
        for server in sets.iter().flat_map(|set| set.values()) {
            server.end_if_idle(IDLE).await;
        }
    }
}

impl Drop for ToolHub {
    /// Child processes end with their connections.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_for_those_it_is_lent_to() {
        let server = |text: &str| ToolServer::short(text).expect("a server");
        let hub = ToolHub::new(vec![server("own=stdio:true")]).expect("a hub");
        hub.lend("s", vec![server("more=stdio:true")]);
        let plain = ToolScope::of("a", None);
        let with = ToolScope::of("a", Some("s"));
        assert_eq!(hub.servers(&plain), ["own"]);
        assert_eq!(hub.servers(&with), ["more", "own"]);
        assert!(hub.has(&plain, "more").is_err() && hub.has(&with, "more").is_ok());
        for number in 0..MOST_SETS {
            hub.lend(&number.to_string(), Vec::new());
        }
        assert!(!hub.lends("s"), "the oldest ends first");
    }
}
