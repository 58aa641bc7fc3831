//! Upstream MCP servers of a setup (`--mcp-server`, `--mcp-config`), and their stub tools.
//!
//!   front ─► servers ─► each connected and listed, as mcp-v8 does at start-up ─► kept, sealed
//!   run   ─► the set is lent to its machine ─► `mcp.callTool(server, tool, arguments)`
//!
//! Servers can be commands, and their settings hold keys. So only the account that runs the service
//! sends some, and the data directory has them sealed. A set is lent again after a restart.

use crate::V8;
use crate::error::{Error, Result};
use crate::executions::shown;
use crate::policy::FIRST;
use crate::run::Run;
use crate::setup::{V8Setup, V8Stub};
use serde_json::{Map, Value, json};
use stasis_machine::{Machine, ToolInfo, ToolServer};

const LONGEST: usize = 1 << 20;

impl V8 {
    /// Checks the servers of a setup, connects to each, and keeps them sealed. Returns the name of
    /// the set.
    pub(crate) fn keep_servers(
        &self,
        account: &str,
        servers: &[ToolServer],
    ) -> Result<Option<String>> {
        if servers.is_empty() {
            return Ok(None);
        }
        if account != FIRST {
            let said = "upstream servers need the account that runs the service; the setting \
                        `tools` of the service gives servers to other accounts";
            return Err(Error::new(403, said));
        }
        ToolServer::check(servers).map_err(|fault| Error::invalid(fault.to_string()))?;
        let text = serde_json::to_string(servers)
            .map_err(|error| Error::new(500, format!("cannot write a setup: {error}")))?;
        if text.len() > LONGEST {
            return Err(Error::invalid("the settings of upstream servers are larger than 1 MiB"));
        }
        let set = self.host.private_name(account, &text)?;
        self.host.lend_tools(&set, servers.to_vec());
        for server in servers {
            let tried = self.host.try_lent_server(&set, &server.name);
            tried.map_err(|said| Error::new(502, said))?;
        }
        let sealed = self.host.seal_text(account, &set, text)?;
        self.write_private(account, &set, sealed.as_bytes())?;
        Ok(Some(set))
    }

    /// The servers of a set, by name. They are lent when this returns.
    fn lend_servers(&self, account: &str, set: &str) -> Result<()> {
        if self.host.lends_tools(set) {
            return Ok(());
        }
        let missing = || {
            let said = "the upstream servers of this setup are gone; restart `stasis mcp-v8`";
            Error::missing(said)
        };
        let sealed = self.read_private(account, set).ok_or_else(missing)?;
        let text = self.host.open_text(account, set, &sealed)?;
        let servers: Vec<ToolServer> = serde_json::from_str(&text).map_err(|_| missing())?;
        self.host.lend_tools(set, servers);
        Ok(())
    }

    /// Has a machine use the servers of a run's setup, or none, and show the headers of the run's
    /// connection to policies.
    pub(crate) fn tools_before(&self, account: &str, run: &Run, machine: &Machine) -> Result<()> {
        let set = run.tools.as_deref();
        set.map_or(Ok(()), |set| self.lend_servers(account, set))?;
        machine.use_tools(set);
        machine.show_headers(&run.mcp_headers);
        Ok(())
    }

    /// All stubs of a setup. Waits for upstream servers.
    pub fn stubs(&self, account: &str, setup: &V8Setup) -> Vec<V8Stub> {
        let mut all = setup.wasm_stubs();
        let Some((prefix, set)) = setup.mcp_stub_prefix.as_ref().zip(setup.private.as_ref()) else {
            return all;
        };
        if let Err(error) = self.lend_servers(account, set) {
            tracing::warn!(%error, "a setup's upstream servers cannot be listed");
            return all;
        }
        for server in &setup.server_names {
            let tools = self.host.lent_tools(set, server);
            all.extend(tools.into_iter().map(|tool| stub(prefix, server, tool)));
        }
        all
    }

    /// The answer of a stub: code that does what was asked for.
    pub fn stub(&self, setup: &V8Setup, name: &str, given: &Map<String, Value>) -> Option<String> {
        let wasm = setup.wasm_stubs().into_iter().find(|stub| stub.name == name);
        if let Some(found) = wasm {
            return Some(found.answer);
        }
        let prefix = setup.mcp_stub_prefix.as_deref().filter(|prefix| !prefix.is_empty())?;
        let (server, tool) = name.strip_prefix(prefix)?.split_once("__")?;
        let known = setup.server_names.iter().any(|own| own == server);
        known.then(|| answer(server, tool, given))
    }
}

fn stub(prefix: &str, server: &str, tool: ToolInfo) -> V8Stub {
    let own = tool.description.unwrap_or_default();
    let call = format!("await mcp.callTool({}, {}, arguments)", json!(server), json!(tool.name));
    V8Stub {
        name: format!("{prefix}{server}__{}", tool.name),
        about: format!("[Stub. Use run_js, and in its code: {call}] {own}"),
        schema: tool.input_schema,
        answer: String::new(),
    }
}

fn answer(server: &str, tool: &str, given: &Map<String, Value>) -> String {
    let arguments = serde_json::to_string(given).unwrap_or_default();
    let (server, tool) = (json!(server), json!(shown(tool)));
    format!(
        "This tool is called from code. Call run_js with, for example:\n\nconst result = await \
         mcp.callTool({server}, {tool}, {arguments});\nconsole.log(JSON.stringify(result.content));"
    )
}
