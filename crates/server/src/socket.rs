//! One WebSocket's session: instructions in, in order; acknowledgements, output and results out.
//!
//!   connected < exec_received(n) < output(n)* < result(n)
//!
//! A session receives messages only for its own instructions. Failures are sent as results, because
//! the protocol's `error` message breaks clients. Instructions continue after the socket closes.
//!
//! The Rust client loses an acknowledgement that arrives too early, and drops lines when fifty are
//! unread. The service sends it a ping first, and after every few lines, and continues when the
//! client has answered, later if its host seems busy.

use crate::app::{App, Phase};
use crate::failure::{HttpFailure, Result};
use crate::follow::{FollowEvent, Follower};
use crate::instructions::submit;
use crate::repl::ReplClient;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use stasis_api::{ExecRequest, ExecResult, FromClient, ToClient};
use stasis_machine::{Machine, TraceContext};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until, timeout};

/// Maximum waiting instructions of one connection; further ones stay unread.
const WAITING: usize = 256;
/// Maximum time for a client to read.
const PATIENCE: Duration = Duration::from_secs(120);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A ping as a message, for clients that cannot see WebSocket pings.
const PING: &str = r#"{"type":"message","message":"ping","level":"info"}"#;
/// Messages sent to a Rust client before it has to answer.
const BURST: usize = 16;
/// The time it then gets: a multiple of its answer time, within these bounds.
const BREATH: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));

pub struct Session {
    app: App,
    machine: Result<Arc<Machine>>,
    client: ReplClient,
    /// The request that opened it, for traces.
    cause: Option<TraceContext>,
    /// Unfinished instructions sent by this client, in order.
    queue: VecDeque<Follower>,
    /// Data still to be sent.
    held: VecDeque<ToClient>,
    /// Messages sent since the client last had to answer, and received while it has to.
    loose: usize,
    eager: usize,
    /// When the ping was sent that the rest waits for.
    asked: Option<Instant>,
    refused: u64,
}

/// The socket is closed, or its client does not read.
struct Gone;

type Sent = std::result::Result<(), Gone>;

struct Out(SplitSink<WebSocket, Message>);

enum Turn {
    Received(Option<std::result::Result<Message, axum::Error>>),
    Happened(Result<FollowEvent>),
    /// There is output that may be sent.
    More,
    Quiet,
    /// The client does not answer.
    Silent,
    Closed,
}

impl Session {
    pub fn new(
        app: App,
        machine: Result<Arc<Machine>>,
        client: ReplClient,
        cause: Option<TraceContext>,
    ) -> Session {
        let (queue, held) = (VecDeque::new(), VecDeque::new());
        let (loose, eager, asked, refused) = (0, 0, None, 0);
        Session { app, machine, client, cause, queue, held, loose, eager, asked, refused }
    }

    /// Serves until either side ends it.
    pub async fn run(mut self, socket: WebSocket, asked: String) {
        let (sink, mut stream) = socket.split();
        let mut out = Out(sink);
        let machine_name = match &self.machine {
            Ok(machine) => machine.name().to_string(),
            Err(_) => asked,
        };
        if out.send(&ToClient::Connected { machine_name }).await.is_ok() {
            let _ = self.talk(&mut out, &mut stream).await;
        }
    }

