//! Changes of a machine's files as they happen, as server-sent events.

use crate::app::{App, Phase};
use crate::extract::{Params, Target};
use crate::failure::Result;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use stasis_api::{AtPath, FileChange, FileEvent};
use stasis_machine::Watch;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How often the kernel is asked; it keeps what happened meanwhile.
const LOOK: Duration = Duration::from_millis(50);

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(watch))
}

/// Watch a file or a directory, as server-sent events.
#[utoipa::path(get, path = "/v1/machine/{name}/file/watch", tag = "files",
    params(("name" = String, Path), AtPath),
    responses((status = 200, body = FileEvent, content_type = "text/event-stream")))]
async fn watch(
    State(app): State<App>,
    Target(machine): Target,
    Params(at): Params<AtPath>,
) -> Result<Response> {
    let watch = app.block(move |_| machine.watch_file(&at.path)).await?;
    let state = Watcher { app, watch, first: true, over: false };
    let events = batches(state).flat_map(|batch| stream::iter(batch.into_iter().map(told)));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

fn told(event: FileEvent) -> std::result::Result<Event, axum::Error> {
    Event::default().event("file").json_data(&event)
}

struct Watcher {
    app: App,
    watch: Watch,
    first: bool,
    over: bool,
}

fn batches(watcher: Watcher) -> impl Stream<Item = Vec<FileEvent>> {
    stream::unfold(watcher, |mut watcher| async {
        match watcher.over {
            true => None,
            false => {
                let batch = watcher.next().await;
                watcher.over = batch.iter().any(|event| event.kind == FileChange::Gone);
                Some((batch, watcher))
            }
        }
    })
}

impl Watcher {
    async fn next(&mut self) -> Vec<FileEvent> {
        let plain = |kind| vec![FileEvent { kind, name: None }];
        if std::mem::take(&mut self.first) {
            return plain(FileChange::Watching);
        }
        loop {
            let changes = self.watch.machine_changes();
            match self.watch.begin() {
                Ok(true) => return plain(FileChange::Watching),
                Ok(false) => {}
                Err(_) => return plain(FileChange::Gone),
            }
            match self.watch.take() {
                Ok(events) if !events.is_empty() => return events,
                Ok(_) => {}
                Err(_) => return plain(FileChange::Gone),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = changes => {}
                () = self.app.reached(Phase::Stopping) => return plain(FileChange::Gone),
            }
        }
    }
}
