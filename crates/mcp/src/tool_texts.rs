//! The operator's texts: instructions and descriptions of tools that replace ours, from a file.
//!
//!   [stasis]
//!   instructions = "Always name machines after the ticket."
//!
//!   [stasis.tools.run_code]
//!   description = "Runs Python on our data platform."
//!
//! A file that names an unknown set or tool is refused, because it would have no effect.

use crate::error::{Error, Result};
use crate::sets::ToolSet;
use rmcp::model::Tool;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum bytes of the file.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct ToolTexts(BTreeMap<String, OfSet>);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OfSet {
    instructions: Option<String>,
    tools: BTreeMap<String, OfTool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OfTool {
    title: Option<String>,
    description: Option<String>,
}

impl ToolTexts {
    /// Reads the texts of a file; none, if it does not exist.
    pub fn read(path: &Path) -> Result<ToolTexts> {
        let doing = |source| Error::Io { doing: format!("read {}", path.display()), source };
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(ToolTexts::default());
            }
            Err(error) => return Err(doing(error)),
            Ok(file) if file.len() > MAX_FILE => {
                return Err(wrong(path, &format!("it is longer than {MAX_FILE} bytes")));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(doing)?;
        ToolTexts::parse(&text).map_err(|what| wrong(path, &what))
    }

    fn parse(text: &str) -> std::result::Result<ToolTexts, String> {
        let words: ToolTexts = toml::from_str(text).map_err(|error| error.to_string())?;
        for (name, set) in &words.0 {
            let tools = ToolSet::named(name).ok_or_else(|| format!("there is no set `{name}`"))?;
            let unknown = set.tools.keys().find(|tool| tools.find(tool).is_none());
            if let Some(tool) = unknown {
                return Err(format!("there is no tool `{tool}` in `{name}`"));
            }
        }
        Ok(words)
    }

    fn of(&self, tools: ToolSet) -> Option<&OfSet> {
        self.0.get(tools.name())
    }

    pub fn instructions(&self, tools: ToolSet) -> Option<&str> {
        self.of(tools)?.instructions.as_deref()
    }

    /// A tool with these texts.
    pub fn apply(&self, tools: ToolSet, tool: &Tool) -> Tool {
        let mut tool = tool.clone();
        let Some(own) = self.of(tools).and_then(|set| set.tools.get(&*tool.name)) else {
            return tool;
        };
        tool.title = own.title.clone().or(tool.title);
        tool.description = own.description.clone().map(Into::into).or(tool.description);
        tool
    }
}

fn wrong(path: &Path, what: &str) -> Error {
    Error::Invalid(format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_replace_ours() {
        let words = ToolTexts::parse(
            "[stasis]\ninstructions = 'Be kind.'\n[stasis.tools.run_code]\ndescription = 'Runs.'",
        );
        let words = words.expect("words");
        assert_eq!(words.instructions(ToolSet::Stasis), Some("Be kind."));
        assert_eq!(words.instructions(ToolSet::ForeverVm), None);
        let own = &ToolSet::Stasis.find("run_code").expect("a tool").tool;
        let shown = words.apply(ToolSet::Stasis, own);
        assert_eq!((shown.description.as_deref(), &shown.title), (Some("Runs."), &own.title));
    }

    #[test]
    fn the_words_in_the_reference_are_taken() {
        let page = include_str!("../../../docs/reference/mcp.md");
        let sample = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let words = ToolTexts::parse(sample.expect("a sample")).expect("words");
        assert!(words.instructions(ToolSet::Stasis).is_some());
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        for text in ["[other]", "[stasis.tools.nothing]", "[stasis]\ninstruction = 'x'", "x"] {
            assert!(ToolTexts::parse(text).is_err(), "{text}");
        }
        assert!(ToolTexts::read(Path::new("/nowhere/mcp.toml")).is_ok());
    }
}
