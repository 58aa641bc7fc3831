//! Pages of console output, by line or by byte, in mcp-v8's form. Pure.
//!
//! Lines count from 1. An offset of 0 means 1, and is answered as 1, so that a client that starts
//! at 0 sees every line once. A page of lines that is not the last one ends with a newline, so that
//! pages can be concatenated; bytes are returned as they are.

use serde::{Deserialize, Serialize};

const LINES: u64 = 100;
const BYTES: u64 = 4096;
/// Maximum lines and bytes of one page.
const MOST_LINES: u64 = 100_000;
const MOST_BYTES: u64 = 4 << 20;

/// The requested part of the output. With `byte_offset`, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct PageRequest {
    pub line_offset: Option<u64>,
    pub line_limit: Option<u64>,
    pub byte_offset: Option<u64>,
    pub byte_limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPage {
    pub execution_id: String,
    pub data: String,
    pub start_line: u64,
    pub end_line: u64,
    pub next_line_offset: u64,
    pub total_lines: u64,
    pub start_byte: u64,
    pub end_byte: u64,
    pub next_byte_offset: u64,
    pub total_bytes: u64,
    pub has_more: bool,
    pub status: String,
}

/// One page of a text in which every line ends with a newline.
pub fn page(id: &str, status: &str, text: &str, wanted: &PageRequest) -> OutputPage {
    let (start, end) = match wanted.byte_offset {
        Some(offset) => by_bytes(text, offset, wanted.byte_limit.unwrap_or(BYTES)),
        None => by_lines(text, wanted),
    };
    let count = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count() as u64;
    let (before, inside, total) = (count(&text[..start]), count(&text[start..end]), count(text));
    let has_more = end < text.len();
    let mut data = text[start..end].to_owned();
    if wanted.byte_offset.is_none() && !has_more && data.ends_with('\n') {
        data.pop();
    }
    let is_empty = start == end;
    OutputPage {
        execution_id: id.to_owned(),
        data,
        start_line: if is_empty { 0 } else { before + 1 },
        end_line: if is_empty { 0 } else { before + inside },
        next_line_offset: if is_empty && total == 0 { 1 } else { before + inside + 1 },
        total_lines: total,
        start_byte: start as u64,
        end_byte: end as u64,
        next_byte_offset: end as u64,
        total_bytes: text.len() as u64,
        has_more,
        status: status.to_owned(),
    }
}

fn by_lines(text: &str, wanted: &PageRequest) -> (usize, usize) {
    let first = wanted.line_offset.unwrap_or(1).max(1);
    let limit = wanted.line_limit.unwrap_or(LINES).min(MOST_LINES);
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
    let at = |line: u64| {
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        starts.get(line).copied().unwrap_or(text.len())
    };
    (at(first - 1), at((first - 1).saturating_add(limit)))
}

/// Bytes from an offset on. Both ends are moved back to a character boundary, so that every page is
/// text and no byte is returned twice; a page holds at least one character.
fn by_bytes(text: &str, offset: u64, limit: u64) -> (usize, usize) {
    let bound = |at: u64| text.floor_char_boundary(usize::try_from(at).unwrap_or(usize::MAX));
    let start = bound(offset.min(text.len() as u64));
    let limit = limit.min(MOST_BYTES);
    let end = bound((start as u64).saturating_add(limit).min(text.len() as u64));
    let least = text[start..].chars().next().map_or(start, |first| start + first.len_utf8());
    (start, if limit == 0 { start } else { end.max(least) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(offset: u64, limit: u64) -> PageRequest {
        let (line_offset, line_limit) = (Some(offset), Some(limit));
        PageRequest { line_offset, line_limit, ..PageRequest::default() }
    }

    fn bytes(offset: u64, limit: u64) -> PageRequest {
        let (byte_offset, byte_limit) = (Some(offset), Some(limit));
        PageRequest { byte_offset, byte_limit, ..PageRequest::default() }
    }

    #[test]
    fn pages_of_lines() {
        let text = "a\nb\nc\n";
        let first = page("x", "running", text, &lines(1, 2));
        assert_eq!((&*first.data, first.start_line, first.end_line), ("a\nb\n", 1, 2));
        assert_eq!((first.next_line_offset, first.total_lines, first.has_more), (3, 3, true));
        let last = page("x", "completed", text, &lines(first.next_line_offset, 2));
        assert_eq!((&*last.data, last.start_line, last.has_more), ("c", 3, false));
        assert_eq!((last.start_byte, last.end_byte, last.total_bytes), (4, 6, 6));
        let none = page("x", "completed", "", &PageRequest::default());
        assert_eq!((none.start_line, none.end_line, none.next_line_offset), (0, 0, 1));
        let beyond = page("x", "completed", text, &lines(u64::MAX, u64::MAX));
        assert_eq!((&*beyond.data, beyond.next_line_offset, beyond.has_more), ("", 4, false));
    }

    #[test]
    fn a_client_that_starts_at_zero_sees_every_line_once() {
        let text: String = (0..250).map(|line| format!("{line}\n")).collect();
        let (mut all, mut offset) = (String::new(), 0);
        loop {
            let one = page("x", "completed", &text, &lines(offset, 100));
            all += &one.data;
            offset = one.next_line_offset;
            if !one.has_more {
                break;
            }
        }
        assert_eq!(all, text.trim_end());
    }

    #[test]
    fn pages_of_bytes_are_text() {
        let text = "aé€\n";
        let mut all = String::new();
        let mut offset = 0;
        while offset < text.len() as u64 {
            let one = page("x", "completed", text, &bytes(offset, 1));
            assert!(one.next_byte_offset > offset, "{one:?}");
            all += &one.data;
            offset = one.next_byte_offset;
        }
        assert_eq!(all, text);
        let none = page("x", "completed", text, &bytes(100, 10));
        assert_eq!((&*none.data, none.next_byte_offset, none.has_more), ("", 7, false));
    }
}
