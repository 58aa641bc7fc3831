//! Skills of a front process, as in the extension `io.modelcontextprotocol/skills`: a directory
//! with a SKILL.md, whose files are resources with digests.

use crate::error::{Error, Result};
use crate::executions::shown;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Bounds of one skill, which every host of the extension accepts, and of the skills of one setup.
pub const MOST_FILES: usize = 512;
pub const MOST_BYTES: u64 = 16 << 20;
pub const MOST_SKILLS: usize = 100;
const LONGEST_HEAD: usize = 64 << 10;
const LONGEST_PATH: usize = 1024;
const FIRST: &str = "SKILL.md";

/// A received skill, with the data found in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct V8Skill {
    /// The path of its directory; its last part is the skill's name.
    pub path: String,
    pub files: Vec<SkillFile>,
    /// Determined here, whatever a client sends.
    #[serde(default)]
    pub frontmatter: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillFile {
    /// Below the skill's directory.
    pub path: String,
    /// The hash of its bytes, which were sent before.
    pub file: String,
    /// Determined here.
    #[serde(default)]
    pub digest: String,
    #[serde(default)]
    pub size: u64,
}

impl V8Skill {
    /// The same with the data in its files.
    pub(crate) fn checked(mut self, read: impl Fn(&str) -> Result<Vec<u8>>) -> Result<V8Skill> {
        let wrong = |what: &str| Error::invalid(format!("skill '{}': {what}", shown(&self.path)));
        if !is_path(&self.path) || self.files.iter().any(|file| !is_path(&file.path)) {
            return Err(wrong("a path must not contain . or .."));
        }
        let paths: BTreeSet<&str> = self.files.iter().map(|file| &*file.path).collect();
        if paths.len() != self.files.len() || paths.len() > MOST_FILES {
            return Err(wrong(&format!("it has a file twice, or more than {MOST_FILES}")));
        }
        let mut bytes = 0;
        let mut head = None;
        let mut files = self.files.clone();
        for file in &mut files {
            let content = read(&file.file)?;
            bytes += content.len() as u64;
            file.size = content.len() as u64;
            file.digest = format!("sha256:{}", hex::encode(Sha256::digest(&content)));
            if file.path == FIRST {
                head = Some(frontmatter(&content).map_err(|what| wrong(&what))?);
            }
        }
        if bytes > MOST_BYTES {
            return Err(wrong(&format!("its files have more than {MOST_BYTES} bytes")));
        }
        let head = head.ok_or_else(|| wrong("it has no SKILL.md"))?;
        let name = head.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_named = self.path.rsplit('/').next() == Some(name);
        let is_described = head.get("description").is_some_and(Value::is_string);
        if !is_named || !is_described {
            return Err(wrong(
                "SKILL.md must have a description, and its directory's name as `name`",
            ));
        }
        self.files = files;
        self.frontmatter = head;
        Ok(self)
    }

    pub fn uri(&self) -> String {
        self.uri_of(FIRST)
    }

    fn uri_of(&self, file: &str) -> String {
        format!("skill://{}/{file}", self.path)
    }

    /// Its entry in `skills/list` and `skills/get`.
    pub fn entry(&self) -> Value {
        let one = |file: &SkillFile| {
            let SkillFile { path, digest, size, .. } = file;
            json!({ "uri": self.uri_of(path), "digest": digest, "size": size })
        };
        let resources: Vec<_> = self.files.iter().map(one).collect();
        json!({ "uri": self.uri(), "frontmatter": self.frontmatter, "resources": resources })
    }

    /// Its name and description.
    pub fn words(&self) -> (&str, &str) {
        let text = |key| self.frontmatter.get(key).and_then(Value::as_str).unwrap_or_default();
        (text("name"), text("description"))
    }

    /// The files with their addresses and types.
    pub fn resources(&self) -> impl Iterator<Item = (String, &'static str, &SkillFile)> {
        self.files.iter().map(|file| (self.uri_of(&file.path), mime(&file.path), file))
    }
}

fn is_path(path: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    path.len() <= LONGEST_PATH && path.split('/').all(is_part)
}

fn mime(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "md" => "text/markdown",
        "json" => "application/json",
        "js" | "mjs" => "text/javascript",
        "html" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "txt" | "py" | "sh" | "ts" | "toml" | "yaml" | "yml" => "text/plain",
        _ => "application/octet-stream",
    }
}

/// The YAML between the first two lines of dashes.
fn frontmatter(content: &[u8]) -> std::result::Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(content).map_err(|_| "SKILL.md is not UTF-8".to_owned())?;
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let head = text.strip_prefix("---\n").and_then(|rest| {
        let end = rest.find("\n---\n").or_else(|| rest.strip_suffix("\n---").map(str::len))?;
        Some(&rest[..end])
    });
    let head = head.filter(|head| head.len() <= LONGEST_HEAD);
    let head = head.ok_or("SKILL.md does not begin with YAML front matter between `---` lines")?;
    let parsed: std::result::Result<Value, _> = serde_saphyr::from_str(head);
    match parsed {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err("the YAML of SKILL.md is no mapping".into()),
        Err(error) => Err(format!("the YAML of SKILL.md: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(path: &str, text: &str) -> Result<V8Skill> {
        let file = |path: &str| SkillFile {
            path: path.into(),
            file: path.into(),
            digest: String::new(),
            size: 0,
        };
        let files = vec![file(FIRST), file("scripts/a.js")];
        let own = V8Skill { path: path.into(), files, frontmatter: Map::new() };
        own.checked(|name| match name {
            FIRST => Ok(text.as_bytes().to_vec()),
            _ => Ok(b"abc".to_vec()),
        })
    }

    #[test]
    fn entries_have_the_frontmatter_and_digests() {
        let text = "---\nname: refunds\ndescription: Pays back\nmetadata: {v: 2}\n---\nDo it.\n";
        let own = skill("acme/refunds", text).expect("a skill");
        let entry = own.entry();
        assert_eq!(entry["uri"], "skill://acme/refunds/SKILL.md");
        assert_eq!(entry["frontmatter"]["metadata"]["v"], 2);
        assert_eq!(
            entry["resources"][1],
            json!({ "uri": "skill://acme/refunds/scripts/a.js", "size": 3, "digest":
                "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" })
        );
        assert_eq!(own.words(), ("refunds", "Pays back"));
    }

    #[test]
    fn what_is_no_skill() {
        let good = "---\nname: a\ndescription: b\n---\n";
        assert!(skill("a", good).is_ok());
        for (path, text) in [
            ("b", good),
            ("../a", good),
            ("a", "# a"),
            ("a", "---\nname: a\n---\n"),
            ("a", "---\n- a\n---\n"),
            ("a", "---\nname: [\n---\n"),
        ] {
            assert_eq!(skill(path, text).expect_err(text).status, 400, "{path} {text}");
        }
    }
}
