//! Display of long work and changes: bars on a terminal, and `--watch`.

use crate::common::fake::{Answer, Fake, Gate, held, ok};
use crate::common::terminal::Terminal;
use crate::common::{World, snapshot};
use serde_json::{Value, json};
use stasis_sys::{libc, process};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;

/// Made in the far future, so that it has the same age for long.
fn machine(name: &str) -> Value {
    json!({
        "name": name, "state": "ready", "created_at": "3020-01-01T00:00:00Z", "expires_at": null,
        "tags": {"team": "red"}, "template": "python", "limits": {}, "durability": "memory",
        "network": "none", "running": true, "has_pending_instruction": false,
        "has_pending_instructions": false, "instructions": 1, "checkpoint": format!("{name}@0"),
        "pinned": null, "parent": null,
    })
}

fn file() -> Value {
    json!({"path": "/home/user/big.bin", "kind": "file", "size": 3_000_000, "mode": "0644",
        "modified_at": "2020-01-01T00:00:00Z"})
}

/// Commands that move bytes, with services of which each keeps something back.
fn transfers(gate: &Gate) -> Vec<(Vec<&'static str>, Fake, &'static str)> {
    let made = json!({"machine_name": "work", "machine": machine("work")});
    let fake = |line: &str, answer: Answer| {
        let missing = json!({"code": "file.not_found", "message": "it is not there"});
        Fake::new(&[
            (line, vec![answer]),
            ("GET /v1/machine/work/file/stat?path=big.bin", vec![ok(file())]),
            (
                "GET /v1/machine/work/file/stat?path=new.bin",
                vec![crate::common::fake::refuse(404, missing)],
            ),
        ])
    };
    let bytes = "x".repeat(3_000_000);
    let export = "GET /v1/machine/work/export?history=false&root=true";
    let (out, into) = (
        "GET /v1/machine/work/file?path=big.bin",
        "PUT /v1/machine/work/file?mode=600&path=new.bin",
    );
    vec![
        (vec!["export", "work", "out.machine"], fake(export, held(&bytes, gate)), "export work ["),
        (
            vec!["import", "in.machine"],
            fake("POST /v1/import", held(made, gate)),
            "import in.machine [",
        ),
        (vec!["cp", "work:big.bin", "copy.bin"], fake(out, held(&bytes, gate)), "cp ["),
        (vec!["cp", "in.machine", "work:new.bin"], fake(into, held(file(), gate)), "cp ["),
    ]
}

fn world(fake: &Fake) -> World {
    use std::os::unix::fs::PermissionsExt;
    let world = World::of(&fake.url);
    let path = world.path("in.machine");
    std::fs::write(&path, vec![7; 3_000_000]).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("a mode");
    world
}

#[test]
fn long_work_shows_progress_on_a_terminal() {
    let all = transfers(&Gate::default()).len();
    for which in 0..all {
        let gate = Gate::default();
        let (args, fake, bar) = transfers(&gate).swap_remove(which);
        let world = world(&fake);
        let mut terminal = Terminal::start(&world, &args);
        // how much, and how fast
        terminal.until(|seen| seen.contains(bar) && seen.contains("MiB") && seen.contains("/s"));
        gate.open();
        let (seen, status) = terminal.end();
        assert!(status.success(), "{args:?}: {seen:?}");
        // the bar is removed, and the final message stands alone
        let last = seen.rsplit("\x1b[2K").next().expect("a line is cleared");
        assert!(!last.contains(bar), "{args:?}: {last:?}");
    }
}

#[test]
fn nothing_is_drawn_where_programs_read() {
    for which in 0..4 {
        let gate = Gate::default();
        gate.open();
        let (args, fake, bar) = transfers(&gate).swap_remove(which);
        let said = world(&fake).run(&args);
        assert_eq!(said.code(), 0, "{args:?}: {}", said.stderr());
        let piped = said.stdout() + &said.stderr();
        assert!(!piped.contains(bar) && !piped.contains('\x1b'), "{args:?}: {piped:?}");
        let (mut args, fake, _) = transfers(&gate).swap_remove(which);
        args.push("--json");
        let (seen, status) = Terminal::start(&world(&fake), &args).end();
        assert!(status.success(), "{args:?}: {seen:?}");
        assert!(!seen.contains('\x1b'), "{args:?}: {seen:?}");
    }
}

