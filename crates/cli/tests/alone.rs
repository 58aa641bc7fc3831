//! The program's output without a service: help, settings, mistakes, and the host.

mod common;

use common::{World, snapshot};
use serde_json::json;

#[test]
fn help_of_every_command() {
    let world = World::new();
    let commands = [
        "",
        "run",
        "repl",
        "machine",
        "machine new",
        "machine list",
        "machine get",
        "machine set",
        "machine watch",
        "exec",
        "cp",
        "history",
        "undo",
        "rollback",
        "branch",
        "explore",
        "compare",
        "adopt",
        "promote",
        "tree",
        "label",
        "peek",
        "export",
        "import",
        "template",
        "template build",
        "store",
        "token",
        "token new",
        "login",
        "logout",
        "whoami",
        "status",
        "stop",
        "serve",
        "mcp",
        "mcp install",
        "config",
        "completions",
        "doctor",
        "bench",
    ];
    let mut text = String::new();
    for command in commands {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        text.push_str(&world.run(&args).whole());
        text.push('\n');
    }
    snapshot("help.txt", &text);
}

#[test]
fn mistakes_are_reported_before_anything_starts() {
    let mut world = World::new();
    world.set("NO_COLOR", "1");
    std::fs::write(world.path("bad.toml"), "timeout_second = 3\n").unwrap();
    std::fs::write(world.path("recipe.toml"), "name = 'x'\nbase = 'host'\npackges = []\n").unwrap();
    let tries: [&[&str]; 21] = [
        &[],
        &["run"],
        &["run", "-c", "1", "file.py"],
        &["run", "missing.py"],
        &["run", "-c", "1", "--timeout", "soon"],
        &["run", "-c", "1", "--machine", "Not A Name"],
        &["machine", "new", "--tag", "novalue"],
        &["rollback", "work"],
        &["rollback", "work@x"],
        &["branch", "work", "-n", "3", "--name", "only-one"],
        &["label", "work", "name"],
        &["adopt", "work", "other"],
        &["explore", "work", "--score", "x"],
        &["machine", "set", "work", "--keep", "some"],
        &["machine", "list", "--url", "nonsense"],
        &["config", "--config", "bad.toml"],
        &["template", "build", "recipe.toml"],
        &["stop", "--url", "http://127.0.0.1:1"],
        &["--json"],
        &["--json", "run"],
        &["exec", "work", "1", "--never", "--json"],
    ];
    let mut text = String::new();
    for args in tries {
        let said = world.run(args);
        assert_eq!(said.code(), 2, "{args:?}: {}", said.stderr());
        text.push_str(&said.whole());
        text.push('\n');
    }
    snapshot("mistakes.txt", &text);
    assert!(!world.path(".local").exists(), "something was started");
}

#[test]
fn settings_and_where_they_came_from() {
    let mut world = World::new();
    let file = "timeout_seconds = 2.5\ntoken = 'ab.secret'\n[limits]\npids = 9\ncpus = 1.5\n";
    std::fs::create_dir_all(world.path(".config/stasis")).unwrap();
    std::fs::write(world.path(".config/stasis/config.toml"), file).unwrap();
    world.set("STASIS_LINGER_SECONDS", "none");
    let said = world.run(&["config", "--data-dir", "here"]);
    // how wide a column is depends on where the test runs
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
    snapshot("config.txt", &said.whole().lines().map(words).collect::<String>());
    let settings = world.run(&["config", "--json"]).json()["settings"].clone();
    assert_eq!(settings["limits.pids"]["value"], json!(9));
    assert_eq!(settings["limits.pids"]["source"], json!("file"));
    assert_eq!(settings["linger_seconds"]["source"], json!("env"));
    assert_eq!(settings["linger_seconds"]["value"], json!(null));
    assert!(!said.stdout().contains("secret"), "a secret is shown");
}

#[test]
fn the_host_is_examined() {
    let mut world = World::new();
    let said = world.run(&["doctor", "--json"]);
    let answer = said.json();
    let checks = answer["checks"].as_array().expect("a list");
    let names: Vec<&str> = checks.iter().filter_map(|check| check["name"].as_str()).collect();
    for name in ["kernel", "root", "overlayfs", "cgroups", "landlock", "disk space", "uv"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
    for check in checks {
        for key in ["costs", "fix", "found", "grade"] {
            assert!(check[key].is_string(), "{key} of {check}");
        }
    }
    let missing = checks.iter().any(|check| check["grade"] == "missing");
    assert_eq!(answer["usable"], json!(!missing));
    assert_eq!(said.code(), i32::from(missing));
    let text = world.run(&["doctor"]).stdout();
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
    world.set("STASIS_WITHOUT", "pagemap_scan");
    let without = world.run(&["doctor"]).stdout();
    let line = without.lines().find(|line| line.contains("pagemap_scan")).expect("a line");
    assert!(line.starts_with("lacking") && without.contains("captures read the whole page map"));
}

#[test]
fn nothing_is_started_to_ask_or_to_stop() {
    let world = World::new();
    let status = world.run(&["status", "--json"]);
    assert_eq!((status.code(), &status.json()["running"]), (0, &json!(false)));
    let stop = world.run(&["stop", "--json"]);
    assert_eq!((stop.code(), &stop.json()["stopped"]), (0, &json!(false)));
    assert!(!world.path(".local").exists(), "something was started");
}

#[test]
fn a_shell_gets_its_script() {
    let said = World::new().run(&["completions", "bash"]);
    assert_eq!(said.code(), 0);
    assert!(said.stdout().contains("STASIS_COMPLETE=\"bash\""), "{}", said.stdout());
}
