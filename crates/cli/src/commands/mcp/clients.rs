//! The supported MCP clients: path and format of their settings, and the entry for Stasis.

use super::edit::Format;
use crate::config::home;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum McpClient {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Windsurf,
    Goose,
    Vscode,
    Cline,
    Codex,
    Zed,
}

/// The command a client starts.
#[derive(Debug, Clone)]
pub struct ServerEntry {
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

const CLINE: &str =
    "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";

impl McpClient {
    /// The path of its settings.
    pub fn file(self) -> PathBuf {
        let own = home("HOME", "");
        let config = home("XDG_CONFIG_HOME", ".config");
        match self {
            McpClient::ClaudeDesktop => config.join("Claude/claude_desktop_config.json"),
            McpClient::ClaudeCode => own.join(".claude.json"),
            McpClient::Cursor => own.join(".cursor/mcp.json"),
            McpClient::Windsurf => own.join(".codeium/windsurf/mcp_config.json"),
            McpClient::Goose => config.join("goose/config.yaml"),
            McpClient::Vscode => config.join("Code/User/mcp.json"),
            McpClient::Cline => config.join(CLINE),
            McpClient::Codex => home("CODEX_HOME", ".codex").join("config.toml"),
            McpClient::Zed => config.join("zed/settings.json"),
        }
    }

    pub fn format(self) -> Format {
        match self {
            McpClient::Goose => Format::Yaml,
            McpClient::Codex => Format::Toml,
            _ => Format::Json,
        }
    }

    /// The key that contains its servers.
    pub fn section(self) -> &'static str {
        match self {
            McpClient::Goose => "extensions",
            McpClient::Vscode => "servers",
            McpClient::Codex => "mcp_servers",
            McpClient::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    /// A server entry in the client's format.
    pub fn entry(self, name: &str, entry: &ServerEntry) -> Value {
        let ServerEntry { command, args, env } = entry;
        let plain = json!({ "command": command, "args": args });
        let mut own = match self {
            McpClient::ClaudeCode | McpClient::Vscode => with(plain, json!({ "type": "stdio" })),
            McpClient::Cline => with(plain, json!({ "disabled": false, "autoApprove": [] })),
            McpClient::Zed => with(plain, json!({ "source": "custom" })),
            McpClient::Goose => {
                let about = "Machines that run code and keep their state";
                json!({
                    "name": name, "description": about, "type": "stdio", "cmd": command,
                    "args": args, "enabled": true, "timeout": 300,
                })
            }
            _ => plain,
        };
        if !env.is_empty() {
            own[if self == McpClient::Goose { "envs" } else { "env" }] = json!(env);
        }
        own
    }
}

fn with(mut entry: Value, more: Value) -> Value {
    if let (Some(entry), Some(more)) = (entry.as_object_mut(), more.as_object()) {
        entry.extend(more.clone());
    }
    entry
}
