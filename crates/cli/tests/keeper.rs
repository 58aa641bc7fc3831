//! The program with a real keeper and real machines.

mod common;

use common::{Said, World};
use serde_json::Value;
use std::process::Command;
use tempfile::TempDir;

/// A world whose data directory has the default template; its keeper ends with it.
struct Kept {
    world: World,
    data: TempDir,
}

impl Kept {
    fn new() -> Kept {
        let data = stasis_testbed::data_dir();
        let mut world = World::new();
        world.set("STASIS_DATA_DIR", &data.path().to_string_lossy());
        Kept { world, data }
    }

    fn run(&self, args: &[&str]) -> Said {
        self.world.run(args)
    }

    /// Runs a command that must go well; what it prints.
    fn well(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(said.code(), 0, "{args:?}: {}{}", said.stdout(), said.stderr());
        said.stdout()
    }

    fn pid(&self) -> Option<u64> {
        self.run(&["status", "--json"]).json()["pid"].as_u64()
    }

    fn kill(&self) {
        let pid = self.pid().expect("a keeper runs").to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().expect("kill").success());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.run(&["stop"]);
    }
}

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
    assert!(kept.data.path().join("keeper.log").exists());
}

#[test]
fn state_survives_the_keepers_death() {
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
fn two_first_commands_share_one_keeper() {
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
fn a_conversation_goes_on_later() {
    let kept = Kept::new();
    kept.well(&["machine", "new", "work"]);
    let input = "x = 20\ndef f(n):\n    return n + 1\n\nf(x)\n1 / 0\n:vars\n";
    let said = kept.world.run_with(&["repl", "work"], input);
    assert!(said.stdout().starts_with("21\n"), "{}{}", said.stdout(), said.stderr());
    assert!(said.stdout().contains("x"), "{}", said.stdout());
    assert!(said.stderr().contains("ZeroDivisionError"), "{}", said.stderr());
    let said = kept.world.run_with(&["repl", "work"], "f(f(x))\n");
    assert_eq!(said.stdout(), "22\n", "{}", said.stderr());
    assert_eq!(kept.world.run_with(&["repl", "nobody"], "1\n").code(), 3);
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
