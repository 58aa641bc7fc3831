//! Tool sets: each agent sees only the tools it needs, under names it knows.

use crate::answer::Answer;
use crate::output::RunOutput;
use crate::table::ToolEntry;
use crate::{fixtures, forevervm, forkd, guide, tools, v8};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, Implementation, ServerCapabilities};
use stasis_mcpv8::V8Mode;

/// The tools of the default set.
const MOST_USED: [&str; 10] = [
    "run_code",
    "run_shell",
    "install_packages",
    "read_file",
    "write_file",
    "list_machines",
    "create_machine",
    "undo",
    "branch_machine",
    "explore",
];

/// The tools a client sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ToolSet {
    /// The tools for most work: others would only use up the agent's context.
    #[default]
    Stasis,
    /// All of our tools.
    All,
    /// The two tools of foreverVM's server.
    ForeverVm,
    /// The eleven tools of forkd's server.
    Forkd,
    /// The tools of mcp-v8's server with sessions and heaps.
    V8,
    /// The tools of mcp-v8's server without state.
    V8Stateless,
    /// The tools of mcp-v8's server with file trees.
    V8Files,
    /// The tools of mcp-v8's server with heaps and file trees: all of them.
    V8HeapAndFiles,
    /// Our tools, and the fixtures of the conformance suite: for tests only.
    Conformance,
}

impl ToolSet {
    /// The sets that clients can name, in a path, a header or a flag.
    pub const PUBLIC: [(&str, ToolSet); 8] = [
        ("stasis", ToolSet::Stasis),
        ("all", ToolSet::All),
        ("forevervm", ToolSet::ForeverVm),
        ("forkd", ToolSet::Forkd),
        ("v8", ToolSet::V8),
        ("v8-stateless", ToolSet::V8Stateless),
        ("v8-fs", ToolSet::V8Files),
        ("v8-heap-fs", ToolSet::V8HeapAndFiles),
    ];

    pub fn named(name: &str) -> Option<ToolSet> {
        ToolSet::PUBLIC.iter().find(|(own, _)| *own == name).map(|(_, tools)| *tools)
    }

