//! Rules about files and commands: what clients may do through the service, in every way that it
//! offers, also where links lead elsewhere.

use stasis_api::{Name, Network, NewMachine, PolicyVerdict, RefusedAccess};
use stasis_machine::{CommandText, Error, EventSelector, FileUser, Machine};
use stasis_policy::document;
use stasis_testbed::{TestHost, run, value};
use std::io::Read;
use std::sync::Arc;

const RULES: &str = r#"
accounts = ["test"]
[files]
allow = ["/home/user/*", "read /tmp/shown", "/tmp/all*"]
deny = ["write /home/user/keep/*"]
ask = ["read /home/user/private"]
[commands]
allow = ["git log *", "pip install six*"]
deny = ["git log --exec *"]
"#;

/// Files, and links that lead elsewhere.
const FILES: &str = "import os, pathlib
home = pathlib.Path('/home/user')
(home / 'keep').mkdir(); (home / 'keep/x').write_text('kept')
(home / 'private').write_text('private')
(home / 'shown').symlink_to('/etc/passwd')
(home / 'dir').symlink_to('/opt')
(home / 'out').symlink_to('/tmp/elsewhere'); os.mkdir('/tmp/elsewhere')
os.makedirs('/tmp/all/below'); open('/tmp/shown', 'w').write('shown')";

fn set(bed: &TestHost, text: &str) {
    let document = document::parse(text).expect("a policy");
    bed.host.set_policy("rules".parse::<Name>().expect("a name"), document).expect("set");
}

fn machine(bed: &TestHost) -> Arc<Machine> {
    bed.host.create("test", NewMachine::default()).expect("a machine")
}

/// The code of a failed operation, `done` of one that succeeded.
fn code<T>(done: Result<T, Error>) -> &'static str {
    done.map_or_else(|error| error.code(), |_| "done")
}

fn write(machine: &Arc<Machine>, path: &str) -> &'static str {
    let put = machine.put_file(path, None).and_then(|mut upload| {
        upload.write(b"new")?;
        upload.finish(None)
    });
    code(put)
}

fn refusals(bed: &TestHost) -> Vec<RefusedAccess> {
    let wanted = EventSelector { account: "test".into(), ..EventSelector::default() };
    let events = bed.host.events_after(0, &wanted, 10_000).events;
    events.into_iter().filter_map(|event| event.refused).collect()
}

#[test]
fn files_are_judged_by_the_path_that_they_have() {
    let bed = TestHost::start();
    let work = machine(&bed);
    run(&work, FILES);
    assert_eq!(code(work.read_file("/etc/passwd")), "done", "no policy yet");
    set(&bed, RULES);
    let refused = "policy.refused";
    for (done, expected) in [
        (code(work.read_file("keep/x")), "done"),
        (code(work.read_file("/tmp/shown")), "done"),
        (code(work.read_file("/etc/passwd")), refused),
        (code(work.read_file("private")), refused),
        // where the links lead is not allowed
        (code(work.read_file("shown")), refused),
        (code(work.list_files("dir", None, None)), refused),
        (write(&work, "out/new"), refused),
        (code(work.put_link("out/link", "x", None)), refused),
        (code(work.remove_file("out", false)), "done"),
        // the link itself is a file of its directory
        (code(work.file("shown")), "done"),
        (code(work.file("/etc/passwd")), refused),
        (code(work.list_files(".", None, None)), "done"),
        (code(work.list_files("/", None, None)), refused),
        (code(work.watch_file(".", false)), "done"),
        (code(work.watch_file("/etc", true)), refused),
        (write(&work, "new"), "done"),
        (write(&work, "keep/x"), refused),
        (write(&work, "/tmp/shown"), refused),
        (code(work.put_link("to", "/etc/passwd", None)), "done"),
        (code(work.put_link("/etc/to", "x", None)), refused),
        // with everything below it
        (code(work.remove_file("/home/user", true)), refused),
        (code(work.remove_file("keep", true)), refused),
        (code(work.remove_file("/tmp/all", true)), "done"),
        (code(work.remove_file("new", false)), "done"),
    ] {
        assert_eq!(done, expected);
    }
    assert_eq!(value(&work, "(home / 'keep/x').read_text()"), "'kept'");
    assert_eq!(value(&work, "os.listdir('/tmp/elsewhere')"), "[]");
    // code in the machine is not asked about, nor is the service's own work
    assert_eq!(value(&work, "'root' in open('/etc/passwd').read()"), "True");
    let (_, mut file) = work.read_file_for(FileUser::Service, "/etc/passwd").expect("read");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("text");
    assert!(text.contains("root"));
    let told = refusals(&bed);
    let find = |access: &str| told.iter().find(|one| one.access == access).expect(access);
    let denied = find("write /home/user/keep/x");
    assert_eq!(denied.rule.as_deref(), Some("files.deny \"write /home/user/keep/*\""));
    assert_eq!(denied.policy.as_deref(), Some("rules"));
    assert_eq!(find("read /home/user/private").verdict, PolicyVerdict::Ask);
    assert_eq!(find("read /etc/passwd").rule, None);
}

