//! A machine's life through its own surface: instructions, what goes wrong, swap, history.

use stasis_api::{Durability, Exec, State, Status, Stream, Timeout};
use stasis_machine::{Branch, Error, Steps};
use stasis_testbed::{TestHost, error_name, exec, lines, run, until, value};
use std::time::Duration;

fn timeout(code: &str, seconds: f64) -> Exec {
    Exec { code: code.into(), timeout: Timeout::Seconds(seconds), ..Exec::default() }
}

/// Timeouts for code that does not end by itself: where one is too short for it to come as far as
/// it should, the next one is not.
const TRIES: [f64; 4] = [0.3, 3.0, 30.0, 300.0];

#[test]
fn values_output_errors_and_state() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let end =
        run(&machine, "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')\nx = 6");
    assert_eq!((end.seq, end.status), (0, Status::Done));
    assert_eq!(end.outcome.expect("an outcome").value, None);
    assert_eq!(lines(&machine, 0, None), ["a", "b", "c"]);
    assert_eq!(lines(&machine, 0, Some(Stream::Stderr)), ["b"]);
    assert_eq!(value(&machine, "x * 7"), "42");
    let end = run(&machine, "1 / 0");
    assert_eq!(error_name(&end), "ZeroDivisionError");
    assert!(end.receipt.expect("a receipt").intact);
    assert_eq!(value(&machine, "x"), "6");
    assert_eq!(machine.describe().instructions, 4);
}

#[test]
fn output_of_children_and_of_c_comes_in_order() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let code = "import os, ctypes, subprocess\nprint('one')\nsubprocess.run(['echo', 'two'])\n\
                print('three')\nctypes.CDLL(None).puts(b'four')\nctypes.CDLL(None).fflush(None)\n\
                os.write(1, b'five\\n')\nprint('six', end='')";
    run(&machine, code);
    assert_eq!(lines(&machine, 0, None), ["one", "two", "three", "four", "five", "six"]);
    run(&machine, "!echo from the shell");
    assert_eq!(lines(&machine, 1, None), ["from the shell"]);
}

#[test]
fn much_output_is_cut_and_says_so() {
    let bed = TestHost::with(|settings| settings.max_output = 10_000);
    let machine = bed.machine();
    run(&machine, "for i in range(100_000): print('line', i)");
    let lines = lines(&machine, 0, None);
    assert_eq!(lines[0], "line 0");
    assert_eq!(lines.last().map(String::as_str), Some("line 99999"));
    assert!(lines.iter().any(|line| line.contains("bytes of output were cut")));
}

#[test]
fn a_figure_and_a_frame_are_shown() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let end = run(&machine, "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()");
    let shown = end.outcome.expect("an outcome").shown;
    let png = shown[0].data["image/png"].as_str().expect("a picture");
    assert!(png.starts_with("iVBOR"), "{}", &png[..20.min(png.len())]);
    let end = run(&machine, "import pandas as pd\npd.DataFrame({'a': [1, 2]})");
    let data = end.outcome.expect("an outcome").data.expect("data");
    assert!(data["text/html"].as_str().expect("html").contains("<table"));
}

#[test]
fn a_timeout_keeps_the_state() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "n = 1");
    let code = "n = 2\nprint('on')\nwhile True: pass";
    let mut tries = TRIES.iter().map(|seconds| exec(&machine, timeout(code, *seconds)));
    let end = tries.find(|end| !lines(&machine, end.seq, None).is_empty()).expect("it came so far");
    assert_eq!((end.status, error_name(&end)), (Status::Interrupted, "TimeoutError"));
    assert!(end.receipt.expect("a receipt").intact);
    assert_eq!(value(&machine, "n"), "2");
}

#[test]
fn an_interrupt_keeps_the_state_and_a_waiting_one_is_cancelled() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let long =
        Exec { timeout: Timeout::Never, ..timeout("m = 5\nprint('on')\nwhile True: pass", 0.0) };
    let first = machine.submit(long).expect("submit");
    let second = machine.submit(timeout("m = 6", 300.0)).expect("submit");
    let third = machine.submit(timeout("m + 1", 300.0)).expect("submit");
    assert!(machine.cancel(second).expect("cancel"));
    until("it says so", || lines(&machine, first, None) == ["on"]);
    assert!(machine.interrupt().expect("interrupt"));
    assert_eq!(machine.wait(first).expect("wait").status, Status::Interrupted);
    assert_eq!(machine.wait(second).expect("wait").status, Status::Cancelled);
    let end = machine.wait(third).expect("wait");
    assert_eq!(end.outcome.expect("an outcome").value.as_deref(), Some("6"));
}

