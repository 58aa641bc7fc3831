//! Serves mcp-v8's routes (`stasis_mcpv8::routes`): authentication, queueing and following.

use crate::app::App;
use crate::auth::{Caller, Scope, unauthorized};
use crate::failure::HttpFailure;
use crate::follow::{FollowEvent, Follower};
use crate::limits::CODE;
use crate::streams;
use axum::http::Extensions;
use futures_util::{Stream, StreamExt};
use stasis_machine::Machine;
use stasis_mcpv8::{Error, Result, V8, V8Caller, V8Carrier, V8Event};
use std::sync::Arc;
use std::time::Duration;

/// A failure of the service in mcp-v8's form.
pub fn refused(failure: HttpFailure) -> Error {
    Error::new(failure.problem.status(), failure.message)
}

impl V8Carrier for App {
    fn v8(&self) -> &V8 {
        &self.v8
    }

    fn v8_caller(&self, noted: &Extensions) -> Result<V8Caller> {
        let caller = noted.get::<Caller>().ok_or_else(|| refused(unauthorized()))?;
        caller.need(Scope::Machines).map_err(refused)?;
        Ok(V8Caller { account: caller.account.clone() })
    }

    fn v8_body_bounds(&self) -> (usize, Duration) {
        (CODE, self.patience)
    }

    async fn v8_block<T: Send + 'static>(
        &self,
        job: impl FnOnce(&V8) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let v8 = self.v8.clone();
        App::block(self, move |_| Ok(job(&v8))).await.map_err(refused)?
    }

    fn v8_follow(
        &self,
        machine: Arc<Machine>,
        seq: u64,
    ) -> impl Stream<Item = Result<V8Event>> + Send + 'static {
        streams::follow(Follower::new(self.clone(), machine, seq, 0)).map(|event| match event {
            Ok(FollowEvent::Chunks(chunks)) => Ok(V8Event::Lines(chunks)),
            Ok(FollowEvent::Over(_)) => Ok(V8Event::Over),
            Err(failure) => Err(refused(failure)),
        })
    }
}
