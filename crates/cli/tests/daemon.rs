//! The program with a real daemon and real machines.

use crate::common::kept::Kept;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn run_streams_and_removes_its_machine() {
    let kept = Kept::new();
    let code = "import sys; print('out'); print('err', file=sys.stderr); 6 * 7";
    let said = kept.run(&["run", "-c", code]);
    assert_eq!((said.code(), said.stdout().as_str()), (0, "out\n42\n"), "{}", said.stderr());
    assert_eq!(said.stderr(), "err\n");
    let list: Value = kept.run(&["machine", "list", "--json"]).json();
    assert_eq!(list["machines"], Value::Array(vec![]));
    let said = kept.world.run_with(&["run", "-"], "1 / 0");
    assert_eq!(said.code(), 1);
    assert!(said.stderr().contains("ZeroDivisionError: division by zero"), "{}", said.stderr());
    assert!(kept.data.path().join("daemon.log").exists());
}

#[test]
fn state_survives_the_daemons_death() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    kept.well(&["exec", "work", "x = [1, 2, 3]", "--durability", "local"]);
    kept.kill();
    assert_eq!(kept.well(&["exec", "work", "sum(x)"]), "6\n");
    kept.well(&["stop"]);
    assert_eq!(kept.pid(), None);
    assert_eq!(kept.well(&["run", "--machine", "work", "-c", "x.append(4); sum(x)"]), "10\n");
}

#[test]
fn two_first_commands_share_one_daemon() {
    let kept = Kept::new();
    let run = |n: u32| kept.well(&["run", "-c", &format!("{n} * 10")]);
    let outs: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|n| scope.spawn(move || run(n))).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    assert_eq!(outs, ["0\n", "10\n", "20\n", "30\n"]);
}

#[test]
fn a_machines_life_by_hand() {
    let kept = Kept::new();
    assert_eq!(kept.well(&["machine", "new", "work", "--tag", "team=red"]), "work\n");
    assert_eq!(kept.run(&["machine", "new", "work"]).code(), 4);
    kept.well(&["exec", "work", "x = 1"]);
    assert_eq!(kept.well(&["machine", "swap", "work"]), "work  swapped\n");
    assert_eq!(kept.well(&["machine", "wake", "work"]), "work  ready\n");
    kept.well(&["machine", "set", "work", "--no-tags", "--memory-mb", "300"]);
    let about = kept.run(&["machine", "get", "work", "--json"]).json();
    assert_eq!(about["limits"]["memory_mb"], 300);
    assert_eq!(about["tags"], serde_json::json!({}));
    kept.well(&["machine", "rm", "work"]);
    let said = kept.run(&["exec", "work", "x"]);
    assert_eq!(said.code(), 3);
    assert!(said.stderr().starts_with("error[machine.not_found]"), "{}", said.stderr());
}