    async fn talk(&mut self, out: &mut Out, stream: &mut SplitStream<WebSocket>) -> Sent {
        let mut ticks = interval(KEEP_ALIVE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            match self.turn(stream, &mut ticks).await {
                Turn::Received(Some(Ok(Message::Text(text)))) => self.receive(out, &text).await?,
                Turn::Received(Some(Ok(Message::Binary(bytes)))) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    self.receive(out, &text).await?;
                }
                Turn::Received(Some(Ok(Message::Close(_)) | Err(_)) | None) => return Err(Gone),
                Turn::Received(Some(Ok(Message::Pong(_)))) => self.answered().await,
                // pings are answered while the socket is read
                Turn::Received(Some(Ok(_))) => {}
                Turn::Happened(event) => self.tell(out, event).await?,
                Turn::More => self.pour(out).await?,
                Turn::Quiet if self.client == ReplClient::Rust => {}
                Turn::Quiet => out.raw(Message::Ping(PING.into())).await?,
                Turn::Silent => return Err(Gone),
                Turn::Closed => return out.close().await,
            }
        }
    }

    /// The next step.
    async fn turn(&mut self, stream: &mut SplitStream<WebSocket>, ticks: &mut Interval) -> Turn {
        let free = self.asked.is_none();
        if free && !self.held.is_empty() {
            return Turn::More;
        }
        let may_read = self.queue.len() < WAITING || !free;
        let silent = self.asked.unwrap_or_else(Instant::now) + PATIENCE;
        tokio::select! {
            message = stream.next(), if may_read => Turn::Received(message),
            event = next(&mut self.queue), if free => Turn::Happened(event),
            _ = ticks.tick() => Turn::Quiet,
            () = sleep_until(silent), if !free => Turn::Silent,
            () = self.app.reached(Phase::Closed) => Turn::Closed,
        }
    }

    /// Accepts an instruction and acknowledges it.
    async fn receive(&mut self, out: &mut Out, text: &str) -> Sent {
        let (instruction, request_id, cause) = match serde_json::from_str(text) {
            Ok(FromClient::Exec { instruction, request_id, traceparent }) => {
                (instruction, request_id, traceparent.and_then(|text| TraceContext::new(&text)))
            }
            Err(error) => {
                let message = format!("the message was not understood: {error}");
                return out.send(&ToClient::Message { message, level: "error" }).await;
            }
        };
        let request = ExecRequest { instruction, ..Default::default() };
        match self.submit(request, cause).await {
            Ok(follower) => {
                let seq = follower.seq;
                self.queue.push_back(follower);
                self.held.push_back(ToClient::ExecReceived { seq, request_id });
            }
            Err(failure) => self.refuse(request_id, failure),
        }
        match (self.client, self.asked) {
            (ReplClient::Rust, None) => self.ask(out).await,
            (ReplClient::Rust, Some(_)) if self.eager >= WAITING => Err(Gone),
            (ReplClient::Rust, Some(_)) => {
                self.eager += 1;
                Ok(())
            }
            _ => self.pour(out).await,
        }
    }

    /// Sends a ping that the rest waits for.
    async fn ask(&mut self, out: &mut Out) -> Sent {
        (self.loose, self.eager, self.asked) = (0, 0, Some(Instant::now()));
        out.raw(Message::Ping(PING.into())).await
    }

    /// The client has read the data; its other threads may need a moment more.
    async fn answered(&mut self) {
        if let Some(asked) = self.asked.take() {
            sleep((asked.elapsed() * 4).clamp(BREATH.0, BREATH.1)).await;
        }
    }

    async fn submit(&self, request: ExecRequest, cause: Option<TraceContext>) -> Result<Follower> {
        let machine = self.machine.clone()?;
        let exec = request.exec()?;
        if self.app.phase() > Phase::Serving {
            return Err(HttpFailure::stopping());
        }
        let cause = cause.or_else(|| self.cause.clone());
        let seq = submit(&self.app, &machine, exec, cause).await?;
        Ok(Follower::new(self.app.clone(), machine, seq, 0))
    }

    /// An instruction without a number gets one that no instruction will ever have.
    fn refuse(&mut self, request_id: u64, failure: HttpFailure) {
        let seq = i32::MAX as u64 - self.refused;
        self.refused = (self.refused + 1) % 1_000_000;
        let result = ExecResult::failed(failure.words());
        self.held.push_back(ToClient::ExecReceived { seq, request_id });
        self.held.push_back(ToClient::Result { instruction_id: seq, result });
    }

    async fn tell(&mut self, out: &mut Out, event: Result<FollowEvent>) -> Sent {
        let Some(follower) = self.queue.front() else { return Ok(()) };
        let instruction_id = follower.seq;
        let result = match event {
            Ok(FollowEvent::Chunks(chunks)) => {
                let message = |chunk| ToClient::Output { chunk, instruction_id };
                self.held.extend(chunks.into_iter().map(message));
                return self.pour(out).await;
            }
            Ok(FollowEvent::Over(instruction)) => ExecResult::from(&*instruction),
            Err(failure) => ExecResult::failed(failure.words()),
        };
        self.queue.pop_front();
        out.send(&ToClient::Result { instruction_id, result }).await
    }

    /// Much output, as fast as the client reads it.
    async fn pour(&mut self, out: &mut Out) -> Sent {
        let burst = match self.client {
            ReplClient::Rust => self.held.len().min(BURST - self.loose),
            _ => self.held.len(),
        };
        for message in self.held.drain(..burst) {
            out.feed(&message).await?;
        }
        self.loose += burst;
        if self.client == ReplClient::Rust && self.loose == BURST {
            return self.ask(out).await;
        }
        out.flush().await
    }
}

/// The next event of the running instruction; pending for ever, if there is none.
async fn next(queue: &mut VecDeque<Follower>) -> Result<FollowEvent> {
    match queue.front_mut() {
        Some(follower) => follower.next().await,
        None => std::future::pending().await,
    }
}

impl Out {
    async fn send(&mut self, message: &ToClient) -> Sent {
        self.feed(message).await?;
        self.flush().await
    }

    async fn feed(&mut self, message: &ToClient) -> Sent {
        let text = serde_json::to_string(message).map_err(|_| Gone)?;
        within_deadline(self.0.feed(Message::Text(text.into()))).await
    }

    async fn raw(&mut self, message: Message) -> Sent {
        within_deadline(self.0.send(message)).await
    }

    async fn flush(&mut self) -> Sent {
        within_deadline(self.0.flush()).await
    }

    async fn close(&mut self) -> Sent {
        let reason = Utf8Bytes::from_static("the service is stopping");
        let frame = CloseFrame { code: close_code::AWAY, reason };
        self.raw(Message::Close(Some(frame))).await
    }
}

async fn within_deadline(
    sending: impl Future<Output = std::result::Result<(), axum::Error>>,
) -> Sent {
    match timeout(PATIENCE, sending).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Gone),
    }
}
