//! Parses an event stream.

use super::MAX_LINE;

#[derive(Default)]
pub struct SseParser {
    line: Vec<u8>,
    data: Vec<String>,
    bytes: usize,
}

impl SseParser {
    /// The data of complete events.
    pub fn feed(&mut self, bytes: &[u8]) -> std::result::Result<Vec<String>, String> {
        self.bytes += bytes.len();
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                complete.extend(self.end_line(String::from_utf8_lossy(&line).trim_end()));
            }
        }
        match self.bytes as u64 > MAX_LINE {
            true => Err(format!("an event is at most {MAX_LINE} bytes")),
            false => Ok(complete),
        }
    }

    fn end_line(&mut self, line: &str) -> Option<String> {
        if let Some(data) = line.strip_prefix("data:") {
            self.data.push(data.strip_prefix(' ').unwrap_or(data).to_owned());
        }
        if !line.is_empty() {
            return None;
        }
        self.bytes = 0;
        Some(std::mem::take(&mut self.data).join("\n")).filter(|data| !data.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_any_pieces() {
        let stream = "id: 0\r\nretry: 3000\r\ndata:\r\n\r\n: ping\n\ndata: {\"a\":\ndata: 1}\n\n";
        for size in [1, 2, 7, 1000] {
            let mut events = SseParser::default();
            let pieces = stream.as_bytes().chunks(size);
            let all: Vec<_> = pieces.flat_map(|piece| events.feed(piece).expect("fed")).collect();
            assert_eq!(all, ["{\"a\":\n1}"], "in pieces of {size}");
        }
    }
}