#[test]
fn the_past_and_changed_rules_are_judged_too() {
    let bed = TestHost::start();
    let work = machine(&bed);
    run(&work, "open('/home/user/a', 'w').write('old')");
    set(&bed, "accounts = [\"test\"]\n[files]\nallow = [\"/home/user/*\"]");
    let place = bed.host.place(&work, None).expect("a state");
    assert_eq!(bed.host.read_at(&place, "a").expect("a file"), b"old");
    assert_eq!(code(bed.host.read_at(&place, "/etc/passwd")), "policy.refused");
    assert_eq!(code(bed.host.files_at(&place, "/etc")), "policy.refused");
    // a comparison shows the texts of files
    run(&work, "open('/home/user/a', 'w').write('new'); open('/tmp/b', 'w').write('hidden')");
    let now = bed.host.place(&work, None).expect("a state");
    let compared = bed.host.compare(&place, &now).expect("a comparison");
    let paths: Vec<&str> = compared.files.iter().map(|file| file.path.as_str()).collect();
    assert!(paths.iter().any(|path| path.ends_with("home/user/a")), "{paths:?}");
    assert!(!paths.iter().any(|path| path.contains("tmp/b")), "{paths:?}");
    let cut = compared.cut.iter().any(|one| one.contains("a policy does not show"));
    assert!(cut, "{:?}", compared.cut);
    // an upload under way, and a watch, end with the rule that allowed them
    let mut upload = work.put_file("b", None).expect("an upload");
    upload.write(b"late").expect("written");
    let mut watch = work.watch_file(".", true).expect("a watch");
    watch.step().expect("events");
    set(&bed, "accounts = [\"test\"]\n[files]\nallow = [\"/tmp/*\"]");
    assert_eq!(code(upload.finish(None)), "policy.refused");
    assert_eq!(code(watch.step()), "policy.refused", "not any more");
    assert_eq!(value(&work, "__import__('os').path.exists('/home/user/b')"), "False");
    // another account's machines are not held to it
    let other = bed.host.create("other", NewMachine::default()).expect("a machine");
    assert_eq!(code(other.read_file("/etc/passwd")), "done");
    // nor does a machine's network matter, but for its policy
    let network = Some(Network::Policy("rules".parse().expect("a name")));
    let new = NewMachine { network, ..NewMachine::default() };
    let own = bed.host.create("other", new).expect("a machine");
    assert_eq!(code(own.read_file("/etc/passwd")), "policy.refused");
}

#[test]
fn commands_are_judged_by_their_words() {
    let bed = TestHost::start();
    let work = machine(&bed);
    let shell = |text: &str| code(work.may_start(CommandText::Shell(text)));
    assert_eq!(shell("anything; at all"), "done");
    set(&bed, RULES);
    for (text, expected) in [
        ("git log -1", "done"),
        ("git log", "done"),
        ("git log; id", "policy.refused"),
        ("git log --exec x", "policy.refused"),
        ("git push", "policy.refused"),
        ("", "policy.refused"),
    ] {
        assert_eq!(shell(text), expected, "{text}");
    }
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (text, expected) in
        [("pip install six==1.17", "done"), ("pip install requests", "policy.refused")]
    {
        assert_eq!(code(work.may_start(CommandText::Words(&words(text)))), expected, "{text}");
    }
    let told = refusals(&bed);
    assert!(told.iter().any(|one| one.access == "command git push"), "{told:?}");
}
