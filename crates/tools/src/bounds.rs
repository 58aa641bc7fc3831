//! Bounds on what upstream servers send, checked while the bytes come in.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of one message.
pub const LONGEST: usize = 8 << 20;
/// Values of one message, with all that are inside others.
pub const VALUES: usize = 200_000;
/// How deep values lie in others.
pub const DEEPEST: usize = 64;

/// Looks over JSON text piece by piece. Counts what separates values: never less than there are.
#[derive(Debug, Default)]
pub struct MessageScan {
    bytes: usize,
    values: usize,
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl MessageScan {
    /// Takes one byte of a message; what there is too much of.
    pub fn take(&mut self, byte: u8) -> Result<(), &'static str> {
        self.bytes += 1;
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b',' | b':' => self.values += 1,
            b'[' | b'{' => (self.values, self.depth) = (self.values + 1, self.depth + 1),
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        match self {
            _ if self.bytes > LONGEST => Err("more than 8 MiB"),
            _ if self.values > VALUES => Err("more than 200,000 values"),
            _ if self.depth > DEEPEST => Err("values more than 64 deep in others"),
            _ => Ok(()),
        }
    }

    /// A whole message.
    pub fn check(text: &[u8]) -> Result<(), &'static str> {
        let mut scan = MessageScan::default();
        text.iter().try_for_each(|byte| scan.take(*byte))
    }
}

/// Reads lines, each of which is one message. A message that is too large ends the stream: what
/// follows cannot be trusted to begin where a message does.
pub struct BoundedLines<R> {
    inner: R,
    scan: MessageScan,
}

impl<R> BoundedLines<R> {
    pub fn new(inner: R) -> BoundedLines<R> {
        BoundedLines { inner, scan: MessageScan::default() }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        let mut read = buffer.filled()[before..].iter();
        let fits = read.try_for_each(|byte| match byte {
            b'\n' => {
                this.scan = MessageScan::default();
                Ok(())
            }
            byte => this.scan.take(*byte),
        });
        match fits {
            Ok(()) => Poll::Ready(Ok(())),
            Err(what) => {
                // a read that fails has read nothing
                buffer.set_filled(before);
                let said = format!("the server sent a message with {what}");
                tracing::warn!("{said}");
                Poll::Ready(Err(io::Error::other(said)))
            }
        }
    }
}

/// Notices the ends of events in a stream of server-sent events, and how large they are.
#[derive(Debug, Default)]
pub struct EventScan {
    bytes: usize,
    line: usize,
}

impl EventScan {
    pub fn take(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        for byte in piece {
            match byte {
                b'\n' if self.line == 0 => self.bytes = 0,
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => self.line += 1,
            }
            self.bytes += 1;
            if self.bytes > LONGEST {
                return Err("more than 8 MiB");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[test]
    fn messages_are_bounded() {
        assert_eq!(MessageScan::check(br#"{"a": ["[[[", {"b": "\"[,,,"}]}"#), Ok(()));
        let deep = "[".repeat(DEEPEST + 1);
        assert!(MessageScan::check(deep.as_bytes()).is_err_and(|what| what.contains("deep")));
        let many = "0,".repeat(VALUES + 1);
        assert!(MessageScan::check(many.as_bytes()).is_err_and(|what| what.contains("values")));
        let text = format!("\"{}\"", "[".repeat(LONGEST));
        assert!(MessageScan::check(text.as_bytes()).is_err_and(|what| what.contains("MiB")));
    }

    #[test]
    fn events_are_bounded_one_by_one() {
        let mut scan = EventScan::default();
        let event = format!("data: {}\r\n\r\n", "x".repeat(LONGEST / 2));
        for _ in 0..4 {
            assert_eq!(scan.take(event.as_bytes()), Ok(()));
        }
        let endless = "data: x\n".repeat(LONGEST / 8 + 1);
        assert!(scan.take(endless.as_bytes()).is_err());
    }

    #[test]
    fn lines_end_at_the_first_that_is_too_large() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let text = format!("{{}}\n{}\n{{}}\n", "[".repeat(DEEPEST + 1));
            let mut lines = BoundedLines::new(text.as_bytes());
            let mut read = Vec::new();
            assert!(lines.read_to_end(&mut read).await.is_err());
        });
    }
}
