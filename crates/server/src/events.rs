//! The event stream, as server-sent events.

use crate::app::{App, Phase};
use crate::auth::{Caller, Scope};
use crate::extract::Params;
use crate::failure::{HttpFailure, Result};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use stasis_api::{Event, EventFilter, EventKind, Timestamp};
use stasis_machine::EventSelector;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Maximum events per batch.
const BATCH: usize = 256;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Stream all changes as server-sent events, from now on or after a number.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(EventFilter, ("last-event-id" = Option<String>, Header)),
    responses((status = 200, body = Event, content_type = "text/event-stream")))]
async fn events(
    State(app): State<App>,
    caller: Caller,
    Params(filter): Params<EventFilter>,
    headers: HeaderMap,
) -> Result<Response> {
    caller.need(Scope::Machines)?;
    let given = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = given.or(filter.after).unwrap_or_else(|| app.host.last_event());
    let tag = filter.tag.as_deref().map(|tag| tag.split_once('=').ok_or(()));
    let tag = tag.transpose().map_err(|()| HttpFailure::invalid("a tag is written key=value"))?;
    let wanted = EventSelector {
        account: caller.account,
        machine: filter.machine,
        tag: tag.map(|(key, value)| (key.to_owned(), value.to_owned())),
        kind: filter.kind,
    };
    let follower = Follower { app, wanted, after };
    let told = batches(follower).flat_map(|batch| stream::iter(batch.into_iter().map(told)));
    let told = stream::iter([Ok(beginning(after))]).chain(told);
    Ok(Sse::new(told).keep_alive(KeepAlive::default()).into_response())
}

/// An id without an event, so that a client that is cut off before the first one can resume.
fn beginning(after: u64) -> sse::Event {
    sse::Event::default().id(after.to_string())
}

fn told(event: Event) -> std::result::Result<sse::Event, axum::Error> {
    let kind = event.kind.word();
    sse::Event::default().event(kind).id(event.id.to_string()).json_data(&event)
}

struct Follower {
    app: App,
    wanted: EventSelector,
    after: u64,
}

fn batches(follower: Follower) -> impl Stream<Item = Vec<Event>> {
    stream::unfold(follower, |mut follower| async {
        let batch = follower.next().await?;
        Some((batch, follower))
    })
}

impl Follower {
    /// The next events; none when the service ends.
    async fn next(&mut self) -> Option<Vec<Event>> {
        loop {
            let listener = self.app.host.next_event();
            let news = self.app.host.events_after(self.after, &self.wanted, BATCH);
            let mut events = news.events;
            if news.missed {
                events.insert(0, missed(self.after));
            }
            self.after = news.after;
            if !events.is_empty() {
                return Some(events);
            }
            tokio::select! {
                biased;
                () = listener => {}
                () = self.app.reached(Phase::Closed) => return None,
            }
        }
    }
}

fn missed(id: u64) -> Event {
    Event {
        id,
        at: Timestamp::now(),
        kind: EventKind::EventsMissed,
        machine: None,
        seq: None,
        status: None,
        about: Some("events after this one are no longer available: list the current state".into()),
        refused: None,
    }
}