#[test]
fn finished_instructions_can_be_read_later() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    kept.well(&["exec", "work", "print('out')\n6 * 7"]);
    assert_eq!(kept.well(&["logs", "work@0"]), "out\n42\n");
    let code = "import time\nprint('begun', flush=True)\ntime.sleep(600)";
    assert_eq!(kept.well(&["exec", "--detach", "work", code]), "work@1\n");
    let end = Instant::now() + Duration::from_secs(60);
    while !kept.well(&["logs", "work"]).contains("begun") {
        assert!(Instant::now() < end, "no output within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = kept.run(&["logs", "work"]);
    assert!(said.stderr().contains("work@1 is still running"), "{}", said.stderr());
    let table = kept.well(&["ps"]);
    let row = table.lines().nth(1).expect("a row for `work`");
    assert!(row.starts_with("work  running  1"), "{table}");
    kept.well(&["exec", "--interrupt", "work", "'next'"]);
    let said = kept.run(&["logs", "--follow", "work@1"]);
    assert_eq!((said.code(), said.stdout().as_str()), (1, "begun\n"), "{}", said.stderr());
    assert_eq!(kept.run(&["logs", "work@99"]).code(), 3);
    kept.well(&["machine", "swap", "work"]);
    assert_eq!(kept.well(&["ps"]).lines().count(), 1);
}

#[test]
fn machines_are_removed_by_tag_by_state_or_all() {
    let kept = Kept::new();
    for (name, team) in [("a", "red"), ("b", "red"), ("c", "blue"), ("d", "blue")] {
        kept.well(&["machine", "new", name, "--tag", &format!("team={team}")]);
    }
    let names = || -> Vec<String> {
        let list = kept.run(&["ls", "--json"]).json();
        let all = list["machines"].as_array().expect("a list");
        let mut names: Vec<String> =
            all.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(kept.run(&["rm"]).code(), 2);
    assert_eq!(kept.run(&["rm", "a", "--tag", "team=red"]).code(), 2);
    assert_eq!(kept.run(&["rm", "a", "--all"]).code(), 2);
    assert_eq!(names(), ["a", "b", "c", "d"]);
    kept.well(&["rm", "--tag", "team=red"]);
    assert_eq!(names(), ["c", "d"]);
    kept.well(&["exec", "c", "1"]);
    kept.well(&["machine", "swap", "c"]);
    kept.well(&["rm", "--state", "swapped", "--tag", "team=blue"]);
    assert!(!names().contains(&"c".to_owned()));
    kept.well(&["rm", "--all"]);
    assert_eq!(names(), Vec::<String>::new());
}

#[test]
fn a_conversation_goes_on_later() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let input = "x = 20\ndef f(n):\n    return n + 1\n\nf(x)\n1 / 0\n:vars\n";
    let said = kept.world.run_with(&["repl", "work"], input);
    assert!(said.stdout().starts_with("21\n"), "{}{}", said.stdout(), said.stderr());
    assert!(said.stdout().contains("x     int"), "{}", said.stdout());
    assert!(said.stderr().contains("ZeroDivisionError"), "{}", said.stderr());
    assert_eq!(said.code(), 1, "the last instruction failed");
    let said = kept.world.run_with(&["repl", "work"], "f(f(x))\n");
    assert_eq!(said.stdout(), "22\n", "{}", said.stderr());
    assert_eq!(kept.world.run_with(&["repl", "nobody"], "1\n").code(), 3);
}

#[test]
fn programs_get_json_where_people_get_talk() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let said = kept.world.run_with(&["repl", "work", "--json"], "print('x')\n1 / 0\n6 * 7\n");
    let lines: Vec<Value> =
        said.stdout().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 3, "{}", said.stderr());
    assert_eq!(lines[0]["outputs"][0]["data"], "x");
    assert_eq!(lines[1]["instruction"]["outcome"]["error"]["name"], "ZeroDivisionError");
    assert_eq!(lines[2]["instruction"]["outcome"]["value"], "42");
    let written = kept.run(&["export", "work", "work.machine", "--json"]).json();
    assert_eq!((&written["machine"], &written["file"]), (&"work".into(), &"work.machine".into()));
    let len = std::fs::metadata(kept.world.path("work.machine")).expect("a file").len();
    assert_eq!(written["bytes"], len);
    assert_eq!(kept.run(&["import", "work.machine", "--json"]).code(), 4);
    let copy = kept.run(&["import", "work.machine", "--name", "copy", "--json"]).json();
    assert_eq!(copy["name"], "copy");
}

#[test]
fn a_timeout_keeps_the_state() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    kept.well(&["exec", "work", "x = 5"]);
    let said = kept.run(&["exec", "work", "import time; time.sleep(60)", "--timeout", "0.2"]);
    assert_eq!(said.code(), 1, "{}", said.stderr());
    assert_eq!(kept.well(&["exec", "work", "x"]), "5\n");
}

#[test]
fn an_interrupt_keeps_the_state() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    kept.well(&["exec", "work", "x = 5"]);
    let code = "import time\nx = 6\nprint('on', flush=True)\ntime.sleep(600)";
    let mut child = kept.world.start(&["exec", "work", code, "--timeout", "none"]);
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "on\n");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let ended = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{words}");
    assert!(words.contains("the machine kept its state"), "{words}");
    assert_eq!(kept.well(&["exec", "work", "x"]), "6\n");
}

#[test]
fn history_undo_and_branches() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work", "--durability", "local"]);
    for code in ["x = 1", "x += 1", "x += 10"] {
        kept.well(&["exec", "work", code]);
    }
    assert_eq!(kept.well(&["undo", "work"]), "work is at work@1\n");
    assert_eq!(kept.well(&["exec", "work", "x"]), "2\n");
    assert_eq!(kept.well(&["branch", "work@0", "--name", "early"]), "early\n");
    assert_eq!(kept.well(&["exec", "early", "x += 100; x"]), "101\n");
    assert_eq!(kept.well(&["exec", "work", "x"]), "2\n");
    assert_eq!(kept.well(&["rollback", "work@0"]), "work is at work@0\n");
    assert_eq!(kept.well(&["exec", "work", "x"]), "1\n");
    assert_eq!(kept.run(&["rollback", "work@999"]).code(), 3);
    let table = kept.well(&["history", "work"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let status: Vec<String> = table.lines().skip(1).map(|line| words(line)[2].clone()).collect();
    assert_eq!(status, ["done", "undone", "undone", "undone", "undone", "done"], "{table}");
    assert_eq!(kept.well(&["branch", "work", "-n", "3"]).lines().count(), 3);
}

#[test]
fn a_figure_becomes_a_file() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let code = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()";
    let said = kept.run(&["exec", "work", code]);
    assert_eq!(said.code(), 0, "{}", said.stderr());
    assert_eq!(said.stderr(), "image saved: stasis-work-0-0.png\n");
    let image = std::fs::read(kept.world.path("stasis-work-0-0.png")).expect("the file");
    assert!(image.starts_with(b"\x89PNG"));
}

