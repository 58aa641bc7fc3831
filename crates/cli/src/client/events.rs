//! The event stream of a service, over as many connections as needed.
//!
//! After a broken connection the stream resumes behind the last event. The client gives up when
//! connections keep breaking without an event.

use super::Client;
use crate::failure::{CliFailure, Exit, Result};
use reqwest::{Method, Response};
use serde_json::Value;
use stasis_api::Event;
use std::time::Duration;

/// Larger than any event.
const LONGEST: usize = 1 << 20;
/// Maximum consecutive broken connections.
const TRIES: u32 = 6;

pub struct EventStream<'a> {
    client: &'a Client,
    /// The filter, as a query that begins with `&` or is empty.
    query: String,
    after: Option<u64>,
    open: Option<Response>,
    buffer: Vec<u8>,
    broken: u32,
}

impl<'a> EventStream<'a> {
    pub fn new(client: &'a Client, query: String, after: Option<u64>) -> EventStream<'a> {
        EventStream { client, query, after, open: None, buffer: Vec::new(), broken: 0 }
    }

    /// Returns once no later event can be missed.
    pub async fn begin(&mut self) -> Result<()> {
        while self.after.is_none() {
            match self.take()? {
                Some(_) => {}
                None => self.more().await?,
            }
        }
        Ok(())
    }

    pub async fn next(&mut self) -> Result<Event> {
        loop {
            match self.take()? {
                Some(Some(event)) => return Ok(event),
                Some(None) => {}
                None => self.more().await?,
            }
        }
    }

    /// The next complete frame: an event, an id, or a keep-alive.
    fn take(&mut self) -> Result<Option<Option<Event>>> {
        let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") else {
            return Ok(None);
        };
        let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
        let frame = String::from_utf8_lossy(&frame);
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        if let Some(id) = field("id:").and_then(|id| id.trim().parse().ok()) {
            self.after = Some(id);
        }
        let event = field("data:").map(serde_json::from_str::<Event>).transpose();
        event.map(Some).map_err(|error| strange(&error.to_string()))
    }

    /// Reads on, over a new connection if necessary.
    async fn more(&mut self) -> Result<()> {
        let Some(answer) = &mut self.open else { return self.connect().await };
        match answer.chunk().await {
            Ok(Some(piece)) => {
                self.broken = 0;
                self.buffer.extend_from_slice(&piece);
                match self.buffer.len() > LONGEST {
                    true => Err(strange("an event without an end")),
                    false => Ok(()),
                }
            }
            Ok(None) | Err(_) => self.lost().await,
        }
    }

    async fn connect(&mut self) -> Result<()> {
        let after = self.after.map(|number| format!("&after={number}")).unwrap_or_default();
        let path = format!("/v1/events?{}", (self.query.clone() + &after).trim_start_matches('&'));
        self.open = Some(self.client.send(Method::GET, &path, None::<&Value>, true).await?);
        Ok(())
    }

    /// Waits before the next attempt; fails after too many.
    async fn lost(&mut self) -> Result<()> {
        self.open = None;
        self.buffer.clear();
        self.broken += 1;
        if self.broken > TRIES {
            let message = "the stream of events keeps breaking off";
            return Err(CliFailure::new("service.cut_off", message).exit(Exit::Unavailable));
        }
        tokio::time::sleep(Duration::from_millis(50 << self.broken)).await;
        Ok(())
    }
}

fn strange(what: &str) -> CliFailure {
    CliFailure::new("service.foreign", format!("the service sent a malformed event: {what}"))
}
