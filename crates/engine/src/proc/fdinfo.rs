//! `/proc/PID/fdinfo/N`.

/// The common lines, and the rest as pairs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdInfo {
    pub offset: u64,
    pub flags: u32,
    pub lines: Vec<(String, String)>,
}

impl FdInfo {
    pub fn parse(text: &str) -> Option<FdInfo> {
        let lines: Vec<(String, String)> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
            .collect();
        let find = |key: &str| lines.iter().find(|(own, _)| own == key).map(|(_, v)| v.as_str());
        let offset = find("pos")?.parse::<i64>().ok()? as u64;
        let flags = u32::from_str_radix(find("flags")?, 8).ok()?;
        Some(FdInfo { offset, flags, lines })
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.lines.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    pub fn hex(&self, key: &str) -> Option<u64> {
        u64::from_str_radix(self.text(key)?, 16).ok()
    }

    /// Values of every line with this key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter(move |(own, _)| own == key).map(|(_, value)| value.as_str())
    }
}

/// A number after `key:` somewhere in a line such as `tfd: 5 events: 19 data: 5`.
pub fn after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == key)?;
    words.next()
}
