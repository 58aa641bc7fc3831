//! `/proc/PID/status` and `/proc/PID/stat`.

/// The lines of a status file.
#[derive(Clone)]
pub struct ProcStatus(Vec<(String, String)>);

impl ProcStatus {
    pub fn parse(text: &str) -> ProcStatus {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        ProcStatus(lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    pub fn hex(&self, key: &str) -> Option<u64> {
        u64::from_str_radix(self.text(key)?, 16).ok()
    }

    pub fn number(&self, key: &str) -> Option<i64> {
        self.text(key)?.split_whitespace().next()?.parse().ok()
    }

    pub fn list(&self, key: &str) -> Vec<i64> {
        self.text(key)
            .map(|value| value.split_whitespace().filter_map(|n| n.parse().ok()).collect())
            .unwrap_or_default()
    }

    /// The number the process has in its own, innermost namespace.
    pub fn innermost(&self, key: &str) -> Option<i32> {
        self.list(key).last().map(|n| *n as i32)
    }
}

/// The numbers of a stat file, counted as in proc(5): `field(3)` is the state's successor.
pub struct Stat {
    pub name: String,
    pub state: char,
    fields: Vec<i64>,
}

impl Stat {
    pub fn parse(text: &str) -> Option<Stat> {
        // the name may hold anything, parentheses too, so it ends at the last one
        let (head, tail) = text.trim_end().rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let mut words = tail.split_whitespace();
        let state = words.next()?.chars().next()?;
        let fields = words.map(|word| {
            word.parse::<i64>().or_else(|_| word.parse::<u64>().map(|n| n as i64)).unwrap_or(0)
        });
        Some(Stat { name: name.to_owned(), state, fields: fields.collect() })
    }

    /// Field by its number in proc(5), from 4 (the parent) on.
    pub fn field(&self, number: usize) -> Option<u64> {
        self.fields.get(number.checked_sub(4)?).map(|n| *n as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = Stat::parse("7 (a) b) (c) S 1 7 7 0").unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) b) (c", 'S'));
        assert_eq!(stat.field(4), Some(1));
        assert_eq!(stat.field(5), Some(7));
    }
}
