//! Output and end of an instruction, over as many connections as necessary.
//!
//! A broken connection is reopened after the last received line. If connections keep breaking
//! without a new line, the stream fails.

use crate::sse::{Event, Events};
use crate::transport::{Call, Transport};
use crate::types::ErrorBody;
use crate::{Error, Progress, Result};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::collections::VecDeque;
use std::sync::Arc;

/// An open connection, and its received events that were not yielded yet.
struct Connection {
    pieces: BoxStream<'static, Result<Vec<u8>>>,
    events: Events,
    ready: VecDeque<Event>,
}

pub struct Follow {
    transport: Arc<Transport>,
    path: String,
    /// The next line.
    position: u64,
    /// Broken connections since the last line.
    broken: u32,
    connection: Option<Connection>,
    over: bool,
}

impl Follow {
    pub fn new(transport: Arc<Transport>, path: String, position: u64) -> Follow {
        Follow { transport, path, position, broken: 0, connection: None, over: false }
    }

    /// The next item; none after the end, or after a permanent failure.
    pub async fn next(&mut self) -> Option<Result<Progress>> {
        while !self.over {
            let failure = match self.once().await {
                Ok(Progress::Output(chunk)) if chunk.seq < self.position => continue,
                Ok(progress) => return Some(Ok(self.note(progress))),
                Err(failure) => failure,
            };
            self.connection = None;
            if let Err(failure) = self.transport.breathe(failure, self.broken).await {
                self.over = true;
                return Some(Err(failure));
            }
            self.broken += 1;
        }
        None
    }

    fn note(&mut self, progress: Progress) -> Progress {
        match &progress {
            Progress::Output(chunk) => (self.position, self.broken) = (chunk.seq + 1, 0),
            Progress::End(_) => self.over = true,
        }
        progress
    }

    /// The next event of the connection.
    async fn once(&mut self) -> Result<Progress> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let call = Call::get(self.path.clone()).query("from", self.position);
                let pieces = self.transport.stream(&call).await?;
                none.insert(Connection {
                    pieces,
                    events: Events::default(),
                    ready: VecDeque::new(),
                })
            }
        };
        loop {
            if let Some(event) = connection.ready.pop_front() {
                return read(&event);
            }
            let piece = connection.pieces.next().await;
            let piece =
                piece.ok_or_else(|| Error::broken("the stream ended before the result"))??;
            connection.ready.extend(connection.events.feed(&piece)?);
        }
    }
}

fn read(event: &Event) -> Result<Progress> {
    let strange = |error| Error::protocol(format!("an event that is not ours: {error}"));
    match event.kind.as_str() {
        "output" => serde_json::from_str(&event.data).map(Progress::Output).map_err(strange),
        "result" => {
            let end = serde_json::from_str(&event.data).map_err(strange)?;
            Ok(Progress::End(Box::new(end)))
        }
        _ => {
            let body: ErrorBody = serde_json::from_str(&event.data).map_err(strange)?;
            Err(Error::of(500, body))
        }
    }
}
