//! Tables and single objects, for people.

use serde_json::Value;
use stasis_api::Timestamp;

/// Columns with a header; the last one has no maximum width.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const N: usize>(head: [&str; N]) -> Table {
        Table { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| one_line(&cell, 200)).to_vec());
    }

    pub fn print(&self) {
        super::say(self.text().trim_end_matches('\n'));
    }

    fn text(&self) -> String {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Text as one line of at most `most` characters, without terminal control sequences.
pub fn one_line(text: &str, most: usize) -> String {
    let joined = text.trim().replace('\n', "⏎ ");
    let clean = super::clean(&joined, false);
    if clean.chars().count() <= most {
        return clean.into_owned();
    }
    clean.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// An object, one line per field; nested fields joined by a dot.
pub fn object(value: &Value) {
    let mut lines = Vec::new();
    collect("", value, &mut lines);
    let width = lines.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    for (key, value) in lines {
        super::say(format!("{key:<width$}  {value}").trim_end());
    }
}

fn collect(prefix: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let dot = if prefix.is_empty() { "" } else { "." };
                collect(&format!("{prefix}{dot}{key}"), value, lines);
            }
        }
        Value::Null | Value::Object(_) => lines.push((prefix.to_owned(), "-".into())),
        Value::String(text) => lines.push((prefix.to_owned(), one_line(text, 400))),
        Value::Array(list) if list.is_empty() => lines.push((prefix.to_owned(), "-".into())),
        other => lines.push((prefix.to_owned(), one_line(&other.to_string(), 400))),
    }
}

/// The age of something, in the largest non-zero unit.
pub fn age(then: Timestamp) -> String {
    let seconds = Timestamp::now().as_second().saturating_sub(then.as_second()).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// `1 file`, `2 files`.
pub fn count_of(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A byte count in the largest unit that gives at least one.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.0
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["NAME", "N", "CODE"]);
        table.row(["ä".into(), "12".into(), "a\nb\x1b[2J".into()]);
        table.row(["longer".into(), String::new(), String::new()]);
        let wanted = "NAME    N   CODE\nä       12  a⏎ b\\u{1b}[2J\nlonger\n";
        assert_eq!(table.text(), wanted);
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("abcd", 4), "abcd");
    }
}
