//! One WebSocket's session: instructions in, in order; acknowledgements, output and results out.
//!
//!   connected < exec_received(n) < output(n)* < result(n)
//!
//! A session hears only of instructions that it sent itself. Failures are results: the protocol's
//! own `error` message breaks clients. When the socket is gone, instructions go on.

use crate::app::{App, Phase};
use crate::auth::Caller;
use crate::failure::{Failure, Result};
use crate::follow::{Event, Follower};
use crate::instructions::submit;
use crate::repl::Client;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use stasis_api::{ExecRequest, ExecResult, FromClient, ToClient};
use stasis_machine::Machine;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Instructions of one connection that may wait; more are left unread.
const WAITING: usize = 256;
/// How long a client may take to read.
const PATIENCE: Duration = Duration::from_secs(120);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A ping that is a message, too, for those who cannot tell.
const PING: &str = r#"{"type":"message","message":"ping","level":"info"}"#;
/// What a Rust client needs before it is ready for an acknowledgement.
const ACK_DELAY: Duration = Duration::from_millis(2);
/// Lines that a Rust client gets at once, and the time it gets to take them.
const BURST: usize = 20;
const BREATH: Duration = Duration::from_millis(5);

pub struct Session {
    app: App,
    caller: Caller,
    machine: Result<Arc<Machine>>,
    client: Client,
    /// Instructions sent by this client that are not over, in order.
    queue: VecDeque<Follower>,
    refused: u64,
}

/// The socket is gone, or its client does not read.
struct Gone;

type Sent = std::result::Result<(), Gone>;

struct Out(SplitSink<WebSocket, Message>);

enum Turn {
    Heard(Option<std::result::Result<Message, axum::Error>>),
    Happened(Result<Event>),
    Quiet,
    Closed,
}

impl Session {
    pub fn new(app: App, caller: Caller, machine: Result<Arc<Machine>>, client: Client) -> Session {
        Session { app, caller, machine, client, queue: VecDeque::new(), refused: 0 }
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
            let app = self.app.clone();
            let hear = self.queue.len() < WAITING;
            let turn = tokio::select! {
                heard = stream.next(), if hear => Turn::Heard(heard),
                event = next(&mut self.queue) => Turn::Happened(event),
                _ = ticks.tick() => Turn::Quiet,
                () = app.reached(Phase::Closed) => Turn::Closed,
            };
            match turn {
                Turn::Heard(Some(Ok(Message::Text(text)))) => self.hear(out, &text).await?,
                Turn::Heard(Some(Ok(Message::Binary(bytes)))) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    self.hear(out, &text).await?;
                }
                Turn::Heard(Some(Ok(Message::Close(_)) | Err(_)) | None) => return Err(Gone),
                // pings are answered while the socket is read
                Turn::Heard(Some(Ok(_))) => {}
                Turn::Happened(event) => self.tell(out, event).await?,
                Turn::Quiet if self.client == Client::Rust => {}
                Turn::Quiet => out.raw(Message::Ping(PING.into())).await?,
                Turn::Closed => return out.close().await,
            }
        }
    }

    /// Takes an instruction and acknowledges it.
    async fn hear(&mut self, out: &mut Out, text: &str) -> Sent {
        let (instruction, request_id) = match serde_json::from_str(text) {
            Ok(FromClient::Exec { instruction, request_id }) => (instruction, request_id),
            Err(error) => {
                let message = format!("this was not understood: {error}");
                return out.send(&ToClient::Message { message, level: "error" }).await;
            }
        };
        if self.client == Client::Rust {
            sleep(ACK_DELAY).await;
        }
        match self.submit(ExecRequest { instruction, ..Default::default() }) {
            Ok(follower) => {
                let seq = follower.seq;
                self.queue.push_back(follower);
                out.send(&ToClient::ExecReceived { seq, request_id }).await
            }
            Err(failure) => self.refuse(out, request_id, failure).await,
        }
    }

    fn submit(&self, request: ExecRequest) -> Result<Follower> {
        let machine = self.machine.clone()?;
        let exec = request.exec().map_err(Failure::invalid)?;
        if self.app.phase() > Phase::Serving {
            return Err(Failure::stopping());
        }
        let seq = submit(&self.app, &self.caller, &machine, exec)?;
        Ok(Follower::new(self.app.clone(), machine, seq, 0))
    }

    /// An instruction that got no number gets one that no instruction will ever have.
    async fn refuse(&mut self, out: &mut Out, request_id: u64, failure: Failure) -> Sent {
        let seq = i32::MAX as u64 - self.refused;
        self.refused = (self.refused + 1) % 1_000_000;
        out.send(&ToClient::ExecReceived { seq, request_id }).await?;
        let result = ExecResult::failed(failure.words());
        out.send(&ToClient::Result { instruction_id: seq, result }).await
    }

    async fn tell(&mut self, out: &mut Out, event: Result<Event>) -> Sent {
        let Some(follower) = self.queue.front() else { return Ok(()) };
        let instruction_id = follower.seq;
        let result = match event {
            Ok(Event::Chunks(chunks)) => {
                let messages = chunks.into_iter().map(|chunk| ToClient::Output {
                    chunk,
                    instruction_id,
                });
                return self.pour(out, messages.collect()).await;
            }
            Ok(Event::Over(instruction)) => {
                self.app.metrics.ended(&instruction);
                ExecResult::from(&*instruction)
            }
            Err(failure) => ExecResult::failed(failure.words()),
        };
        self.queue.pop_front();
        out.send(&ToClient::Result { instruction_id, result }).await
    }

    /// Much output, as fast as the client can take it.
    async fn pour(&self, out: &mut Out, messages: Vec<ToClient>) -> Sent {
        for burst in messages.chunks(BURST) {
            for message in burst {
                out.feed(message).await?;
            }
            if self.client == Client::Rust {
                out.flush().await?;
                sleep(BREATH).await;
            }
        }
        out.flush().await
    }
}

/// What happens next to the instruction that runs; nothing ever, if there is none.
async fn next(queue: &mut VecDeque<Follower>) -> Result<Event> {
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
        patiently(self.0.feed(Message::Text(text.into()))).await
    }

    async fn raw(&mut self, message: Message) -> Sent {
        patiently(self.0.send(message)).await
    }

    async fn flush(&mut self) -> Sent {
        patiently(self.0.flush()).await
    }

    async fn close(&mut self) -> Sent {
        let reason = Utf8Bytes::from_static("the service is stopping");
        let frame = CloseFrame { code: close_code::AWAY, reason };
        self.raw(Message::Close(Some(frame))).await
    }
}

async fn patiently(sending: impl Future<Output = std::result::Result<(), axum::Error>>) -> Sent {
    match timeout(PATIENCE, sending).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Gone),
    }
}