/// Every query finds it waiting or running, however far its driver has come, and an interrupt takes
/// effect although the agent may not be awake yet.
#[test]
fn accepted_instructions_can_be_ended_at_any_moment() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "m = 5");
    for round in 0..12u64 {
        if round % 4 == 0 {
            bed.host.swap(&machine).expect("swap");
        }
        let endless = Exec { timeout: Timeout::Never, ..timeout("while True: pass", 0.0) };
        let seq = machine.submit(endless).expect("submit");
        std::thread::sleep(Duration::from_micros(round * 200));
        assert!(machine.stop(seq).expect("stop"), "round {round}");
        let end = machine.wait(seq).expect("its end");
        let ended = matches!(end.status, Status::Interrupted | Status::Cancelled);
        assert!(ended, "round {round}: {:?} {:?}", end.status, end.outcome);
    }
    assert_eq!(value(&machine, "m"), "5");
}

/// Each of these ends the process; the machine is back at its checkpoint by the next instruction.
#[test]
fn killing_the_process_costs_one_instruction() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let keep = Exec {
        code: "kept = [1, 2]".into(),
        durability: Some(Durability::Local),
        ..Exec::default()
    };
    let receipt = exec(&machine, keep).receipt.expect("a receipt");
    assert_eq!(receipt.durable, Some(receipt.address.clone()));
    let deaths = [
        "kept.append(3)\nimport os\nos._exit(3)",
        "kept.append(3)\nimport ctypes\nctypes.string_at(0)",
        "kept.append(3)\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    ];
    for code in deaths {
        let end = run(&machine, code);
        assert_eq!(end.status, Status::Lost, "{code}");
        let receipt = end.receipt.expect("a receipt");
        assert!(!receipt.intact && receipt.lost.is_some(), "{receipt:?}");
        assert_eq!(value(&machine, "kept"), "[1, 2]", "{code}");
    }
}

#[test]
fn code_that_cannot_be_interrupted_is_rolled_back() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let keep =
        Exec { code: "kept = 1".into(), durability: Some(Durability::Local), ..Exec::default() };
    // a loop in C that never returns to the interpreter
    let code = "kept = 2\nimport signal\n\
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n\
                import ctypes\nwhile True: ctypes.CDLL(None).sleep(1000)";
    let mut tries = TRIES.iter().map(|seconds| {
        let kept = exec(&machine, keep.clone()).seq;
        (kept, exec(&machine, timeout(code, *seconds)))
    });
    let lost = tries.find(|(_, end)| end.status != Status::Interrupted);
    let (kept, end) = lost.expect("it came so far");
    assert_eq!(end.status, Status::Lost);
    let words = end.receipt.expect("a receipt").lost.expect("what was lost");
    assert!(words.contains("interrupt") && words.contains(&format!("@{kept}")), "{words}");
    assert_eq!(value(&machine, "kept"), "1");
}

#[test]
fn swapped_out_and_woken() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(
        &machine,
        "import numpy as np\na = np.arange(100_000)\nopen('note.txt', 'w').write('hello')",
    );
    for round in 0..3 {
        bed.host.swap(&machine).expect("swap out");
        assert_eq!(machine.describe().state, State::Swapped);
        let sum = value(&machine, "int(a.sum()), open('note.txt').read()");
        assert_eq!(sum, "(4999950000, 'hello')", "round {round}");
    }
}

#[test]
fn idle_machines_leave_memory_by_themselves() {
    let bed = TestHost::with(|settings| settings.idle_swap = Some(Duration::from_millis(100)));
    let machine = bed.machine();
    run(&machine, "x = 'still here'");
    until("it leaves", || machine.describe().state == State::Swapped);
    assert_eq!(value(&machine, "x"), "'still here'");
}

