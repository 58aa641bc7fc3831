//! A new user's first steps.

use crate::common::World;
use crate::common::kept::Kept;
use crate::common::terminal::Terminal;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::Command;

#[test]
fn an_exception_is_a_failure_everywhere() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let ran = kept.run(&["exec", "work", "1 / 0", "--json"]);
    assert_eq!((ran.code(), &ran.json()["instruction"]["status"]), (1, &json!("failed")));
    let past = kept.run(&["history", "work", "--json"]).json();
    assert_eq!(past["instructions"][0]["status"], "failed");
    let events = ["machine", "watch", "--after", "0", "--kind", "instruction.finished"];
    let told = kept.well(&[&events[..], &["--count", "1"]].concat());
    assert!(told.contains("work@0 failed"), "{told}");
}

#[test]
fn a_timeout_names_the_flag_that_sets_it() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let late = kept.run(&["exec", "work", "while True: pass", "--timeout", "0.2"]);
    assert!(late.stderr().contains("TimeoutError") && late.stderr().contains("--timeout"));
}

#[test]
fn a_script_finds_its_arguments() {
    let kept = Kept::new();
    let code = "import sys\nprint(sys.argv[1:])";
    std::fs::write(kept.world.path("tool.py"), code).expect("a script");
    let args = ["run", "tool.py", "--timeout", "100", "in.csv", "--size=3", "-v", "it's \"é\"\n"];
    assert_eq!(kept.well(&args), "['in.csv', '--size=3', '-v', 'it\\'s \"é\"\\n']\n");
    assert_eq!(kept.well(&["run", "tool.py", "--epochs", "3"]), "['--epochs', '3']\n");
    assert_eq!(kept.well(&["run", "tool.py"]), "[]\n");
    assert_eq!(kept.run(&["ls", "--json"]).json()["machines"], json!([]));
}

#[test]
fn scripts_of_both_languages_run_with_the_same_calls() {
    let kept = Kept::of("javascript");
    let typed = "const words: string[] = process.argv.slice(2)\nconsole.log(words.join())";
    std::fs::write(kept.world.path("tool.ts"), typed).expect("a script");
    assert_eq!(kept.well(&["run", "tool.ts", "in.csv", "--size=3"]), "in.csv,--size=3\n");
    assert_eq!(kept.well(&["run", "tool.ts"]), "\n");
    assert_eq!(kept.well(&["run", "--language", "typescript", "-c", "[1, 2].at(-1)"]), "2\n");
    assert_eq!(kept.well(&["run", "--language", "python", "-c", "[1, 2][-1]"]), "2\n");
    assert_eq!(kept.run(&["ls", "--json"]).json()["machines"], json!([]));
}

#[test]
fn exploring_leaves_one_machine() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    kept.well(&["exec", "work", "x = 0"]);
    let best = ["explore", "work", "-c", "x = 1", "-c", "x = 5", "--score", "x"];
    assert!(kept.well(&best).contains("work continues from the best candidate"));
    let all = kept.run(&["ls", "--json"]).json();
    assert_eq!(all["machines"].as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(kept.well(&["exec", "work", "x"]), "5\n");
}

#[test]
fn a_network_can_be_added_later_and_its_absence_is_reported() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let code = "import urllib.request as u; u.urlopen('http://a.invalid')";
    let said = kept.run(&["exec", "work", code]).stderr();
    assert!(said.contains("this machine has no network: `stasis machine set work"), "{said}");
    let said = kept.run(&["exec", "work", "!pip install no-such-thing"]);
    assert!(said.stderr().contains("this machine has no network"), "{}", said.stderr());
    assert!(!said.stderr().contains("Retrying"), "{}", said.stderr());
    let network = |machine: &str| kept.run(&["machine", "get", machine, "--json"]).json();
    kept.well(&["machine", "set", "work", "--network", "open"]);
    assert_eq!(network("work")["network"], "open");
    kept.well(&["branch", "work", "--name", "twig", "--network", "none"]);
    assert_eq!(network("twig")["network"], "none");
    // counts when it comes into memory
    let devices = "import socket; [name for _, name in socket.if_nameindex()]";
    assert_eq!(kept.well(&["exec", "work", devices]), "['lo']\n");
    kept.well(&["machine", "swap", "work"]);
    assert_eq!(kept.well(&["exec", "work", devices]), "['lo', 'tun0']\n");
}

#[test]
fn the_configuration_says_what_machines_reach() {
    let mut kept = Kept::new();
    kept.world.set("STASIS_NETWORK", "open");
    kept.well(&["machine", "new", "work"]);
    let about = kept.run(&["machine", "get", "work", "--json"]).json();
    assert_eq!(about["network"], "open");
    kept.world.set("STASIS_NETWORK", "some");
    assert!(kept.run(&["config"]).stderr().contains("write `none`, `open` or `policy:NAME`"));
}

