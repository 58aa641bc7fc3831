//! `--mcp-server` and `--mcp-config`: upstream MCP servers.
//!
//!   flags ─► read and filled in here, with this process's variables ─► the setup ─► the daemon
//!
//! A command gets this process's search path and working directory, as mcp-v8's commands do. A
//! server whose use a person has to allow is allowed here, where the person is.

use super::equipment::read as read_file;
use super::flags::GivenFlags;
use crate::client::Client;
use crate::failure::{CliFailure, Result};
use stasis_machine::{ServerTransport, ToolServer};
use std::path::Path;

const LARGEST: u64 = 1 << 20;

pub fn read(given: &GivenFlags) -> Result<Vec<ToolServer>> {
    let mut all = configured(given)?;
    for word in given.each("mcp-server") {
        let one = ToolServer::short(word).map_err(|fault| wrong("mcp-server", &fault))?;
        all.retain(|own| own.name != one.name);
        all.push(one);
    }
    ToolServer::check_names(&all).map_err(|fault| wrong("mcp-server", &fault))?;
    all.iter_mut().for_each(at_home);
    Ok(all)
}

/// Has a person allow the servers that need it, before the daemon connects to them.
pub fn log_in(servers: &[ToolServer], client: &Client) -> Result<()> {
    for server in servers {
        let needed = server.needs_login().map_err(|said| wrong("mcp-config", &said))?;
        if needed {
            client.block(crate::commands::tools::login(server))?;
        }
    }
    Ok(())
}

fn wrong(flag: &str, fault: &dyn std::fmt::Display) -> CliFailure {
    CliFailure::usage(format!("--{flag}: {fault}")).hint("docs/guides/tools.md has the form")
}

/// `--mcp-config`: JSON on the line, or a file with it.
fn configured(given: &GivenFlags) -> Result<Vec<ToolServer>> {
    const FLAG: &str = "mcp-config";
    let Some(value) = given.text(FLAG) else { return Ok(Vec::new()) };
    let text = match value.trim_start().starts_with(['[', '{']) {
        true => value.to_owned(),
        false => String::from_utf8(read_file(Path::new(value), LARGEST, FLAG)?)
            .map_err(|_| wrong(FLAG, &"the file is not UTF-8"))?,
    };
    let variable = |name: &str| std::env::var(name).ok();
    ToolServer::read(&text, variable).map_err(|fault| wrong(FLAG, &fault))
}

/// Gives a command the surroundings of this process.
fn at_home(server: &mut ToolServer) {
    let ServerTransport::Stdio { env, cwd, .. } = &mut server.transport else { return };
    if let Ok(path) = std::env::var("PATH") {
        env.entry("PATH".to_owned()).or_insert(path);
    }
    if let Ok(here) = std::env::current_dir() {
        let named = cwd.take().unwrap_or_default();
        *cwd = Some(here.join(named));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(words: &[&str]) -> Result<Vec<ToolServer>> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&GivenFlags::read(&words, |_| None)?)
    }

    #[test]
    fn flags_and_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("servers.json");
        let text = r#"[{"name": "a", "transport": "http", "url": "http://127.0.0.1:9/mcp"},
                       {"name": "b", "command": "x", "env": {"K": "v"}, "cwd": "/srv"}]"#;
        std::fs::write(&file, text).expect("written");
        let config = format!("--mcp-config={}", file.display());
        let all =
            servers(&[&config, "--mcp-server=b=stdio:y:z", "--mcp-server", "c=sse:http://h/"]);
        let all = all.expect("servers");
        let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let ServerTransport::Stdio { command, args, env, cwd } = &all[1].transport else {
            panic!()
        };
        assert_eq!((command.as_str(), args.len()), ("y", 1), "the flag wins");
        assert!(env.contains_key("PATH") && cwd.is_some());
        assert_eq!(servers(&[&format!("--mcp-config={text}")]).expect("servers").len(), 2);
        let toml = dir.path().join("c.toml");
        let text = "[[mcp_servers]]\nname = 'd'\ncommand = 'x'\n";
        std::fs::write(&toml, text).expect("written");
        let all = servers(&[&format!("--config={}", toml.display())]).expect("servers");
        assert_eq!(all[0].name, "d");
        for odd in ["--mcp-server=a", "--mcp-server=a=ftp:x", "--mcp-config={", "--mcp-config=/no"]
        {
            assert!(servers(&[odd]).is_err(), "{odd}");
        }
    }
}
