//! Output of a machine, cut into lines and kept within bounds.
//!
//!   bytes of fd 1, fd 2 ──► whole lines ──► numbered chunks ──► ... ──► mark, last lines
//!
//! Lines past the bound are counted and dropped, except for the last ones, which follow a mark that
//! says how much was cut: errors are usually at the end.

use crate::artifacts::PendingArtifacts;
use stasis_api::{Chunk, Stream};
use std::collections::VecDeque;

/// A line longer than this becomes several.
const LONGEST: usize = 64 << 10;
/// Bytes kept of the end when output is cut.
const TAIL: usize = 16 << 10;

/// Output of one instruction, before it is split into chunks.
pub struct OutputLines {
    partial: [Vec<u8>; 2],
    next: u64,
    room: usize,
    tail: VecDeque<(Stream, String)>,
    tail_bytes: usize,
    cut: u64,
    /// Number of bytes missing from the end.
    gone: u64,
    /// Receives everything, without a bound.
    parts: Option<PendingArtifacts>,
}

impl OutputLines {
    pub fn new(room: usize) -> OutputLines {
        let partial = [Vec::new(), Vec::new()];
        let tail = VecDeque::new();
        OutputLines { partial, next: 0, room, tail, tail_bytes: 0, cut: 0, gone: 0, parts: None }
    }

    /// Also stores the cut part.
    pub fn keeping(room: usize, parts: PendingArtifacts) -> OutputLines {
        OutputLines { parts: Some(parts), ..OutputLines::new(room) }
    }

    /// Displays and prompts, in order with the lines.
    pub fn parts(&mut self) -> Option<&mut PendingArtifacts> {
        self.parts.as_mut()
    }

    pub fn take_parts(&mut self) -> Option<PendingArtifacts> {
        self.parts.take()
    }

    /// Whether lines are missing; known when it is finished.
    pub fn was_cut(&self) -> bool {
        self.gone > 0
    }

    /// Number of chunks.
    pub fn count(&self) -> u64 {
        self.next
    }

    /// Adds bytes; returns complete lines.
    pub fn take(&mut self, stream: Stream, bytes: &[u8]) -> Vec<Chunk> {
        if let Some(parts) = &mut self.parts {
            parts.output(bytes);
        }
        let mut chunks = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.partial[stream as usize].extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.end_line(stream, &mut chunks);
        }
        self.partial[stream as usize].extend_from_slice(rest);
        while self.partial[stream as usize].len() > LONGEST {
            self.end_line(stream, &mut chunks);
        }
        chunks
    }

    /// The code requests a line of input: flushes its earlier output, then the prompt. Never cut,
    /// because the code would otherwise wait for ever.
    pub fn prompt(&mut self, prompt: String) -> Vec<Chunk> {
        let mut chunks = self.end_partial();
        self.room = self.room.saturating_sub(prompt.len() + 1);
        chunks.push(Chunk { prompt: true, ..self.number(Stream::Stdout, prompt) });
        chunks
    }

    /// Output that did not end with a line break, as lines.
    pub fn end_partial(&mut self) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !self.partial[stream as usize].is_empty() {
                self.end_line(stream, &mut chunks);
            }
        }
        chunks
    }

    /// An earlier process had this many chunks.
    pub fn go_on_from(&mut self, count: u64) {
        self.next = count;
    }

    /// The instruction is over: lines without an end, the mark, and the last lines.
    pub fn finish(&mut self) -> Vec<Chunk> {
        let mut chunks = self.end_partial();
        let kept: u64 = self.tail.iter().map(|(_, line)| line.len() as u64 + 1).sum();
        self.gone = self.cut - kept;
        if self.gone > 0 {
            let mark = format!("[stasis: {} bytes of output were cut here]", self.gone);
            chunks.push(self.number(Stream::Stderr, mark));
        }
        for (stream, line) in std::mem::take(&mut self.tail) {
            chunks.push(self.number(stream, line));
        }
        chunks
    }

    /// Takes the first `LONGEST` bytes of the partial line, or all of it, as a line.
    fn end_line(&mut self, stream: Stream, chunks: &mut Vec<Chunk>) {
        let partial = &mut self.partial[stream as usize];
        let rest = partial.split_off(whole_characters(partial, LONGEST));
        let line = String::from_utf8_lossy(&std::mem::replace(partial, rest)).into_owned();
        let line = line.strip_suffix('\r').map(str::to_owned).unwrap_or(line);
        if line.len() < self.room && self.cut == 0 {
            self.room -= line.len() + 1;
            chunks.push(self.number(stream, line));
            return;
        }
        self.cut += line.len() as u64 + 1;
        self.tail_bytes += line.len() + 1;
        self.tail.push_back((stream, line));
        while self.tail_bytes > TAIL {
            let gone = self.tail.pop_front().map_or(0, |(_, line)| line.len() + 1);
            self.tail_bytes -= gone;
        }
    }

    fn number(&mut self, stream: Stream, data: String) -> Chunk {
        self.next += 1;
        Chunk { stream, data, seq: self.next - 1, prompt: false }
    }
}

/// The longest prefix of at most `limit` bytes that does not end inside a character.
fn whole_characters(bytes: &[u8], limit: usize) -> usize {
    if bytes.len() <= limit {
        return bytes.len();
    }
    let inside = |at: &usize| bytes[*at] & 0xc0 == 0x80;
    (limit - 3..=limit).rev().find(|at| !inside(at)).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &[u8], pieces: &[usize], room: usize) -> Vec<Chunk> {
        let mut lines = OutputLines::new(room);
        let mut rest = text;
        let mut chunks = Vec::new();
        for piece in pieces {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            chunks.extend(lines.take(Stream::Stdout, now));
            rest = later;
        }
        chunks.extend(lines.take(Stream::Stdout, rest));
        chunks.extend(lines.finish());
        chunks
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[a-zä\n]{0,300}", pieces: Vec<u8>) {
            let pieces: Vec<usize> = pieces.into_iter().map(|n| usize::from(n) % 17).collect();
            prop_assert_eq!(
                all(text.as_bytes(), &pieces, 1 << 20),
                all(text.as_bytes(), &[], 1 << 20)
            );
        }

        #[test]
        fn numbers_count_up(text in "[a-z\n]{0,300}", room in 0usize..200) {
            let chunks = all(text.as_bytes(), &[], room);
            for (index, chunk) in chunks.iter().enumerate() {
                prop_assert_eq!(chunk.seq, index as u64);
                prop_assert!(!chunk.data.contains('\n'));
            }
        }

        #[test]
        fn long_lines_are_split_between_characters(count in 60_000usize..70_000) {
            let text = "ä".repeat(count);
            let joined: String =
                all(text.as_bytes(), &[1000], 1 << 20).into_iter().map(|c| c.data).collect();
            prop_assert_eq!(joined, text);
        }
    }

    #[test]
    fn the_end_survives_a_cut() {
        let text: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
        let chunks = all(text.as_bytes(), &[], 1000);
        assert_eq!(chunks[0].data, "line 0");
        assert_eq!(chunks.last().expect("chunks").data, "line 99999");
        let mark = chunks.iter().find(|chunk| chunk.stream == Stream::Stderr).expect("a mark");
        assert!(mark.data.contains("bytes of output were cut"), "{}", mark.data);
        let total: usize = chunks.iter().map(|chunk| chunk.data.len() + 1).sum();
        assert!(total < 1000 + TAIL + 100);
    }
}
