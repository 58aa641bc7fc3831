//! Sets of tools: an agent sees only what it needs, under names it knows.

use crate::answer::Answer;
use crate::output::Ran;
use crate::table::Entry;
use crate::{fixtures, forevervm, forkd, guide, tools};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, Implementation, ServerCapabilities};

/// Which tools a client sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ToolSet {
    /// Ours.
    #[default]
    Stasis,
    /// The two of foreverVM's server.
    ForeverVm,
    /// The eleven of forkd's server.
    Forkd,
    /// Ours, and what the protocol's conformance suite calls: for tests only.
    Conformance,
}

impl ToolSet {
    /// Those clients can name, in a path, a header or a flag.
    pub const PUBLIC: [(&str, ToolSet); 3] =
        [("stasis", ToolSet::Stasis), ("forevervm", ToolSet::ForeverVm), ("forkd", ToolSet::Forkd)];

    pub fn named(name: &str) -> Option<ToolSet> {
        ToolSet::PUBLIC.iter().find(|(own, _)| *own == name).map(|(_, tools)| *tools)
    }

    pub fn entries(self) -> impl Iterator<Item = &'static Entry> {
        let (own, more): (&'static [Entry], &'static [Entry]) = match self {
            ToolSet::Stasis => (&tools::TOOLS, &[]),
            ToolSet::ForeverVm => (&forevervm::TOOLS, &[]),
            ToolSet::Forkd => (&forkd::TOOLS, &[]),
            ToolSet::Conformance => (&tools::TOOLS, &fixtures::TOOLS),
        };
        own.iter().chain(more)
    }

    pub fn find(self, name: &str) -> Option<&'static Entry> {
        self.entries().find(|entry| entry.tool.name == name)
    }

    /// What a tool makes of an instruction that is over.
    pub fn finish(
        self,
        tool: &str,
        ended: Answer<Ran>,
    ) -> std::result::Result<CallToolResult, ErrorData> {
        match self.find(tool).and_then(|entry| entry.finish.as_ref()) {
            Some(finish) => finish(ended),
            None => Ok(ended.into_result()),
        }
    }

    pub fn name(self) -> &'static str {
        let own = ToolSet::PUBLIC.iter().find(|(_, tools)| *tools == self);
        own.map_or("stasis", |(name, _)| name)
    }

    /// The tool that runs code: instructions that are found in a machine's log count as its. None,
    /// if nothing of this set can be a task.
    pub fn runner(self) -> Option<&'static str> {
        match self {
            ToolSet::Stasis | ToolSet::Conformance => Some("run_code"),
            ToolSet::ForeverVm => Some("run-python-in-repl"),
            ToolSet::Forkd => None,
        }
    }

    pub fn is_test(self) -> bool {
        self == ToolSet::Conformance
    }

    /// Whether it stands for somebody else's server, which has tools and nothing else, and answers
    /// to an unknown one with a result.
    pub fn is_foreign(self) -> bool {
        matches!(self, ToolSet::ForeverVm | ToolSet::Forkd)
    }

    pub fn instructions(self) -> &'static str {
        match self {
            ToolSet::Stasis | ToolSet::Conformance => guide::INSTRUCTIONS,
            ToolSet::ForeverVm => guide::FOREVERVM_INSTRUCTIONS,
            ToolSet::Forkd => guide::FORKD_INSTRUCTIONS,
        }
    }

    /// The name its clients know the server by.
    pub fn implementation(self) -> Implementation {
        let version = env!("CARGO_PKG_VERSION");
        match self {
            ToolSet::Stasis | ToolSet::Conformance => {
                Implementation::new("stasis", version).with_title("Stasis")
            }
            ToolSet::ForeverVm => Implementation::new("forevervm", "1.0.0"),
            ToolSet::Forkd => Implementation::new("forkd", version),
        }
    }

    // logging is left to the suite: the protocol gives it up
    #[expect(deprecated)]
    pub fn abilities(self) -> ServerCapabilities {
        let all = ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources();
        match self {
            ToolSet::Forkd => all.build(),
            ToolSet::ForeverVm => all.enable_tasks().build(),
            ToolSet::Stasis => {
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