    /// The listed tools.
    pub fn entries(self) -> impl Iterator<Item = &'static ToolEntry> {
        self.callable().filter(move |entry| match (self, self.v8_mode()) {
            (ToolSet::Stasis, _) => MOST_USED.contains(&entry.tool.name.as_ref()),
            (_, Some(mode)) => v8::is_shown(&entry.tool.name, mode),
            _ => true,
        })
    }

    /// The callable tools: a client may call more tools than are listed.
    fn callable(self) -> impl Iterator<Item = &'static ToolEntry> {
        let (own, more): (&'static [ToolEntry], &'static [ToolEntry]) = match self {
            ToolSet::Stasis | ToolSet::All => (&tools::TOOLS, &[]),
            ToolSet::ForeverVm => (&forevervm::TOOLS, &[]),
            ToolSet::Forkd => (&forkd::TOOLS, &[]),
            ToolSet::V8 => (&v8::HEAPS, &[]),
            ToolSet::V8Stateless => (&v8::STATELESS, &[]),
            ToolSet::V8Files => (&v8::FILES, &[]),
            ToolSet::V8HeapAndFiles => (&v8::HEAPS_AND_FILES, &[]),
            ToolSet::Conformance => (&tools::TOOLS, &fixtures::TOOLS),
        };
        own.iter().chain(more)
    }

    pub fn find(self, name: &str) -> Option<&'static ToolEntry> {
        self.callable().find(|entry| entry.tool.name == name)
    }

    /// The tool's result for a finished instruction.
    pub fn finish(
        self,
        tool: &str,
        ended: Answer<RunOutput>,
    ) -> std::result::Result<CallToolResult, ErrorData> {
        match self.find(tool).and_then(|entry| entry.finish.as_ref()) {
            Some(finish) => finish(ended),
            None => Ok(ended.into_result()),
        }
    }

    /// The set whose texts an operator can replace.
    pub fn name(self) -> &'static str {
        match self {
            ToolSet::Stasis | ToolSet::All | ToolSet::Conformance => "stasis",
            ToolSet::ForeverVm => "forevervm",
            ToolSet::Forkd => "forkd",
            ToolSet::V8 => "v8",
            ToolSet::V8Stateless => "v8-stateless",
            ToolSet::V8Files => "v8-fs",
            ToolSet::V8HeapAndFiles => "v8-heap-fs",
        }
    }

    /// The tool that runs code: instructions found in a machine's log count as its calls. None, if
    /// nothing of this set can be a task.
    pub fn runner(self) -> Option<&'static str> {
        match self {
            ToolSet::Stasis | ToolSet::All | ToolSet::Conformance => Some("run_code"),
            ToolSet::ForeverVm => Some(crate::forevervm::RUN),
            ToolSet::Forkd
            | ToolSet::V8
            | ToolSet::V8Stateless
            | ToolSet::V8Files
            | ToolSet::V8HeapAndFiles => None,
        }
    }

    pub fn is_test(self) -> bool {
        self == ToolSet::Conformance
    }

    /// Whether it emulates another project's server, which has only tools, and answers a call of an
    /// unknown one with a result.
    pub fn is_foreign(self) -> bool {
        matches!(self, ToolSet::ForeverVm | ToolSet::Forkd)
    }

    /// The state kept between runs, if the tools are mcp-v8's.
    pub fn v8_mode(self) -> Option<V8Mode> {
        match self {
            ToolSet::V8 => Some(V8Mode::Heap),
            ToolSet::V8Stateless => Some(V8Mode::Stateless),
            ToolSet::V8Files => Some(V8Mode::Files),
            ToolSet::V8HeapAndFiles => Some(V8Mode::HeapAndFiles),
            _ => None,
        }
    }

    pub fn instructions(self) -> &'static str {
        if let Some(mode) = self.v8_mode() {
            return stasis_mcpv8::instructions(mode);
        }
        match self {
            ToolSet::Stasis | ToolSet::All | ToolSet::Conformance => guide::INSTRUCTIONS,
            ToolSet::ForeverVm => forevervm::INSTRUCTIONS,
            _ => stasis_forkd::INSTRUCTIONS,
        }
    }

    /// The server name its clients expect.
    pub fn implementation(self) -> Implementation {
        let version = env!("CARGO_PKG_VERSION");
        if self.v8_mode().is_some() {
            return Implementation::new("mcp-v8", version);
        }
        match self {
            ToolSet::Stasis | ToolSet::All | ToolSet::Conformance => {
                Implementation::new("stasis", version).with_title("Stasis")
            }
            ToolSet::ForeverVm => Implementation::new("forevervm", "1.0.0"),
            _ => Implementation::new("forkd", version),
        }
    }

    // logging is only for the suite: the protocol deprecates it
    #[expect(deprecated)]
    pub fn abilities(self) -> ServerCapabilities {
        let all = ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources();
        match self {
            ToolSet::Forkd => all.build(),
            ToolSet::V8 | ToolSet::V8Stateless | ToolSet::V8Files | ToolSet::V8HeapAndFiles => {
                let own = ServerCapabilities::builder().enable_tools().enable_resources();
                own.enable_tasks().build()
            }
            ToolSet::ForeverVm => all.enable_tasks().build(),
            ToolSet::Stasis | ToolSet::All => {
                let all = all.enable_resources_subscribe().enable_resources_list_changed();
                all.enable_completions().enable_tasks().build()
            }
            ToolSet::Conformance => {
                let all = all.enable_resources_subscribe().enable_resources_list_changed();
                let all = all.enable_tool_list_changed().enable_prompts_list_changed();
                all.enable_completions().enable_logging().enable_tasks().build()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JSON has about three and a half characters per token.
    const CHARACTERS_PER_TOKEN: f64 = 3.5;

    #[test]
    fn the_default_set_is_small() {
        let shown: Vec<_> = ToolSet::Stasis.entries().map(|entry| entry.short()).collect();
        assert_eq!(shown.len(), MOST_USED.len());
        let text = serde_json::to_string(&shown).expect("JSON");
        let tokens = text.chars().count() as f64 / CHARACTERS_PER_TOKEN;
        assert!(tokens <= 2500.0, "{tokens} tokens:\n{text}");
    }

    #[test]
    fn what_is_not_shown_can_be_called() {
        assert!(ToolSet::Stasis.entries().all(|entry| entry.tool.name != "roll_back"));
        assert!(ToolSet::Stasis.find("roll_back").is_some());
        assert!(ToolSet::All.entries().count() > ToolSet::Stasis.entries().count());
    }
}
