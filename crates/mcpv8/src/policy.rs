//! The one place that decides whether a run may do something that mcp-v8 lets a policy decide.
//! Without policies, as here, its defaults hold.

use crate::error::{Error, Result};

/// Actions that a policy decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyQuestion<'a> {
    /// May code be run at all. What it reaches is decided by the machine's own network and limits.
    Run,
    /// May the server read this file of its own and run it.
    RunFile(&'a str),
}

pub fn permit(question: PolicyQuestion<'_>) -> Result<()> {
    match question {
        PolicyQuestion::Run => Ok(()),
        PolicyQuestion::RunFile(_) => Err(Error::new(
            403,
            "run_js: `file` is disabled: the service never reads files of its host, with \
             --allow-run-js-file or a run_js_file policy either; send the text as `code`",
        )),
    }
}
