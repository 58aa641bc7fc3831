//! Server-sent events without an end, over as many connections as necessary.

use crate::sse::Events;
use crate::transport::{Call, Transport};
use crate::{Error, Result};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::sync::Arc;

type Pieces = BoxStream<'static, Result<Vec<u8>>>;

/// A stream of events, and its connection.
pub struct Listening<T> {
    transport: Arc<Transport>,
    call: Call,
    open: Option<(Pieces, Events)>,
    ready: VecDeque<T>,
    broken: u32,
}

impl<T: DeserializeOwned> Listening<T> {
    pub fn new(transport: Arc<Transport>, call: Call) -> Listening<T> {
        Listening { transport, call, open: None, ready: VecDeque::new(), broken: 0 }
    }

    pub async fn next(&mut self) -> Result<T> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if let Err(failure) = self.listen().await {
                self.open = None;
                self.transport.breathe(failure, self.broken).await?;
                self.broken += 1;
            }
        }
    }

    async fn listen(&mut self) -> Result<()> {
        let (pieces, events) = match &mut self.open {
            Some(open) => open,
            none => none.insert((self.transport.stream(&self.call).await?, Events::default())),
        };
        let ended = || Error::broken("the stream ended before what is listened to");
        let piece = pieces.next().await.ok_or_else(ended)??;
        self.broken = 0;
        for event in events.feed(&piece)? {
            let event = serde_json::from_str(&event.data);
            let strange = |error| Error::protocol(format!("an event that is not ours: {error}"));
            self.ready.push_back(event.map_err(strange)?);
        }
        // the position of the next connection, for events with ids
        if events.last_id.is_some() {
            self.call.last_event.clone_from(&events.last_id);
        }
        Ok(())
    }
}
