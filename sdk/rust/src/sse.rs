//! Parses server-sent events, and lines, from bytes as they arrive.

use crate::{Error, Result};

/// Longer than any line of a service.
const LONGEST: usize = 256 << 20;

/// Bytes in, complete lines out.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<String>> {
        self.rest.extend_from_slice(piece);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return match self.rest.len() > LONGEST {
                true => Err(Error::protocol("a line without an end")),
                false => Ok(Vec::new()),
            };
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        let lines = whole[..end].split(|byte| *byte == b'\n');
        Ok(lines.map(|line| text(line.strip_suffix(b"\r").unwrap_or(line))).collect())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: String,
    pub data: String,
}

/// Bytes in, complete events out.
#[derive(Debug, Default)]
pub struct Events {
    lines: Lines,
    kind: String,
    data: Vec<String>,
    id: Option<String>,
    /// The id of the last complete event, including one without data.
    pub last_id: Option<String>,
}

impl Events {
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Event>> {
        let lines = self.lines.feed(piece)?;
        Ok(lines.iter().filter_map(|line| self.line(line)).collect())
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            self.last_id.clone_from(&self.id);
            let kind = std::mem::take(&mut self.kind);
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then(|| Event { kind, data: data.join("\n") });
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.kind = value.to_owned(),
            "data" => self.data.push(value.to_owned()),
            "id" => self.id = Some(value.to_owned()),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": alive\n\nevent: output\r\nid: 1\r\ndata: {\"é\":\ndata: 1}\n\n\
         event: result\ndata:x\n\nid: 2\n\nid: 3\nevent: never\ndata: ends\n";

    #[test]
    fn events_do_not_depend_on_how_they_are_cut() {
        for size in 1..STREAM.len() {
            let mut events = Events::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let found: Vec<Event> =
                pieces.flat_map(|piece| events.feed(piece).expect("events")).collect();
            let event = |kind: &str, data: &str| Event { kind: kind.into(), data: data.into() };
            assert_eq!(found, [event("output", "{\"é\":\n1}"), event("result", "x")], "{size}");
            assert_eq!(
                events.last_id.as_deref(),
                Some("2"),
                "{size}: a number counts when complete"
            );
        }
    }
}