#[test]
fn a_policy_is_checked_tested_set_and_explained() {
    let kept = Kept::new();
    let file = kept.world.path("web.toml");
    let text = "[network]\nallow = [\"a.example\"]\n[[test]]\nfetch = \"https://b.example\"\n\
                expect = \"allow\"\n";
    std::fs::write(&file, text).expect("a file");
    let said = kept.well(&["policy", "check", "web.toml"]);
    assert_eq!(said, "ok: 1 network rule, 1 test\n");
    let failed = kept.run(&["policy", "test", "web.toml"]);
    assert_eq!(failed.code(), 1);
    let line = "FAILED test[0] https://b.example: expected allow, got deny: no rule allows it";
    assert!(failed.stdout().starts_with(line), "{}", failed.stdout());
    std::fs::write(&file, "[netwrok]\n").expect("a file");
    let wrong = kept.run(&["policy", "set", "web", "web.toml"]);
    assert_eq!(wrong.code(), 2);
    assert!(wrong.stderr().starts_with("error[policy.invalid]: web.toml: "), "{}", wrong.stderr());
    std::fs::write(&file, text).expect("a file");
    kept.well(&["policy", "set", "web", "web.toml"]);
    let shown = kept.well(&["policy", "show", "web"]);
    assert!(shown.contains("allow = [\"a.example\"]"), "{shown}");
    std::fs::write(&file, shown).expect("what is shown");
    kept.well(&["policy", "set", "web", "web.toml"]);
    assert!(kept.well(&["policy", "ls"]).contains("web"));
    kept.well(&["machine", "new", "work", "--network", "policy:web"]);
    let said = kept.well(&["policy", "explain", "work", "fetch", "https://a.example/?q=a b"]);
    assert_eq!(said, "allow: a rule allows it (policy web, network.allow \"a.example\")\n");
    assert_eq!(kept.run(&["policy", "rm", "web"]).code(), 4);
    kept.well(&["rm", "work"]);
    kept.well(&["policy", "rm", "web"]);
    assert_eq!(kept.run(&["machine", "new", "work", "--network", "policy:web"]).code(), 3);
    assert_eq!(kept.run(&["machine", "new", "work", "--network", "policy:"]).code(), 2);
}

#[test]
fn an_open_address_needs_tls_or_a_word() {
    let world = World::new();
    for args in [&["--listen", "0.0.0.0:0"][..], &["--forkd-listen", "192.0.2.1:8889"]] {
        let said = world.run(&[&["serve", "--data-dir", "data"], args].concat());
        assert_eq!(said.code(), 2, "{}", said.stderr());
        assert!(said.stderr().starts_with("error[service.plain_http]"), "{}", said.stderr());
        assert!(said.stderr().contains("--plain-http"), "{}", said.stderr());
    }
    assert!(!world.path("data").exists(), "nothing was made");
}