fn event(id: u64, kind: &str) -> String {
    let event = json!({"id": id, "at": "2020-01-01T10:20:30Z", "kind": kind, "machine": "work"});
    format!("event: {kind}\nid: {id}\ndata: {event}\n\n")
}

/// Before and after something changed; then the stream of events says nothing more.
fn changing(query: &str, gate: &Gate) -> Fake {
    let list = |machines: &[Value]| ok(json!({"machines": machines, "next": null}));
    let point = json!({"seq": 0, "bytes": 5000, "at": "3020-01-01T00:00:00Z", "code": "x = 1",
        "label": "first", "variables": ["x"], "files": null});
    let instruction = json!({"seq": 0, "code": "x = 1", "status": "done",
        "queued_at": "3020-01-01T00:00:00Z", "started_at": "3020-01-01T00:00:00Z",
        "finished_at": "3020-01-01T00:00:00Z", "outputs": 0, "outcome": {"runtime_ms": 1.5},
        "receipt": null});
    let relative = |children: Value| {
        json!({"families": [{"machine": "work", "state": "ready", "seq": null, "removed": false,
            "children": children}]})
    };
    let twig = json!([{"machine": "twig", "state": "ready", "seq": 0, "removed": false,
        "children": []}]);
    // a number, an event, and as much again that never comes
    let told = "id: 6\n\n".to_owned() + &event(7, "machine.created");
    let told = told.clone() + &":".repeat(told.len());
    Fake::new(&[
        ("POST /v1/machine/list", vec![list(&[]), list(&[machine("work")])]),
        ("GET /v1/machine/work", vec![ok(machine("work"))]),
        (
            "GET /v1/machine/work/exec?from=0&limit=50",
            vec![ok(json!({"instructions": []})), ok(json!({"instructions": [instruction]}))],
        ),
        (
            "GET /v1/machine/work/history?files=false",
            vec![ok(json!({"checkpoints": []})), ok(json!({"checkpoints": [point]}))],
        ),
        ("GET /v1/lineage", vec![ok(relative(json!([]))), ok(relative(twig))]),
        ("GET /health", vec![ok(json!({"version": "9.9.9", "templates_ready": true}))]),
        (&format!("GET /v1/events?{query}"), vec![held(told, gate)]),
    ])
}

const WATCHES: [(&[&str], &str, &str); 4] = [
    (&["machine", "list", "--watch"], "", "team=red"),
    (&["history", "work", "--watch"], "machine=work", "x = 1"),
    (&["tree", "--watch"], "kind=machine.", "twig"),
    (&["status", "--watch"], "", "1"),
];

/// Refreshes are separated by an empty line; Ctrl-C ends it as a signal, so that a surrounding loop
/// stops too.
#[test]
fn watch_refreshes_until_ctrl_c() {
    let mut text = String::new();
    for (args, query, _) in WATCHES {
        let gate = Gate::default();
        let fake = changing(query, &gate);
        let mut world = World::of(&fake.url);
        world.set("NO_COLOR", "1");
        let mut child = world.start(args);
        drop(child.stdin.take());
        // two looks, each with an empty line behind it
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut stdout = String::new();
        while stdout.matches("\n\n").count() < 2 {
            let line = lines.next().unwrap_or_else(|| panic!("{args:?} ended: {stdout}"));
            stdout += &(line.expect("text") + "\n");
        }
        process::kill(child.id() as i32, libc::SIGINT).expect("a signal");
        let mut output = child.wait_with_output().expect("it ends");
        stdout.extend(lines.map(|line| line.expect("text") + "\n"));
        output.stdout = stdout.into_bytes();
        text += &(world.said(args, output).whole().replace(&fake.url, "URL") + "\n");
    }
    snapshot("watches.txt", &text);
}

#[test]
fn on_a_terminal_a_look_takes_the_place_of_the_one_before() {
    for (args, query, last) in WATCHES {
        let gate = Gate::default();
        let fake = changing(query, &gate);
        let mut terminal = Terminal::start(&World::of(&fake.url), args);
        let clear = "\x1b[H\x1b[J";
        let second = |seen: &str| seen.split(clear).nth(2).map(str::to_owned);
        terminal.until(|seen| second(seen).is_some_and(|look| look.contains(last)));
        process::kill(terminal.pid(), libc::SIGINT).expect("a signal");
        let (seen, status) = terminal.end();
        assert_eq!(status.signal(), Some(libc::SIGINT), "{args:?}: {status}");
        assert!(seen.starts_with(clear), "{args:?}: {seen:?}");
    }
}
