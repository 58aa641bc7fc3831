//! The program against a service that says what the test wants: results, refusals, broken streams.

use crate::common::fake::{Answer, Fake, cut, ok, refuse};
use crate::common::{World, snapshot};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

fn machine(name: &str, state: &str) -> Value {
    json!({
        "name": name, "state": state, "created_at": "2020-01-01T00:00:00Z", "expires_at": null,
        "tags": {"team": "red"}, "template": "python", "limits": {"memory_mb": 512},
        "durability": "memory", "network": "none", "running": state != "swapped",
        "has_pending_instruction": false, "has_pending_instructions": false, "instructions": 2,
        "checkpoint": format!("{name}@1"), "pinned": null, "parent": null,
    })
}

fn instruction(seq: u64, outcome: Value) -> Value {
    json!({
        "seq": seq, "code": "x", "status": "done", "queued_at": "2020-01-01T00:00:00Z",
        "started_at": "2020-01-01T00:00:00Z", "finished_at": "2020-01-01T00:00:00Z",
        "outputs": 3, "outcome": outcome,
        "receipt": {"address": format!("work@{seq}"), "intact": true, "durable": null},
    })
}

fn output(seq: u64, stream: &str, data: &str) -> String {
    json!({"type": "output", "chunk": {"stream": stream, "data": data, "seq": seq}}).to_string()
        + "\n"
}

fn result() -> String {
    "{\"type\":\"result\",\"instruction_id\":0,\"result\":{}}\n".to_owned()
}

/// A service with the machine `work`, one instruction and its end.
fn with(stream: Vec<Answer>, outcome: Value) -> Fake {
    let accepted = json!({"instruction_seq": 0, "machine": "work", "interrupted": false});
    let from = |n: u64| format!("GET /v1/machine/work/exec/0/stream-result?from={n}");
    Fake::new(&[
        ("GET /v1/machine/work", vec![ok(machine("work", "ready"))]),
        ("POST /v1/machine/work/exec", vec![ok(accepted)]),
        (&from(0), stream.clone()),
        (&from(2), stream[stream.len() - 1..].to_vec()),
        ("GET /v1/machine/work/exec/0/wait", vec![ok(instruction(0, outcome))]),
    ])
}

#[test]
fn output_value_and_image() {
    let stream = output(0, "stdout", "one") + &output(1, "stderr", "two") + &result();
    let outcome = json!({
        "value": "42", "runtime_ms": 1.0,
        "shown": [
            {"after": 1, "data": {"image/png": PNG}},
            {"after": 2, "data": {"text/plain": "fig"}},
        ],
    });
    let fake = with(vec![ok(stream)], outcome);
    let world = World::of(&fake.url);
    let said = world.run(&["exec", "work", "x"]);
    snapshot("exec.txt", &said.whole());
    let image = std::fs::read(world.path("stasis-work-0-0.png")).expect("the image was saved");
    assert!(image.starts_with(b"\x89PNG"));
}

#[test]
fn a_failed_instruction_is_exit_1() {
    let error = json!({"name": "ZeroDivisionError", "message": "division by zero",
        "traceback": "Traceback (most recent call last):\nZeroDivisionError: division by zero\n"});
    let fake = with(vec![ok(result())], json!({"error": error, "runtime_ms": 1.0}));
    let world = World::of(&fake.url);
    snapshot("failed.txt", &world.run(&["run", "--machine", "work", "-c", "1/0"]).whole());
    let said = world.run(&["exec", "work", "1/0", "--json"]);
    assert_eq!(said.code(), 1);
    assert_eq!(said.json()["instruction"]["outcome"]["error"]["name"], "ZeroDivisionError");
}

