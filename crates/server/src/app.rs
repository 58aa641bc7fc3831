//! What all handlers share.

use crate::audit::Audit;
use crate::auth::Caller;
use crate::failure::{Failure, Result};
use crate::guard::Guard;
use crate::jwt::Jwt;
use crate::keyring::Keyring;
use crate::metrics::Metrics;
use crate::trace::Traces;
use crate::turns::Turns;
use stasis_machine::{Cause, Host, Machine};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

tokio::task_local! {
    static ASKER: Asker;
}

/// Whose request a task answers.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    /// Turns are shared between accounts.
    pub account: String,
    /// What instructions of this request come from, for those who trace.
    pub cause: Option<Cause>,
}

impl Asker {
    pub async fn scope<T>(self, answering: impl Future<Output = T>) -> T {
        ASKER.scope(self, answering).await
    }

    /// Of the task that calls.
    pub fn current() -> Asker {
        ASKER.try_with(Asker::clone).unwrap_or_default()
    }
}

#[derive(Clone)]
pub struct App(Arc<Shared>);

pub struct Shared {
    pub host: Arc<Host>,
    pub forkd: stasis_forkd::Forkd,
    pub keyring: Keyring,
    pub jwt: Option<Arc<Jwt>>,
    /// Whether clients come by TLS.
    pub secure: bool,
    /// How long a body, or the next piece of one, may take to arrive.
    pub patience: Duration,
    pub guard: Guard,
    pub turns: Turns,
    pub metrics: Metrics,
    pub traces: Option<Traces>,
    pub audit: Audit,
    pub phase: watch::Sender<Phase>,
    pub words: Arc<stasis_mcp::Words>,
}

/// How far the service is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Phase {
    Serving,
    /// No new work; what runs may end.
    Stopping,
    /// All machines are saved: nothing more will come.
    Closed,
}

impl std::ops::Deref for App {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    pub fn new(shared: Shared) -> App {
        App(Arc::new(shared))
    }

    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Returns once the service is that far.
    pub async fn reached(&self, phase: Phase) {
        // the sender is in `self`: it cannot be gone
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// A machine of the caller's; those of others are not there.
    pub fn machine(&self, caller: &Caller, name: &str) -> Result<Arc<Machine>> {
        Ok(self.host.machine_of(&caller.account, name)?)
    }

    /// Does what may block, in turn, on a thread of its own.
    pub async fn block<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Host>) -> stasis_machine::Result<T> + Send + 'static,
    {
        let Asker { account, cause } = Asker::current();
        let turn = self.turns.take(&account).await?;
        let host = self.host.clone();
        let done = tokio::task::spawn_blocking(move || {
            let done = Cause::of(cause, || job(&host));
            drop(turn);
            done
        });
        let broke = |_| Failure::internal("service.broken", "a handler broke off");
        Ok(done.await.map_err(broke)??)
    }
}
