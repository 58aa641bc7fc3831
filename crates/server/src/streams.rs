//! Long answers: results that a client waits for, and streamed output.

use crate::app::App;
use crate::extract::{InstructionPath, Params};
use crate::failure::{HttpFailure, Result};
use crate::follow::{FollowEvent, Follower};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use stasis_api::{ExecResult, Instruction, InstructionRange, ToClient};
use std::convert::Infallible;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// After this time the head is sent, and then a blank periodically, so that no client times out.
const QUIET: Duration = Duration::from_secs(60);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(stream_result)).routes(routes!(events))
}

type Render = fn(&Instruction) -> serde_json::Result<String>;

/// The end of an instruction, as JSON. Blanks before a JSON value mean nothing.
pub async fn keep_alive(mut follower: Follower, render: Render) -> Result<Response> {
    let body = match tokio::time::timeout(QUIET, follower.end()).await {
        Ok(end) => Body::from(rendered(&*end?, render)?),
        Err(_) => Body::from_stream(trickle(follower, render)),
    };
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

fn rendered(end: &Instruction, render: Render) -> Result<String> {
    let broke = |error: serde_json::Error| HttpFailure::internal("service.json", error.to_string());
    render(end).map_err(broke)
}

fn trickle(
    follower: Follower,
    render: Render,
) -> impl Stream<Item = std::result::Result<String, std::io::Error>> {
    stream::unfold(Some(follower), move |follower| async move {
        let mut follower = follower?;
        match tokio::time::timeout(QUIET, follower.end()).await {
            Err(_) => Some((Ok(" ".to_owned()), Some(follower))),
            Ok(end) => {
                let text = end.and_then(|end| rendered(&end, render));
                // the head was sent: closing the connection is the only way to report the failure
                let text = text.map_err(|failure| std::io::Error::other(failure.words()));
                Some((text, None))
            }
        }
    })
}

/// Stream output and result as lines of JSON, from the first line of output or a later one.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/stream-result", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path), InstructionRange),
    responses((status = 200, body = ToClient, content_type = "application/x-ndjson")))]
async fn stream_result(
    State(app): State<App>,
    at: InstructionPath,
    Params(range): Params<InstructionRange>,
) -> Result<Response> {
    let (machine, seq) = (at.machine.clone(), at.seq);
    app.on_record(move || machine.instruction(seq)).await?;
    let follower = Follower::new(app, at.machine, at.seq, range.from);
    let lines = follow(follower).map(move |event| -> std::result::Result<String, Infallible> {
        Ok(lines_of(at.seq, event))
    });
    Ok(([(header::CONTENT_TYPE, LINES)], Body::from_stream(lines)).into_response())
}

/// Events until the end; a failure is the last one.
pub fn follow(follower: Follower) -> impl Stream<Item = Result<FollowEvent>> {
    stream::unfold(Some(follower), |follower| async {
        let mut follower = follower?;
        let event = follower.next().await;
        let more = matches!(event, Ok(FollowEvent::Chunks(_)));
        Some((event, more.then_some(follower)))
    })
}

fn lines_of(seq: u64, event: Result<FollowEvent>) -> String {
    let output = |chunk| ToClient::Output { chunk, instruction_id: seq };
    let result = |result| vec![ToClient::Result { instruction_id: seq, result }];
    let messages = match event {
        Ok(FollowEvent::Chunks(chunks)) => chunks.into_iter().map(output).collect(),
        Ok(FollowEvent::Over(instruction)) => result(ExecResult::from(&*instruction)),
        Err(failure) => result(ExecResult::failed(failure.words())),
    };
    let mut lines = String::new();
    for message in messages {
        push_ascii(&mut lines, &serde_json::to_string(&message).unwrap_or_default());
        lines.push('\n');
    }
    lines
}

/// JSON without bytes above 127: one client decodes each piece separately.
fn push_ascii(out: &mut String, json: &str) {
    use std::fmt::Write;
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
}

/// Stream output and result as server-sent events. `Last-Event-ID` continues after that line.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/events", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path), InstructionRange,
        ("last-event-id" = Option<String>, Header)),
    responses((status = 200, body = Object, content_type = "text/event-stream")))]
async fn events(
    State(app): State<App>,
    at: InstructionPath,
    Params(range): Params<InstructionRange>,
    headers: HeaderMap,
) -> Result<Response> {
    let (machine, seq) = (at.machine.clone(), at.seq);
    app.on_record(move || machine.instruction(seq)).await?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<u32>().ok());
    let from = last.map_or(range.from, |id| u64::from(id) + 1);
    let follower = Follower::new(app, at.machine, at.seq, from);
    let events = follow(follower).flat_map(move |event| stream::iter(told(event)));
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

type Told = std::result::Result<sse::Event, axum::Error>;

fn told(event: Result<FollowEvent>) -> Vec<Told> {
    let event_of = |kind: &str| sse::Event::default().event(kind);
    match event {
        Ok(FollowEvent::Chunks(chunks)) => {
            let one = |chunk: stasis_api::Chunk| {
                event_of("output").id(chunk.seq.to_string()).json_data(&chunk)
            };
            chunks.into_iter().map(one).collect()
        }
        Ok(FollowEvent::Over(instruction)) => vec![event_of("result").json_data(&*instruction)],
        Err(failure) => vec![event_of("error").json_data(failure.body())],
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_are_ascii_and_mean_the_same() {
        for text in ["plain", "é ü 漢字", "🦀\u{2028}", "\"\\\n\0"] {
            let json = serde_json::to_string(text).expect("JSON");
            let mut ascii = String::new();
            super::push_ascii(&mut ascii, &json);
            assert!(ascii.is_ascii());
            let back: String = serde_json::from_str(&ascii).expect("JSON still");
            assert_eq!(back, text);
        }
    }
}
