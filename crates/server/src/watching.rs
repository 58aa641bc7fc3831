//! Changes of a machine's files, as server-sent events.

use crate::app::{App, Phase};
use crate::extract::{MachinePath, Params};
use crate::failure::Result;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use stasis_api::{FileChange, FileEvent, WatchFile};
use stasis_machine::Watch;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Polling interval; the kernel queues events meanwhile.
const LOOK: Duration = Duration::from_millis(50);

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(watch))
}

/// Watch a file or a directory, as server-sent events.
#[utoipa::path(get, path = "/v1/machine/{name}/file/watch", tag = "files",
    params(("name" = String, Path), WatchFile),
    responses((status = 200, body = FileEvent, content_type = "text/event-stream")))]
async fn watch(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(asked): Params<WatchFile>,
) -> Result<Response> {
    let watch = app.block(move |_| machine.watch_file(&asked.path, asked.recursive)).await?;
    let state = Watcher { app, watch: Some(watch), first: true };
    let events = batches(state).flat_map(|batch| stream::iter(batch.into_iter().map(told)));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

fn told(event: FileEvent) -> std::result::Result<Event, axum::Error> {
    Event::default().event("file").json_data(&event)
}

struct Watcher {
    app: App,
    /// Runs until the watched file is removed.
    watch: Option<Watch>,
    first: bool,
}

fn batches(watcher: Watcher) -> impl Stream<Item = Vec<FileEvent>> {
    stream::unfold(watcher, |mut watcher| async {
        let watch = watcher.watch.take()?;
        let (batch, watch) = watcher.next(watch).await;
        let over = batch.iter().any(|event| event.kind == FileChange::Gone);
        watcher.watch = watch.filter(|_| !over);
        Some((batch, watcher))
    })
}

impl Watcher {
    async fn next(&mut self, mut watch: Watch) -> (Vec<FileEvent>, Option<Watch>) {
        let plain = |kind| vec![FileEvent { kind, name: None }];
        if std::mem::take(&mut self.first) {
            return (plain(FileChange::Watching), Some(watch));
        }
        loop {
            let changes = watch.machine_changes();
            if watch.is_due() {
                let Some((same, events)) = step(watch).await else { break };
                watch = same;
                if !events.is_empty() {
                    return (events, Some(watch));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = changes => {}
                () = self.app.reached(Phase::Stopping) => break,
            }
        }
        (plain(FileChange::Gone), None)
    }
}

/// Reads events on a thread where scanning many directories delays no request; none, if there is
/// nothing left to watch.
async fn step(mut watch: Watch) -> Option<(Watch, Vec<FileEvent>)> {
    let job = move || {
        let events = watch.step();
        events.ok().map(|events| (watch, events))
    };
    stasis_machine::block(job).await.ok().flatten()
}
