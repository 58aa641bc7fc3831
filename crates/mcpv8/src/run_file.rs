//! `file` of `run_js`: the text of a file of the front process's host.
//!
//!   client ─► front: opens the file as its user ─► the path and the text, or why there is none
//!                                               └─► here: may this setup run files? ─► its code
//!
//! The service opens no path. It decides about the path of the file that the front has open, with
//! every link resolved, so the policy sees the file whose text runs. Without a front there is no
//! text, and so no file.

use crate::error::{Error, Result};
use crate::executions::shown;
use crate::settings::McpHeaders;
use crate::{V8, V8RunRequest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stasis_api::Network;
use stasis_policy::decide::{Denial, Identity};

/// The category of policies that decides about files.
pub(crate) const CATEGORY: &str = "run_js_file";
/// The argument of `run_js` in which a front sends a file. Clients cannot set it.
pub const RUN_FILE: &str = "opened";
const DISABLED: &str = "run_js: `file` is disabled; start `stasis mcp-v8` with \
                        --allow-run-js-file or with a run_js_file policy, or send the text as \
                        `code`";
const NO_TEXT: &str = "run_js: `file` is read by `stasis mcp-v8`, which this request did not come \
                       through; send the text as `code`";

/// A file that a front has opened for its client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// Absolute, with every link resolved if the file could be opened.
    pub path: String,
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why there is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl V8RunRequest {
    /// Whether its code is the text of a file.
    fn wants_file(&self) -> Result<bool> {
        let has = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        match (has(&self.code), has(&self.file)) {
            (true, true) => {
                Err(Error::invalid("run_js: provide either `code` or `file`, not both"))
            }
            (_, wanted) => Ok(wanted),
        }
    }
}

impl V8 {
    /// A request with the text of its file as its code.
    pub(crate) fn with_text(
        &self,
        account: &str,
        mut request: V8RunRequest,
    ) -> Result<V8RunRequest> {
        let (opened, setup) = (request.opened.take(), request.setup.as_deref());
        if request.wants_file()? {
            let text = self.code_of_file(account, setup, opened, &request.mcp_headers)?;
            request.code = Some(text);
        }
        Ok(request)
    }

    /// The code of a file, if the setup of its front allows that it runs.
    fn code_of_file(
        &self,
        account: &str,
        setup: Option<&str>,
        file: Option<RunFile>,
        headers: &McpHeaders,
    ) -> Result<String> {
        let disabled = || Error::new(403, DISABLED);
        let setup = setup.ok_or_else(disabled)?;
        let own = self.setup(account, setup)?;
        if !own.runs_files() {
            return Err(disabled());
        }
        let file = file.ok_or_else(|| Error::invalid(NO_TEXT))?;
        if !own.allow_run_js_file {
            self.permit_file(account, setup, &file.path, headers)?;
        }
        file.text.ok_or_else(|| {
            let why = file.error.as_deref().unwrap_or("it was not read");
            Error::invalid(format!("run_js: cannot read {}: {why}", shown(&file.path)))
        })
    }

    fn permit_file(
        &self,
        account: &str,
        setup: &str,
        path: &str,
        headers: &McpHeaders,
    ) -> Result<()> {
        let network = self.network_of(account, setup)?;
        let policy = match &network {
            Some(Network::Policy(name)) => self.host.policy_in_force(name),
            _ => None,
        };
        let Some(v8) = policy.as_ref().and_then(|policy| policy.v8()) else {
            return Err(Error::new(500, "the policies of this setup are not in force"));
        };
        let mut input = json!({ "operation": "read", "path": path });
        if !headers.is_empty() {
            input["mcp_headers"] = json!(headers);
        }
        let who = Identity { account: account.to_owned(), ..Identity::default() };
        v8.gate(CATEGORY, &who, input.clone(), false).map_err(|denial| match denial {
            Denial::Hook(said) => Error::new(403, said),
            _ => Error::new(403, v8.denial(CATEGORY, &input)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_or_a_file() {
        let text = |text: &str| Some(text.to_owned());
        let wants = |code: &str, file: &str| {
            V8RunRequest { code: text(code), file: text(file), ..V8RunRequest::default() }
                .wants_file()
        };
        assert_eq!(wants("1", "/x").expect_err("both").status, 400);
        assert_eq!(
            (wants("", "/x"), wants("1", ""), wants("", "")),
            (Ok(true), Ok(false), Ok(false))
        );
    }
}