#[test]
fn files_are_copied_in_and_out() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "files"]);
    let here = kept.world.dir.path();
    std::fs::create_dir_all(here.join("tree/sub")).expect("made");
    std::fs::write(here.join("tree/a b.txt"), "one").expect("written");
    std::fs::write(here.join("tree/sub/c"), vec![7; 3 << 20]).expect("written");
    let tree = here.join("tree").to_string_lossy().into_owned();
    kept.well(&["cp", "-r", &tree, "files:"]);
    let seen = "import os; (open('tree/a b.txt').read(), os.path.getsize('tree/sub/c'))";
    assert_eq!(kept.well(&["exec", "files", seen]), "('one', 3145728)\n");
    let back = here.join("back").to_string_lossy().into_owned();
    kept.well(&["cp", "-r", "files:tree", &back]);
    assert_eq!(std::fs::read_to_string(here.join("back/a b.txt")).expect("read"), "one");
    assert_eq!(std::fs::read(here.join("back/sub/c")).expect("read"), vec![7; 3 << 20]);
    assert_ne!(kept.run(&["cp", "files:tree", &back]).code(), 0);
    assert_ne!(kept.run(&["cp", "files:nothing", &back]).code(), 0);
    assert_ne!(kept.run(&["cp", &tree, &back]).code(), 0);
}

#[test]
fn the_store_is_looked_after() {
    let kept = Kept::new();
    kept.well(&["run", "-c", "x = bytes(1 << 20)"]);
    assert!(kept.run(&["store", "stats", "--json"]).json()["bytes"].as_u64() > Some(0));
    kept.well(&["store", "gc"]);
    let found = kept.run(&["store", "check", "--json"]);
    assert_eq!((found.code(), &found.json()["findings"]), (0, &serde_json::json!([])));
}

#[test]
fn an_idle_daemon_exits() {
    let mut kept = Kept::new();
    kept.world.set("STASIS_LINGER_SECONDS", "0.3");
    kept.well(&["run", "--machine", "work", "-c", "x = 7"]);
    let start = Instant::now();
    while kept.is_kept() {
        assert!(start.elapsed() < Duration::from_secs(300), "it stays");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(kept.well(&["run", "--machine", "work", "-c", "x"]), "7\n");
}

#[test]
fn the_past_and_relatives_from_the_command_line() {
    let kept = Kept::new();
    let local = |machine: &str, code: &str| {
        kept.well(&["exec", machine, code, "--durability", "local"]);
    };
    kept.well(&["machine", "new", "work", "--keep", "last=5"]);
    local("work", "x = 1\nopen('t.txt', 'w').write('one\\n')");
    kept.well(&["label", "work@0", "start"]);
    kept.well(&["branch", "work", "--name", "other"]);
    local("other", "x = 2\nopen('t.txt', 'w').write('two\\n')\nx");
    assert_eq!(kept.well(&["tree"]), "work@0\n└── @0 other@0\n");
    let history = kept.well(&["machine", "history", "work", "--files"]);
    assert!(history.contains("work@0 (start)") && history.contains("1 file: "), "{history}");
    let compared = kept.well(&["compare", "work@0", "other"]);
    assert!(compared.contains("x         changed  int: 1  int: 2"), "{compared}");
    assert!(compared.contains("    -one\n    +two\n"), "{compared}");
    assert!(kept.well(&["peek", "work@0"]).contains("x     int"));
    let home = kept.well(&["exec", "work", "import os; print(os.getcwd())"]);
    let file = format!("{}/t.txt", home.trim());
    assert_eq!(kept.well(&["peek", "other@0", &file]), "two\n");
    assert!(kept.well(&["peek", "other", home.trim()]).contains("t.txt"));
    local("work", "x = 9");
    let refused = kept.run(&["adopt", "work", "other", "--var", "x"]);
    assert_eq!(refused.code(), 4, "{}", refused.stderr());
    assert!(refused.stderr().contains("conflict: variable x"), "{}", refused.stderr());
    let forced = kept.well(&["adopt", "work", "other", "--var", "x", "--file", &file, "--force"]);
    assert!(forced.starts_with("variable x\nfile /"), "{forced}");
    let said = kept.well(&["promote", "other"]);
    assert_eq!(said, "other is now called work, and the old work is called other\n");
    let explored = kept.well(&["explore", "work", "-c", "x += 1", "-c", "x -= 1", "--score", "x"]);
    assert!(explored.contains("work continues from the best candidate"), "{explored}");
    assert_eq!(kept.well(&["exec", "work", "x"]), "3\n");
    let same = kept.well(&["branch", "work", "-n", "3", "-c", "x + 1"]);
    assert_eq!(same.lines().count(), 3, "{same}");
    let varied = kept.well(&["branch", "work", "-c", "x * 10", "-c", "print('hi')"]);
    assert!(varied.contains("  30\n") && varied.contains("  hi\n"), "{varied}");
    let disk = kept.well(&["machine", "disk", "work"]);
    assert!(disk.contains("own_bytes"), "{disk}");
    kept.well(&["export", "work", "work.machine", "--history"]);
    assert_eq!(kept.well(&["import", "work.machine", "--name", "again"]), "again\n");
    assert_eq!(kept.well(&["exec", "again", "x"]), "3\n");
}
