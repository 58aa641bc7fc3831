//! Serves forkd's routes (`stasis_forkd::routes`): authentication, queueing and following.

use crate::app::App;
use crate::auth::{Caller, Scope, unauthorized};
use crate::failure::HttpFailure;
use crate::follow::{FollowEvent, Follower};
use crate::limits::CODE;
use crate::middleware;
use crate::streams;
use axum::Router;
use axum::http::Extensions;
use futures_util::{Stream, StreamExt};
use stasis_forkd::{Carrier, Error, Forkd, ForkdCaller, ForkdEvent, Result};
use stasis_machine::Machine;
use std::sync::Arc;
use std::time::Duration;

/// forkd's routes at an address of their own.
pub fn alone(app: App) -> Router {
    middleware::before(stasis_forkd::routes_alone(), app)
}

/// A failure of the service in forkd's form.
pub fn refused(failure: HttpFailure) -> Error {
    let status = failure.problem.status();
    let message = match status {
        401 => "missing or invalid bearer token".to_owned(),
        _ => failure.message,
    };
    Error::new(status, message)
}

impl Carrier for App {
    fn forkd(&self) -> &Forkd {
        &self.forkd
    }

    fn caller(&self, noted: &Extensions) -> Result<ForkdCaller> {
        let caller = noted.get::<Caller>().ok_or_else(|| refused(unauthorized()))?;
        caller.need(Scope::Machines).map_err(refused)?;
        let may_build = caller.may(Scope::Templates);
        Ok(ForkdCaller { account: caller.account.clone(), may_build })
    }

    fn body_bounds(&self) -> (usize, Duration) {
        (CODE, self.patience)
    }

    async fn block<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Forkd) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let forkd = self.forkd.clone();
        App::block(self, move |_| Ok(job(&forkd))).await.map_err(refused)?
    }

    fn follow(
        &self,
        machine: Arc<Machine>,
        seq: u64,
    ) -> impl Stream<Item = Result<ForkdEvent>> + Send + 'static {
        streams::follow(Follower::new(self.clone(), machine, seq, 0)).map(|event| match event {
            Ok(FollowEvent::Chunks(chunks)) => Ok(ForkdEvent::Chunks(chunks)),
            Ok(FollowEvent::Over(end)) => Ok(ForkdEvent::Over(end)),
            Err(failure) => Err(refused(failure)),
        })
    }
}
