//! Edits another program's settings file: one entry changes, everything else stays, comments too.
//!
//!   text ──► edit of its format ──► new text ──► read back: the same, but for our entry?
//!
//! If that is not possible, the edit is refused and nothing is written.

mod json;
mod toml;
mod yaml;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With or without comments.
    Json,
    Toml,
    Yaml,
}

/// The position of an entry: below a key, under a name.
#[derive(Debug, Clone, Copy)]
pub struct EntryKey<'a> {
    pub section: &'a str,
    pub name: &'a str,
}

type Edited = Result<String, String>;

impl Format {
    fn read(self, text: &str) -> Result<Value, String> {
        let read = match self {
            Format::Json => json::read(text),
            Format::Toml => toml::read(text),
            Format::Yaml => yaml::read(text),
        }?;
        // an empty file
        Ok(if read.is_null() { Value::Object(Default::default()) } else { read })
    }

    /// The text with an entry, replacing one of that name.
    pub fn put(self, text: &str, at: EntryKey, entry: &Value) -> Edited {
        let mut wanted = self.read(text)?;
        let section = wanted.as_object_mut().ok_or("it is not a table of settings")?;
        let section =
            section.entry(at.section).or_insert_with(|| Value::Object(Default::default()));
        if section.is_null() {
            *section = Value::Object(Default::default());
        }
        let section = section.as_object_mut().ok_or_else(|| odd(at))?;
        section.insert(at.name.to_owned(), entry.clone());
        let edited = match self {
            Format::Json => json::put(text, at, entry),
            Format::Toml => toml::put(text, at, entry),
            Format::Yaml => yaml::put(text, at, entry),
        }?;
        self.verified(edited, &wanted)
    }

    /// The text without an entry; none, if it does not exist.
    pub fn take(self, text: &str, at: EntryKey) -> Result<Option<String>, String> {
        let mut wanted = self.read(text)?;
        let section = wanted.get_mut(at.section).and_then(Value::as_object_mut);
        let Some(section) = section.filter(|section| section.contains_key(at.name)) else {
            return Ok(None);
        };
        section.remove(at.name);
        let edited = match self {
            Format::Json => json::take(text, at),
            Format::Toml => toml::take(text, at),
            Format::Yaml => yaml::take(text, at),
        }?;
        self.verified(edited, &wanted).map(Some)
    }

    /// An entry as written.
    pub fn show(self, at: EntryKey, entry: &Value) -> Edited {
        self.put("", at, entry)
    }

    fn verified(self, edited: String, wanted: &Value) -> Edited {
        let read = self.read(&edited)?;
        let same = without_empty(read) == without_empty(wanted.clone());
        same.then_some(edited).ok_or_else(|| "its structure is not supported".into())
    }
}

/// An empty section means the same as none.
fn without_empty(mut settings: Value) -> Value {
    let is_empty =
        |value: &Value| value.is_null() || value.as_object().is_some_and(|o| o.is_empty());
    if let Some(settings) = settings.as_object_mut() {
        settings.retain(|_, value| !is_empty(value));
    }
    settings
}

fn odd(at: EntryKey) -> String {
    format!("`{}` is not a table", at.section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry() -> Value {
        json!({ "command": "/opt/stasis", "args": ["mcp"], "env": { "A": "b c" } })
    }

    fn put(format: Format, text: &str) -> String {
        format.put(text, EntryKey { section: "servers", name: "stasis" }, &entry()).expect(text)
    }

    /// An added entry can be removed, and everything else stays.
    fn round(format: Format, text: &str) -> String {
        let at = EntryKey { section: "servers", name: "stasis" };
        let with = put(format, text);
        let again = format.put(&with, at, &entry()).expect("twice");
        assert_eq!(with, again, "twice is the same as once");
        let without = format.take(&with, at).expect("taken").expect("it was there");
        assert_eq!(format.take(&without, at).expect("taken"), None);
        let (before, after) = (format.read(text).expect("read"), format.read(&without));
        assert_eq!(without_empty(before), without_empty(after.expect("read")), "{without}");
        with
    }

    #[test]
    fn json_keeps_comments_and_order() {
        let text = "// mine\n{\n  \"z\": 1, // last letter\n  \"servers\": {\n    /* other */\n    \
                    \"other\": { \"command\": \"x\" },\n  },\n  \"a\": [1,   2]\n}\n";
        let with = round(Format::Json, text);
        for kept in ["// mine\n", "// last letter", "/* other */", "[1,   2]"] {
            assert!(with.contains(kept), "{kept} in {with}");
        }
        assert!(with.find("\"z\"") < with.find("\"a\""));
    }

    #[test]
    fn json_without_anything() {
        for text in ["", "{}", "{\n}\n", "{\"servers\":{}}", "{ \"x\": 1 }"] {
            let with = round(Format::Json, text);
            let strict: Result<Value, _> = serde_json::from_str(&with);
            assert_eq!(strict.expect("strict JSON")["servers"]["stasis"], entry(), "{text}");
        }
    }

    #[test]
    fn toml_keeps_comments_and_order() {
        let text =
            "# mine\nmodel = \"o3\" # why not\n\n[servers.other]\ncommand = 'x'\n\n[z]\na=1\n";
        let with = round(Format::Toml, text);
        for kept in ["# mine\n", "# why not", "command = 'x'", "a=1"] {
            assert!(with.contains(kept), "{kept} in {with}");
        }
        round(Format::Toml, "");
        round(Format::Toml, "servers = { other = { command = 'x' } }\n");
    }

    #[test]
    fn yaml_keeps_comments_and_order() {
        let text = "# mine\nGOOSE_MODEL: gpt # why not\nservers:\n    # theirs\n    other:\n\
                    \x20       cmd: x\n        args: [a, b]\n\n    third:\n        cmd: |\n\
                    \x20         many\n\n          lines\n# end\nlast: 1\n";
        let with = round(Format::Yaml, text);
        for kept in
            ["# mine\n", "# why not", "# theirs", "args: [a, b]", "# end\n", "    stasis:\n"]
        {
            assert!(with.contains(kept), "{kept} in {with}");
        }
        for text in ["", "servers:\n", "servers: {}\n", "a: 1", "servers: # none\nb: 2\n"] {
            round(Format::Yaml, text);
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let at = EntryKey { section: "servers", name: "stasis" };
        for (format, text) in [
            (Format::Json, "[]"),
            (Format::Json, "{ \"servers\": [] }"),
            (Format::Json, "{ \"a\": "),
            (Format::Toml, "servers = 3"),
            (Format::Toml, "a b"),
            (Format::Yaml, "servers: { other: { cmd: x } }\n"),
            (Format::Yaml, "servers:\n- cmd: x\n"),
            (Format::Yaml, "- a\n"),
            (Format::Yaml, "a: [\n"),
        ] {
            assert!(format.put(text, at, &entry()).is_err(), "{text}");
        }
    }
}
