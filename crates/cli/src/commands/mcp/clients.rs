//! The clients we can be installed in: where each keeps its settings, how they are written, and
//! what an entry in them looks like.

use super::edit::Format;
use crate::config::home;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
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

/// What a client is to start.
#[derive(Debug, Clone)]
pub struct Entry {
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

const CLINE: &str =
    "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";

impl Client {
    /// Where its settings are.
    pub fn file(self) -> PathBuf {
        let own = home("HOME", "");
        let config = home("XDG_CONFIG_HOME", ".config");
        match self {
            Client::ClaudeDesktop => config.join("Claude/claude_desktop_config.json"),
            Client::ClaudeCode => own.join(".claude.json"),
            Client::Cursor => own.join(".cursor/mcp.json"),
            Client::Windsurf => own.join(".codeium/windsurf/mcp_config.json"),
            Client::Goose => config.join("goose/config.yaml"),
            Client::Vscode => config.join("Code/User/mcp.json"),
            Client::Cline => config.join(CLINE),
            Client::Codex => home("CODEX_HOME", ".codex").join("config.toml"),
            Client::Zed => config.join("zed/settings.json"),
        }
    }

    pub fn format(self) -> Format {
        match self {
            Client::Goose => Format::Yaml,
            Client::Codex => Format::Toml,
            _ => Format::Json,
        }
    }

    /// The key its servers are below.
    pub fn section(self) -> &'static str {
        match self {
            Client::Goose => "extensions",
            Client::Vscode => "servers",
            Client::Codex => "mcp_servers",
            Client::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    /// A server in the client's words.
    pub fn entry(self, name: &str, entry: &Entry) -> Value {
        let Entry { command, args, env } = entry;
        let plain = json!({ "command": command, "args": args });
        let mut own = match self {
            Client::ClaudeCode | Client::Vscode => with(plain, json!({ "type": "stdio" })),
            Client::Cline => with(plain, json!({ "disabled": false, "autoApprove": [] })),
            Client::Zed => with(plain, json!({ "source": "custom" })),
            Client::Goose => {
                let about = "Machines that run code and keep their state";
                json!({
                    "name": name, "description": about, "type": "stdio", "cmd": command,
                    "args": args, "enabled": true, "timeout": 300,
                })
            }
            _ => plain,
        };
        if !env.is_empty() {
            own[if self == Client::Goose { "envs" } else { "env" }] = json!(env);
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
