//! State shared by all handlers.

use crate::account_queue::AccountQueue;
use crate::audit::Audit;
use crate::auth::Caller;
use crate::failure::{HttpFailure, Result};
use crate::guard::OriginGuard;
use crate::instruments::Instruments;
use crate::jwt::Jwt;
use crate::keyring::Keyring;
use axum::Json;
use stasis_api::Removed;
use stasis_machine::{Host, Machine, TraceContext};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

tokio::task_local! {
    static ASKER: RequestOrigin;
}

/// The request that a task answers.
#[derive(Debug, Clone, Default)]
pub struct RequestOrigin {
    /// Its blocking work queues under this account.
    pub account: String,
    /// The trace that instructions of this request belong to.
    pub cause: Option<TraceContext>,
}

impl RequestOrigin {
    pub async fn scope<T>(self, answering: impl Future<Output = T>) -> T {
        ASKER.scope(self, answering).await
    }

    /// Those of the calling task.
    pub fn current() -> RequestOrigin {
        ASKER.try_with(RequestOrigin::clone).unwrap_or_default()
    }
}

#[derive(Clone)]
pub struct App(Arc<AppState>);

pub struct AppState {
    pub host: Arc<Host>,
    pub forkd: stasis_forkd::Forkd,
    pub v8: stasis_mcpv8::V8,
    pub keyring: Keyring,
    pub jwt: Option<Arc<Jwt>>,
    /// Whether clients connect by TLS.
    pub secure: bool,
    /// Maximum time for a body, or the next piece of one, to arrive.
    pub patience: Duration,
    pub guard: OriginGuard,
    pub queue: AccountQueue,
    pub instruments: Instruments,
    pub audit: Audit,
    pub phase: watch::Sender<Phase>,
    pub words: Arc<stasis_mcp::ToolTexts>,
}

/// Progress of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Phase {
    Serving,
    /// No new work; running work may finish.
    Stopping,
    /// All machines are saved: nothing more will be sent.
    Closed,
}

impl std::ops::Deref for App {
    type Target = AppState;
    fn deref(&self) -> &AppState {
        &self.0
    }
}

impl App {
    pub fn new(shared: AppState) -> App {
        App(Arc::new(shared))
    }

    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Returns once the shutdown has reached this point.
    pub async fn reached(&self, phase: Phase) {
        // the sender is in `self`, so it still exists
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// A machine of the caller's account; other accounts' machines do not exist for it.
    pub fn machine(&self, caller: &Caller, name: &str) -> Result<Arc<Machine>> {
        Ok(self.host.machine_of(&caller.account, name)?)
    }

    /// Runs a blocking job on its own thread, through the fair queue.
    pub async fn block<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Host>) -> stasis_machine::Result<T> + Send + 'static,
    {
        let RequestOrigin { account, cause } = RequestOrigin::current();
        let turn = self.queue.take(&account).await?;
        let host = self.host.clone();
        let done = stasis_machine::block(move || {
            let done = TraceContext::of(cause, || job(&host));
            drop(turn);
            done
        });
        let broke = |_| HttpFailure::internal("service.broken", "a handler failed");
        Ok(done.await.map_err(broke)??)
    }

    /// Removes what a path names.
    pub async fn remove_named<F>(&self, name: &str, remove: F) -> Result<Json<Removed>>
    where
        F: FnOnce(&Arc<Host>, &str) -> stasis_machine::Result<()> + Send + 'static,
    {
        let (name, removed) = (name.to_owned(), name.to_owned());
        self.block(move |host| remove(host, &name)).await?;
        Ok(Json(Removed { removed }))
    }

    /// Does what may wait for the records. It takes no turn: records answer within moments, and
    /// must do so also while other requests have all slots.
    pub async fn on_record<T, F>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> stasis_machine::Result<T> + Send + 'static,
    {
        let broke = |_| HttpFailure::internal("service.broken", "a handler failed");
        Ok(stasis_machine::block(job).await.map_err(broke)??)
    }
}
