//! mcp-v8's categories: their packages, the paths of remote servers, and how far hooks go.

use super::input::parsed;
use serde_json::Value;

/// The rights of a category's hooks beside denying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookReach {
    /// See and change the output, or do without the operation.
    Full,
    /// Change the input.
    Rewrites,
    /// Nothing.
    Gates,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Category {
    pub name: &'static str,
    /// Of a remote server.
    pub path: &'static str,
    /// Of local Rego.
    pub package: &'static str,
    pub reach: HookReach,
}

const fn category(
    name: &'static str,
    path: &'static str,
    package: &'static str,
    reach: HookReach,
) -> Category {
    Category { name, path, package, reach }
}

pub(super) const CATEGORIES: [Category; 9] = [
    category("fetch", "mcp/fetch", "data.mcp.fetch", HookReach::Full),
    category("websocket", "mcp/websocket", "data.mcp.websocket", HookReach::Gates),
    category("http2", "mcp/http2", "data.mcp.http2", HookReach::Gates),
    category("filesystem", "mcp/filesystem", "data.mcp.filesystem", HookReach::Rewrites),
    category("fs_snapshot", "mcp/fs_snapshot", "data.mcp.fs_snapshot", HookReach::Gates),
    category("subprocess", "mcp/subprocess", "data.mcp.subprocess", HookReach::Full),
    category("modules", "mcp/modules", "data.mcp.modules", HookReach::Gates),
    category("mcp_tools", "mcp/tools", "data.mcp.tools", HookReach::Full),
    category("run_js_file", "mcp/run_js_file", "data.mcp.run_js_file", HookReach::Gates),
];

impl Category {
    pub fn named(name: &str) -> Option<&'static Category> {
        CATEGORIES.iter().find(|known| known.name == name)
    }

    /// An input as hooks and policies see it: the operation is the one that was asked for, and
    /// derived fields follow the others.
    pub fn normal(&self, asked: &Value, mut input: Value) -> Result<Value, String> {
        if !input.is_object() {
            return Err("a hook makes the input something else than an object".into());
        }
        if input.get("operation") != asked.get("operation") {
            return Err("a hook changes `operation`, which no hook may".into());
        }
        if self.reach == HookReach::Gates && input != *asked {
            return Err(format!("a hook changes the input; hooks of {} only gate", self.name));
        }
        if self.name == "fetch" {
            let url = input["url"].as_str().unwrap_or_default();
            let parts = parsed(url, true);
            if parts.is_null() {
                return Err("a hook makes `url` something else than a URL".into());
            }
            input["url_parsed"] = parts;
        }
        Ok(input)
    }

    /// The message to code when a policy denies.
    pub fn denial(&self, input: &Value) -> String {
        let text = |name: &str| {
            let found = input[name].as_str().unwrap_or_default();
            found.chars().take(500).collect::<String>()
        };
        match self.name {
            "fetch" => {
                format!("fetch denied by policy: {} {} is not allowed", text("method"), text("url"))
            }
            "filesystem" => {
                let (operation, path) = (text("operation"), text("path"));
                format!("fs.{operation} denied by policy: {path} is not allowed")
            }
            "subprocess" => {
                let (operation, command) = (text("operation"), text("command"));
                format!("subprocess.{operation} denied by policy: '{command}' is not allowed")
            }
            "modules" => {
                let url = text("resolved_url");
                format!(
                    "Module import denied by policy: '{url}' is not allowed by the module policy"
                )
            }
            "mcp_tools" => {
                let (server, tool) = (text("server"), text("tool"));
                format!("mcp.callTool denied by policy: {server}.{tool} is not allowed")
            }
            "fs_snapshot" => {
                let (op, label) = (text("op"), text("label"));
                format!("fs_{op} denied by policy: {label} is not allowed")
            }
            "run_js_file" => {
                format!("run_js denied by policy: {} is not allowed", text("path"))
            }
            other => format!("{other} denied by policy: {} is not allowed", text("url")),
        }
    }
}
