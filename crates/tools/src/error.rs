//! Why a tool could not be called.

/// A failure of a server, not of a tool: a tool's own errors are part of its result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolFault {
    #[error("there is no tool server `{0}`; the operator adds servers with the setting `tools`")]
    NoServer(String),
    #[error("cannot connect to tool server `{server}`: {why}")]
    Unreachable { server: String, why: String },
    #[error("tool server `{server}` refused `{tool}`: {why}")]
    Refused { server: String, tool: String, why: String },
    #[error(
        "`{tool}` of tool server `{server}` did not answer within {seconds} s; it may have taken \
         effect"
    )]
    TimedOut { server: String, tool: String, seconds: u64 },
    #[error(
        "the connection to tool server `{server}` ended while `{tool}` was under way; it may have \
         taken effect: {why}"
    )]
    Broken { server: String, tool: String, why: String },
    #[error("`{tool}` of tool server `{server}` returned {what}")]
    TooLarge { server: String, tool: String, what: String },
    #[error("{0} calls of tool server `{1}` are under way; try again later")]
    Busy(usize, String),
}

impl ToolFault {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            ToolFault::NoServer(_) => "tool.no_server",
            ToolFault::Unreachable { .. } => "tool.unreachable",
            ToolFault::Refused { .. } => "tool.refused",
            ToolFault::TimedOut { .. } => "tool.timed_out",
            ToolFault::Broken { .. } => "tool.broken",
            ToolFault::TooLarge { .. } => "tool.too_large",
            ToolFault::Busy(..) => "tool.busy",
        }
    }
}