#[test]
fn saved_state_survives_the_host() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let name = machine.name().to_string();
    run(&machine, "x = 1");
    machine.settle().expect("settle");
    drop(machine);
    let bed = bed.reopen();
    let machine = bed.host.machine(&name).expect("it is there");
    assert_eq!(value(&machine, "x"), "1");
    assert_eq!(machine.instruction(0).expect("the first").status, Status::Done);
}

#[test]
fn undo_roll_back_and_branch() {
    let bed = TestHost::start();
    let machine = bed.machine();
    for n in 0..4 {
        run(&machine, &format!("x = {n}"));
        machine.settle().expect("settle");
    }
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(value(&machine, "x"), "2");
    let branches = bed
        .host
        .branch(&machine, Branch { seq: Some(1), names: vec![None, None], ..Branch::default() });
    let branches = branches.expect("branch");
    for (index, branch) in branches.iter().enumerate() {
        assert_eq!(value(branch, &format!("x += {index}; x")), (1 + index).to_string());
    }
    bed.host.roll_back(&machine, Some(0)).expect("roll back");
    assert_eq!(value(&machine, "x"), "0");
    assert!(machine.instruction(2).expect("it stays in the log").rolled_back);
    let refused = bed.host.roll_back(&machine, Some(3)).expect_err("it was undone");
    assert!(matches!(refused, Error::NoCheckpoint { .. }), "{refused}");
    bed.host.roll_back(&machine, None).expect("to the beginning");
    assert_eq!(error_name(&run(&machine, "x")), "NameError");
}

#[test]
fn machines_of_one_template_differ_in_randomness() {
    let bed = TestHost::start();
    let code = "import random, secrets, uuid, ssl, numpy as np\n\
                (random.random(), secrets.token_hex(8), str(uuid.uuid4()), ssl.RAND_bytes(8), \
                float(np.random.rand()))";
    let (one, other) = (value(&bed.machine(), code), value(&bed.machine(), code));
    let parts = |text: &str| text.trim_matches(['(', ')']).split(", ").map(str::to_owned).collect();
    let (one, other): (Vec<String>, Vec<String>) = (parts(&one), parts(&other));
    assert_eq!(one.len(), 5);
    for (index, (a, b)) in one.iter().zip(&other).enumerate() {
        assert_ne!(a, b, "generator {index}");
    }
}

#[test]
fn the_same_key_runs_once() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let keyed = || Exec {
        code: "hits = globals().get('hits', 0) + 1".into(),
        idempotency_key: Some("k".into()),
        ..Exec::default()
    };
    assert_eq!(exec(&machine, keyed()).seq, exec(&machine, keyed()).seq);
    assert_eq!(value(&machine, "hits"), "1");
}

#[test]
fn a_removed_machine_is_gone() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "x = 1");
    let name = machine.name().to_string();
    bed.host.remove(&machine).expect("remove");
    assert!(matches!(bed.host.machine(&name), Err(Error::NoMachine(_))));
    assert!(matches!(machine.submit(Exec::default()), Err(Error::Removed(_))));
    bed.host.collect().expect("collect");
    assert_eq!(value(&bed.machine(), "1 + 1"), "2");
}

/// A shell that leaves a process behind has exited, and with it the session's leader.
#[test]
fn children_of_a_command_are_restored() {
    let bed = TestHost::start();
    let machine = bed.machine();
    run(&machine, "!(sleep 600 & sleep 601 &)\n!sh -c 'sleep 602 & sleep 603 &'");
    // a shell's child is a shell until it has become what it should run; others end meanwhile
    let count = "import os, time\ndef sleeps(p):\n    \
                 try: return open(f'/proc/{p}/cmdline').read().startswith('sleep')\n    \
                 except OSError: return False\n\
                 def count(): return sum(map(sleeps, filter(str.isdigit, os.listdir('/proc'))))\n\
                 end = time.monotonic() + 120\n\
                 while count() < 4 and time.monotonic() < end: time.sleep(0.01)\ncount()";
    assert_eq!(value(&machine, count), "4");
    for _ in 0..2 {
        bed.host.swap(&machine).expect("swap");
        assert_eq!(value(&machine, count), "4");
    }
}
