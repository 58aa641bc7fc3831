//! Changes to a text that keep its lines, and its columns where they can.
//!
//!   source + edits ─► text, and the places where columns moved
//!
//! Removed text becomes spaces. Inserted text moves the rest of its line; the list of moved columns
//! says by how much, so that an error is shown where the user wrote it. Columns count UTF-16 units
//! from 1, as V8's do.

use stasis_protocol::Place;

#[derive(Debug)]
enum Change {
    /// Spaces, after this character if given.
    Blank(Option<char>),
    Text(String),
}

#[derive(Debug)]
struct Edit {
    start: usize,
    end: usize,
    change: Change,
}

#[derive(Debug)]
pub struct Edits<'s> {
    pub source: &'s str,
    list: Vec<Edit>,
}

pub fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

/// The line and column of an offset.
pub fn position(source: &str, offset: usize) -> (u32, u32) {
    let mut cursor = Cursor { line: 1, column: 1, after_return: false };
    let before = source.get(..offset).unwrap_or(source);
    before.chars().for_each(|c| cursor.pass(c));
    (cursor.line, cursor.column)
}

impl<'s> Edits<'s> {
    pub fn new(source: &'s str) -> Edits<'s> {
        Edits { source, list: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn push(&mut self, start: u32, end: u32, change: Change) {
        self.list.push(Edit { start: start as usize, end: end as usize, change });
    }

    pub fn blank(&mut self, start: u32, end: u32) {
        if start < end {
            self.push(start, end, Change::Blank(None));
        }
    }

    /// Leaves one character, where the text before and after must not become one.
    pub fn leave(&mut self, mark: char, start: u32, end: u32) {
        self.push(start, end, Change::Blank(Some(mark)));
    }

    /// The text has no line break.
    pub fn replace(&mut self, start: u32, end: u32, text: impl Into<String>) {
        self.push(start, end, Change::Text(text.into()));
    }

    pub fn insert(&mut self, at: u32, text: impl Into<String>) {
        self.replace(at, at, text);
    }

    /// The text with all edits, and where its columns moved.
    pub fn finish(mut self) -> (String, Vec<Place>) {
        // insertions precede removals at the same offset
        self.list.sort_by_key(|edit| (edit.start, edit.end != edit.start));
        let mut writer = Writer::new(self.source.len());
        let mut at = 0;
        for edit in &self.list {
            if edit.start < at {
                continue;
            }
            writer.copy(&self.source[at..edit.start]);
            let old = &self.source[edit.start..edit.end];
            match &edit.change {
                Change::Blank(mark) => writer.blank(old, *mark),
                Change::Text(text) => writer.replace(old, text),
            }
            at = edit.end;
        }
        writer.copy(&self.source[at..]);
        (writer.out, writer.places)
    }
}

/// The position of a reader.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    line: u32,
    column: u32,
    after_return: bool,
}

impl Cursor {
    fn pass(&mut self, c: char) {
        if is_newline(c) {
            let same = c == '\n' && self.after_return;
            self.line += u32::from(!same);
            self.column = 1;
        } else {
            self.column += c.len_utf16() as u32;
        }
        self.after_return = c == '\r';
    }
}

struct Writer {
    out: String,
    /// In the source; the output has the same line.
    own: Cursor,
    /// The column in the output.
    made: u32,
    places: Vec<Place>,
}

impl Writer {
    fn new(size: usize) -> Writer {
        let own = Cursor { line: 1, column: 1, after_return: false };
        Writer { out: String::with_capacity(size), own, made: 1, places: Vec::new() }
    }

    fn copy(&mut self, text: &str) {
        for c in text.chars() {
            self.out.push(c);
            self.made = if is_newline(c) { 1 } else { self.made + c.len_utf16() as u32 };
            self.own.pass(c);
        }
    }

    fn spaces(&mut self, count: u32) {
        self.out.extend(std::iter::repeat_n(' ', count as usize));
        self.made += count;
    }

    fn blank(&mut self, old: &str, mark: Option<char>) {
        for (index, c) in old.char_indices() {
            if is_newline(c) {
                self.copy(&old[index..index + c.len_utf8()]);
                continue;
            }
            let mark = mark.filter(|_| index == 0);
            self.out.extend(mark);
            let width = c.len_utf16() as u32;
            self.made += u32::from(mark.is_some());
            self.spaces(width - u32::from(mark.is_some()));
            self.own.pass(c);
        }
    }

    fn replace(&mut self, old: &str, text: &str) {
        let (before, made) = (self.own, self.made);
        self.out.push_str(text);
        self.made += text.encode_utf16().count() as u32;
        for (index, c) in old.char_indices() {
            match is_newline(c) {
                true => self.copy(&old[index..index + c.len_utf8()]),
                false => self.own.pass(c),
            }
        }
        self.place(before.line, made, before.column, true);
        if self.own.line > before.line {
            self.spaces(self.own.column - 1);
        } else {
            self.place(before.line, self.made, self.own.column, false);
        }
    }

    fn place(&mut self, line: u32, made: u32, own: u32, still: bool) {
        self.places.push(Place { line, made, own, still });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_stay_or_are_told() {
        let source = "let é: T = 1\nabc(x)";
        let mut edits = Edits::new(source);
        edits.blank(6, 9);
        edits.replace(14, 17, "longer");
        let (text, places) = edits.finish();
        assert_eq!(text, "let é    = 1\nlonger(x)");
        let still = Place { line: 2, made: 1, own: 1, still: true };
        assert_eq!(places, [still, Place { line: 2, made: 7, own: 4, still: false }]);
        assert_eq!((position(source, 14), position(source, 6)), ((2, 1), (1, 6)));
    }

    #[test]
    fn replaced_lines_are_still_lines() {
        let mut edits = Edits::new("a {\r\n b\r\n} c; d");
        edits.replace(0, 12, "xyz");
        edits.leave(';', 12, 13);
        let (text, _) = edits.finish();
        assert_eq!(text, "xyz\r\n\r\n   ; d");
        assert_eq!(position("a\r\nb\rc\u{2028}d", 9), (4, 1));
    }
}
