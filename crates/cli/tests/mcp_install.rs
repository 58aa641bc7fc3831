//! `stasis mcp install` and `uninstall`, in settings as each client writes them.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Client, its file below the home directory, settings as it writes them, and where we belong.
const CLIENTS: [(&str, &str, &str, &str); 9] = [
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        "{\n  \"mcpServers\": {\n    \"other\": {\n      \"command\": \"npx\",\n      \
         \"args\": [\"x\"]\n    }\n  },\n  \"globalShortcut\": \"\"\n}",
        "mcpServers",
    ),
    (
        "claude-code",
        ".claude.json",
        "{\"numStartups\": 3, \"projects\": {\"/x\": {\"mcpServers\": {}}}}",
        "mcpServers",
    ),
    ("cursor", ".cursor/mcp.json", "{\n\t\"mcpServers\": {}\n}\n", "mcpServers"),
    ("windsurf", ".codeium/windsurf/mcp_config.json", "", "mcpServers"),
    (
        "goose",
        ".config/goose/config.yaml",
        "# of goose\nGOOSE_PROVIDER: x\nextensions:\n  developer:\n    bundled: true # theirs\n    \
         enabled: true\n    name: developer\n    type: builtin\nGOOSE_MODE: auto\n",
        "extensions",
    ),
    (
        "vscode",
        ".config/Code/User/mcp.json",
        "{\n  // servers of mine\n  \"servers\": {\n    \"other\": { \"type\": \"http\", \"url\": \
         \"http://x\" },\n  },\n  \"inputs\": []\n}\n",
        "servers",
    ),
    (
        "cline",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "{\"mcpServers\": {\"other\": {\"command\": \"x\", \"disabled\": true}}}",
        "mcpServers",
    ),
    (
        "codex",
        ".codex/config.toml",
        "# of codex\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"npx\" # theirs\n\n[tui]\n\
         notifications = true\n",
        "mcp_servers",
    ),
    (
        "zed",
        ".config/zed/settings.json",
        "// Zed settings\n{\n  \"theme\": \"One Dark\", // dark\n  \"context_servers\": {},\n}\n",
        "context_servers",
    ),
];

struct Home(TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a directory"))
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("make it");
        if !text.is_empty() {
            fs::write(&path, text).expect("write");
        }
        path
    }

    fn stasis(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stasis"));
        command.env_clear().env("HOME", self.0.path()).args(["mcp"]).args(args);
        command.output().expect("stasis runs")
    }

    fn done(&self, args: &[&str]) -> String {
        let output = self.stasis(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// The settings, in any format.
fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("settings");
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Value {
    let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    match kind {
        "toml" => toml::from_str(text).expect("TOML"),
        "yaml" => serde_saphyr::from_str(text).expect("YAML"),
        _ if text.is_empty() => Value::Object(Default::default()),
        _ => jsonc_parser::parse_to_serde_value(text, &Default::default()).expect("JSON"),
    }
}

#[test]
fn every_client_gets_an_entry_and_keeps_its_own() {
    for (client, file, text, section) in CLIENTS {
        let home = Home::new();
        let path = home.file(file, text);
        let shown = home.done(&["install", "--client", client, "--dry-run"]);
        assert_eq!(path.exists(), !text.is_empty(), "{client}: a dry run writes nothing");
        home.done(&["install", "--client", client, "--tools", "forevervm"]);
        let now = read(&path);
        let own = &now[section]["stasis"];
        let command = own["command"].as_str().or(own["cmd"].as_str()).expect("a command");
        assert!(command.ends_with("/stasis"), "{client}: {own}");
        assert_eq!(own["args"], serde_json::json!(["mcp", "--tools", "forevervm"]), "{client}");
        assert!(parse(&path, &shown)[section]["stasis"].is_object(), "{client}: {shown}");
        for kept in text.lines().filter(|line| line.contains("theirs") || line.contains("//")) {
            let written = fs::read_to_string(&path).expect("settings");
            assert!(written.contains(kept), "{client} lost {kept}");
        }
        home.done(&["uninstall", "--client", client]);
        let (mut after, mut before) = (read(&path), parse(&path, text));
        for settings in [&mut after, &mut before] {
            let empty = settings[section].as_object().is_none_or(|own| own.is_empty());
            if empty {
                settings.as_object_mut().expect("settings").remove(section);
            }
        }
        assert_eq!(after, before, "{client}");
        let backup = PathBuf::from(format!("{}.before-stasis-1", path.display()));
        if !text.is_empty() {
            assert_eq!(fs::read_to_string(backup).expect("a backup"), text, "{client}");
        }
    }
}

#[test]
fn options_are_passed_to_the_client_entry() {
    let home = Home::new();
    let place = home.0.path().join("project/.mcp.json");
    let file = place.display().to_string();
    let with = ["install", "--client", "claude-code", "--name", "lab", "--file", &file];
    home.done(&[&with[..], &["--url", "http://box:7717", "--token", "a.b"]].concat());
    let own = &read(&place)["mcpServers"]["lab"];
    assert_eq!(own["args"], serde_json::json!(["mcp", "--url", "http://box:7717"]));
    assert_eq!((&own["env"]["STASIS_TOKEN"], &own["type"]), (&"a.b".into(), &"stdio".into()));
    let printed = home.done(&["install", "--client", "codex", "--print"]);
    assert!(printed.starts_with("[mcp_servers.stasis]\n"), "{printed}");
    assert!(!home.0.path().join(".codex").exists());
}

#[test]
fn a_program_is_notified_of_changes() {
    let home = Home::new();
    let told = |verb: &str| -> Value {
        let said = home.done(&[verb, "--client", "cursor", "--json"]);
        serde_json::from_str(&said).expect("JSON")
    };
    let changed = ["install", "install", "uninstall", "uninstall"].map(|verb| {
        let said = told(verb);
        assert!(said["file"].as_str().expect("a file").ends_with(".cursor/mcp.json"), "{said}");
        said["changed"].as_bool().expect("yes or no")
    });
    assert_eq!(changed, [true, false, true, false]);
}

#[test]
fn settings_that_are_not_understood_are_left_alone() {
    let home = Home::new();
    let path = home.file(".cursor/mcp.json", "{ \"mcpServers\": [ }");
    let refused = home.stasis(&["install", "--client", "cursor"]);
    assert_eq!(refused.status.code(), Some(4));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.starts_with("error[mcp.settings]") && said.contains("--print"), "{said}");
    assert_eq!(fs::read_to_string(&path).expect("settings"), "{ \"mcpServers\": [ }");
    assert_eq!(
        home.stasis(&["install", "--client", "cursor", "--name", "a b"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_link_is_followed() {
    let home = Home::new();
    let real = home.file("dotfiles/mcp.json", "{}");
    let link = home.file(".cursor/mcp.json", "");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    home.done(&["install", "--client", "cursor"]);
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert!(read(&real)["mcpServers"]["stasis"].is_object());
}