#[test]
fn a_certificate_without_trust_is_not_an_absent_service() {
    let world = World::new();
    let (chain, key) = (world.path("chain.pem"), world.path("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&chain)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let mut server = Command::new("openssl");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    server.args(["s_server", "-quiet", "-accept", &port.to_string(), "-cert"]).arg(&chain);
    let mut server = server.arg("-key").arg(&key).spawn().expect("openssl");
    let url = format!("https://localhost:{port}");
    let said = loop {
        let said = world.run(&["--url", &url, "whoami"]);
        if !said.stderr().contains("refused") {
            break said;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    server.kill().and_then(|()| server.wait()).expect("it ends");
    assert_eq!(said.code(), 6, "{}", said.stderr());
    assert!(said.stderr().starts_with("error[service.certificate]"), "{}", said.stderr());
    let gone = world.run(&["--url", "http://127.0.0.1:1", "whoami"]);
    assert!(gone.stderr().starts_with("error[service.unreachable]"), "{}", gone.stderr());
}

#[test]
fn a_shell_completes_names_of_machines() {
    let mut kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    kept.well(&["machine", "new", "other"]);
    std::fs::write(kept.world.path("word.txt"), "a file").expect("a file");
    kept.world.set("STASIS_COMPLETE", "bash");
    kept.world.set("_CLAP_COMPLETE_INDEX", "2");
    kept.world.set("_CLAP_IFS", "\n");
    let at = |words: &[&str]| kept.run(&[&["--", "stasis"], words].concat()).stdout();
    assert_eq!(at(&["repl", "wo"]).trim(), "work");
    let mut all: Vec<String> = at(&["rm", ""]).lines().map(str::to_owned).collect();
    all.retain(|name| !name.starts_with('-'));
    all.sort();
    assert_eq!(all, ["other", "work"]);
    assert_eq!(at(&["run", "wo"]).trim(), "word.txt");
}

#[test]
fn lines_typed_while_something_runs_are_kept_and_exit_leaves() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let mut terminal = Terminal::start(&kept.world, &["repl", "work"]);
    terminal.until(|seen| seen.contains(">>> "));
    // all at once, as a paste comes; and while the first runs
    terminal.type_in("import time; time.sleep(1); print('fir' + 'st')\rprint('sec' + 'ond')\r");
    terminal.until(|seen| seen.contains("sleep"));
    terminal.type_in("print('thi' + 'rd')\r");
    terminal.until(|seen| seen.contains("first"));
    terminal.until(|seen| seen.contains("second"));
    terminal.until(|seen| seen.contains("third"));
    terminal.type_in("exit()\r");
    let (seen, status) = terminal.end();
    assert!(status.success(), "{seen}");
    assert!(seen.contains("machine work is kept"), "{seen}");
    let piped = kept.world.run_with(&["repl", "work"], "import sys\nsys.exit(3)\nprint('no')\n");
    assert!(!piped.stdout().contains("no"), "{}", piped.stdout());
}

#[test]
fn code_that_asks_for_input_is_answered_at_the_terminal() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let mut terminal = Terminal::start(&kept.world, &["repl", "work"]);
    terminal.until(|seen| seen.contains(">>> "));
    terminal.type_in("name = input('your na' + 'me? ')\r");
    terminal.until(|seen| seen.contains("your name? "));
    // no code: an open bracket does not ask for more
    terminal.type_in("Ada (\r");
    terminal.type_in("print('<' + name + '>')\r");
    terminal.until(|seen| seen.contains("<Ada (>"));
    // the code and its answers in one paste
    terminal.type_in("a = input(); b = input()\rone\rtwo\rprint(a + '-' + b)\r");
    terminal.until(|seen| seen.contains("one-two"));
    // Ctrl-D ends the input, Ctrl-C interrupts the code
    terminal.type_in("input('en' + 'd? ')\r");
    terminal.until(|seen| seen.contains("end? "));
    terminal.type_in("\x04");
    terminal.until(|seen| seen.contains("EOFError"));
    terminal.type_in("input('st' + 'op? ')\r");
    terminal.until(|seen| seen.contains("stop? "));
    terminal.type_in("\x03");
    terminal.until(|seen| seen.contains("KeyboardInterrupt"));
    terminal.type_in("print('we' + 'll')\r");
    terminal.until(|seen| seen.contains("well"));
    terminal.type_in("exit()\r");
    let (seen, status) = terminal.end();
    assert!(status.success(), "{seen}");
    let piped = kept.world.run_with(&["repl", "work"], "input()\n");
    assert!(piped.stderr().contains("no standard input"), "{}", piped.stderr());
}

#[test]
fn files_go_through_streams_and_links_stay_links() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let said = kept.world.run_with(&["cp", "-", "work:a.txt"], "from a stream\n");
    assert_eq!(said.code(), 0, "{}", said.stderr());
    assert_eq!(kept.well(&["cp", "work:a.txt", "-"]), "from a stream\n");
    assert_eq!(kept.run(&["cp", "-", "work:"]).code(), 2);
    let dir = kept.world.path("tree");
    std::fs::create_dir_all(dir.join("sub")).expect("a directory");
    std::fs::write(dir.join("sub/file"), "x").expect("a file");
    for (target, name) in [("sub/file", "good"), ("/nowhere", "dangling")] {
        std::os::unix::fs::symlink(target, dir.join(name)).expect("a link");
    }
    kept.well(&["cp", "-r", "tree", "work:"]);
    let code = "import os; [os.readlink('tree/' + name) for name in ('good', 'dangling')]";
    assert_eq!(kept.well(&["exec", "work", code]), "['sub/file', '/nowhere']\n");
    kept.well(&["cp", "-r", "work:tree", "back"]);
    let read = |name: &str| std::fs::read_link(kept.world.path("back").join(name)).expect("a link");
    assert_eq!(read("good").to_str(), Some("sub/file"));
    assert_eq!(read("dangling").to_str(), Some("/nowhere"));
    // a link here is no way out of the copy
    std::fs::remove_dir_all(kept.world.path("back/sub")).expect("removed");
    std::os::unix::fs::symlink("/tmp", kept.world.path("back/sub")).expect("a link");
    let said = kept.run(&["cp", "-r", "work:tree/.", "back"]);
    assert!(said.stderr().contains("is a link"), "{}", said.stderr());
    // relative paths are below the home, in the past too
    kept.well(&["exec", "work", "1", "--durability", "local"]);
    assert_eq!(kept.well(&["peek", "work", "a.txt"]), "from a stream\n");
}

#[test]
fn a_recipe_needs_little_and_its_mistakes_are_readable() {
    let world = World::new();
    let sample = world.run(&["template", "sample"]);
    assert!(sample.stdout().contains("name = "), "{}", sample.stdout());
    let refused = |text: &str| {
        std::fs::write(world.path("recipe.toml"), text).expect("a recipe");
        let said = world.run(&["template", "build", "recipe.toml", "--json"]);
        assert_eq!(said.code(), 2, "{text}: {}", said.stdout());
        let error: Value = said.json();
        error["error"]["message"].as_str().expect("a message").to_owned()
    };
    let said = refused("packages = ['six']");
    assert_eq!(said, "recipe: name: every recipe has one");
    let said = refused("name = 'mine'\npackage = ['six']");
    assert!(said.starts_with("recipe: line 2: package: there is no such key; is it `packages`?"));
    let said = refused("name = 'mine'\nbase = 'debian'");
    assert!(said.starts_with("recipe: line 2: base: ") && said.contains("suite"), "{said}");
}