#[test]
fn a_broken_stream_is_taken_up_where_it_broke() {
    let first = cut(output(0, "stdout", "one") + &output(1, "stdout", "two"));
    // a service that repeats a line is not echoed
    let second = ok(output(1, "stdout", "two") + &output(2, "stdout", "three") + &result());
    let fake = with(vec![first, second], json!({"runtime_ms": 1.0}));
    let said = World::of(&fake.url).run(&["exec", "work", "x"]);
    assert_eq!((said.code(), said.stdout().as_str()), (0, "one\ntwo\nthree\n"));
    let sent = fake.lines().iter().filter(|line| line.ends_with("/exec")).count();
    assert_eq!(sent, 1, "the instruction was sent twice");
}

#[test]
fn a_stream_that_always_breaks_is_given_up() {
    let fake = with(vec![cut(""), cut("")], json!({"runtime_ms": 1.0}));
    let said = World::of(&fake.url).run(&["exec", "work", "x"]);
    assert_eq!(said.code(), 6);
    assert!(said.stderr().starts_with("error[service.cut_off]"), "{}", said.stderr());
}

#[test]
fn a_truncated_export_is_called_one_and_leaves_no_file() {
    let export = "GET /v1/machine/work/export?history=false&root=true";
    let fake = Fake::new(&[(export, vec![cut("machine")])]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("work.machine").display().to_string();
    for target in [file.as_str(), "-"] {
        let said = World::of(&fake.url).run(&["export", "work", target]);
        let start = "error[export.truncated]: the export broke off after 7 bytes";
        assert!(said.stderr().starts_with(start), "{}", said.stderr());
        assert_eq!(said.code(), 6);
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("a list").count(), 0);
}

#[test]
fn refusals_have_exit_codes_by_kind() {
    let body = |code: &str| json!({"code": code, "message": "no", "hint": "try", "id": "1"});
    let kinds =
        [(400, 2), (401, 5), (403, 5), (404, 3), (409, 4), (413, 2), (429, 6), (500, 1), (503, 6)];
    for (status, exit) in kinds {
        let fake = Fake::new(&[("GET /v1/machine/work", vec![refuse(status, body("a.b"))])]);
        let world = World::of(&fake.url);
        let said = world.run(&["machine", "get", "work"]);
        assert_eq!(said.code(), exit, "{status}");
        assert_eq!(said.stderr(), "error[a.b]: no\nhint: try\n");
        assert_eq!(said.stdout(), "");
        let said = world.run(&["machine", "get", "work", "--json"]);
        assert_eq!(said.json()["error"]["code"], "a.b");
    }
}

#[test]
fn answers_of_other_programs_are_rejected() {
    let answers = [ok("<html>"), ok("{}"), refuse(500, "oops"), cut("{\"name\"")];
    for answer in answers {
        let fake = Fake::new(&[("GET /v1/machine/work", vec![answer])]);
        let said = World::of(&fake.url).run(&["machine", "get", "work"]);
        assert!([1, 6].contains(&said.code()), "{}", said.stderr());
        assert!(said.stderr().starts_with("error["), "{}", said.stderr());
    }
    let said = World::of("http://127.0.0.1:1").run(&["machine", "list"]);
    assert_eq!(said.code(), 6);
    assert!(said.stderr().starts_with("error[service.unreachable]"), "{}", said.stderr());
}

#[test]
fn lists_go_over_all_pages() {
    let pages = vec![
        ok(json!({"machines": [machine("new-one", "ready")], "next": "7"})),
        ok(json!({"machines": [machine("old-one", "swapped")], "next": null})),
    ];
    let fake = Fake::new(&[("POST /v1/machine/list", pages)]);
    let said = World::of(&fake.url).run(&["machine", "list", "--tag", "team=red"]);
    assert_eq!(said.code(), 0, "{}", said.stderr());
    let table = said.stdout();
    assert!(table.contains("new-one") && table.contains("old-one"), "{table}");
    let bodies: Vec<Value> =
        fake.asked().iter().map(|(_, body)| serde_json::from_str(body).unwrap()).collect();
    assert_eq!(bodies[0], json!({"tags": {"team": "red"}}));
    assert_eq!(bodies[1]["cursor"], json!("7"));
}

#[test]
fn first_use_builds_the_template_and_a_passing_machine_is_removed() {
    let missing = refuse(404, json!({"code": "template.not_found", "message": "none"}));
    let made = ok(json!({"machine_name": "work", "machine": machine("work", "ready")}));
    let template = json!({"template": {
        "name": "python", "digest": "d", "created_at": "2020-01-01T00:00:00Z", "language": "python",
        "version": "3.12", "recipe": "", "image": "i", "root": "r"}});
    let build = format!(
        "{}\n{}\n{}\n",
        json!({"step": "base", "done": 1, "total": 2}),
        json!({"say": "fetching"}),
        template
    );
    let accepted = json!({"instruction_seq": 0, "machine": "work", "interrupted": false});
    let fake = Fake::new(&[
        ("POST /v1/machine/new", vec![missing, made]),
        ("POST /v1/template/build", vec![ok(build)]),
        ("POST /v1/machine/work/exec", vec![ok(accepted)]),
        ("GET /v1/machine/work/exec/0/stream-result?from=0", vec![ok(result())]),
        (
            "GET /v1/machine/work/exec/0/wait",
            vec![ok(instruction(0, json!({"value": "2", "runtime_ms": 1.0})))],
        ),
        ("DELETE /v1/machine/work", vec![ok(json!({"removed": "work"}))]),
    ]);
    let said = World::of(&fake.url).run(&["run", "-c", "1+1"]);
    snapshot("first_use.txt", &said.whole());
    assert_eq!(fake.lines().last().map(String::as_str), Some("DELETE /v1/machine/work"));
}

#[test]
fn a_build_that_fails_says_why() {
    let error = json!({"error": {"code": "template.python", "message": "no", "hint": "install"}});
    let fake = Fake::new(&[("POST /v1/template/build", vec![ok(format!("{error}\n"))])]);
    let said = World::of(&fake.url).run(&["template", "build"]);
    assert_eq!(said.code(), 1);
    assert!(said.stderr().ends_with("error[template.python]: no\nhint: install\n"));
}

#[test]
fn a_conversation_through_a_pipe() {
    let outcome = json!({"value": "3", "runtime_ms": 1.0});
    let fake = with(vec![ok(result())], outcome);
    let world = World::of(&fake.url);
    let input = ":help\nf(1,\n  2)\ndef g():\n    return 1\n\n:quit\nnever\n";
    snapshot("repl.txt", &world.run_with(&["repl", "work"], input).whole());
    let codes: Vec<String> = fake
        .asked()
        .into_iter()
        .filter(|(line, _)| line.ends_with("/exec"))
        .map(|(_, body)| serde_json::from_str::<Value>(&body).unwrap())
        .map(|body| body["instruction"]["code"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(codes, ["f(1,\n  2)", "def g():\n    return 1"]);
}

fn who(account: &str) -> Answer {
    ok(json!({"account": account, "scopes": ["machines"]}))
}

#[test]
fn a_login_is_kept_and_used_and_forgotten() {
    let fake = Fake::new(&[("GET /v1/whoami", vec![who("ada")])]);
    let world = World::new();
    let mut text = String::new();
    let mut told =
        |said: crate::common::Said| text.push_str(&said.whole().replace(&fake.url, "URL"));
    told(world.run_with(&["login", &fake.url], "ab.secret\n"));
    let file = world.path(".config/stasis/login.toml");
    let mode = std::fs::metadata(&file).expect("it is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    told(world.run(&["whoami"]));
    let settings = world.run(&["config", "--json"]).json()["settings"].clone();
    assert_eq!(settings["url"]["source"], "login");
    assert!(!settings.to_string().contains("secret"));
    told(world.run(&["logout"]));
    assert!(!file.exists());
    told(world.run(&["logout"]));
    told(world.run_with(&["login", &fake.url], "\n"));
    snapshot("login.txt", &text);
    let tokens: Vec<String> = fake.headers("authorization");
    assert_eq!(tokens, ["Bearer ab.secret", "Bearer ab.secret"]);
}

#[test]
fn a_token_that_is_not_taken_is_not_kept() {
    let body = json!({"code": "token.unknown", "message": "no", "hint": "try"});
    let fake = Fake::new(&[("GET /v1/whoami", vec![refuse(401, body)])]);
    let world = World::new();
    let said = world.run_with(&["login", &fake.url], "ab.secret\n");
    assert_eq!((said.code(), said.stderr().as_str()), (5, "error[token.unknown]: no\nhint: try\n"));
    assert!(!world.path(".config/stasis/login.toml").exists());
}

#[test]
fn a_login_that_others_can_read_is_refused() {
    let world = World::new();
    let file = world.path(".config/stasis/login.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "url = 'http://127.0.0.1:1'\ntoken = 'a.b'\n").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let said = world.run(&["machine", "list"]);
    assert_eq!(said.code(), 1, "{}", said.stderr());
    assert!(said.stderr().starts_with("error[login.unusable]"), "{}", said.stderr());
    assert_eq!(world.run(&["logout"]).code(), 0);
    assert!(!file.exists());
}

fn event(id: u64, kind: &str, seq: u64) -> String {
    let event = json!({"id": id, "at": "2020-01-01T10:20:30Z", "kind": kind, "machine": "work",
        "seq": seq, "status": "done"});
    format!("event: {kind}\nid: {id}\ndata: {event}\n\n")
}

#[test]
fn changes_are_reported_over_broken_connections() {
    let first = cut("id: 6\n\n".to_owned() + &event(7, "instruction.started", 0) + "id: 8\nev");
    let second = ok(":\n\n".to_owned() + &event(8, "instruction.finished", 0));
    let fake = Fake::new(&[
        ("GET /v1/events?machine=work", vec![first]),
        ("GET /v1/events?machine=work&after=7", vec![second]),
    ]);
    let said = World::of(&fake.url).run(&["machine", "watch", "work", "--count", "2"]);
    snapshot("watch.txt", &said.whole());
    let said = World::of(&fake.url)
        .run(&["machine", "watch", "work", "--after", "7", "--count", "1", "--json"]);
    assert_eq!(said.json()["id"], 8);
}

#[test]
fn a_list_is_shown_again_when_something_changes() {
    let pages = vec![
        ok(json!({"machines": [], "next": null})),
        ok(json!({"machines": [machine("new-one", "ready")], "next": null})),
    ];
    let gone = refuse(503, json!({"code": "service.stopping", "message": "it ends"}));
    let fake = Fake::new(&[
        ("POST /v1/machine/list", pages),
        ("GET /v1/events?", vec![cut("id: 6\n\n".to_owned() + &event(7, "machine.created", 0))]),
        ("GET /v1/events?after=7", vec![gone]),
    ]);
    let said = World::of(&fake.url).run(&["machine", "list", "--watch"]);
    assert_eq!(said.code(), 6, "{}", said.stderr());
    let looks: Vec<bool> =
        said.stdout().split("NAME").skip(1).map(|look| look.contains("new-one")).collect();
    assert_eq!(looks, [false, true], "{}", said.stdout());
}

#[test]
fn images_are_drawn_where_a_terminal_can() {
    let outcome = json!({"runtime_ms": 1.0, "shown": [{"after": 0, "data": {"image/png": PNG}}]});
    let ways =
        [("kitty", "\x1b_Ga=T,f=100,"), ("iterm", "\x1b]1337;File="), ("sixel", "\x1bPq\"1;1;1;1")];
    for (way, start) in ways {
        let fake = with(vec![ok(result())], outcome.clone());
        let mut world = World::of(&fake.url);
        world.set("STASIS_IMAGES", way);
        let said = world.run(&["exec", "work", "x"]);
        assert!(said.stdout().starts_with(start), "{way}: {:?}", said.stdout());
        assert!(!world.path("stasis-work-0-0.png").exists());
    }
}
