//! SECURITY.md shows the lists of calls and capabilities as they are. Written anew with
//! STASIS_WRITE_PAGE=1.

use stasis_sandbox::seccomp::{ALLOWED, AllowedSyscall, REFUSED};
use stasis_sandbox::service::{GIVEN_UP, LEFT_OUT, Threads};
use stasis_sys::libc;
use std::path::{Path, PathBuf};

const CALLS: [&str; 2] = [
    "<!-- calls: kept equal to crates/sandbox/src/seccomp/list.rs by a test -->\n",
    "<!-- end of calls -->\n",
];
const SERVICE: [&str; 2] = [
    "<!-- service: kept equal to crates/sandbox/src/service.rs by a test -->\n",
    "<!-- end of service -->\n",
];

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md")
}

fn answer(errno: i32) -> String {
    match errno {
        0 => "success, without effect".into(),
        libc::EPERM => "`EPERM`".into(),
        libc::ENOSYS => "`ENOSYS`".into(),
        other => format!("error {other}"),
    }
}

fn name(call: &AllowedSyscall) -> String {
    match call.note {
        "" => format!("`{}`", call.name),
        note => format!("`{}` ({note})", call.name),
    }
}

fn tables() -> String {
    let mut text = String::from("| allowed | purpose |\n|---|---|\n");
    for purpose in ALLOWED {
        let calls: Vec<String> = purpose.calls.iter().map(name).collect();
        text += &format!("| {} | {} |\n", calls.join(", "), purpose.why);
    }
    text += "\n| refused | answer | why |\n|---|---|---|\n";
    for refusal in REFUSED {
        let calls: Vec<String> =
            refusal.calls.iter().map(|(name, _)| format!("`{name}`")).collect();
        let answer = answer(refusal.errno);
        text += &format!("| {} | {answer} | {} |\n", calls.join(", "), refusal.why);
    }
    text
}

fn quoted(names: impl Iterator<Item = &'static str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn service_tables() -> String {
    let mut text = String::from("| dropped by the process | purpose |\n|---|---|\n");
    for group in GIVEN_UP {
        let names = quoted(group.capabilities.iter().map(|(name, _)| *name));
        text += &format!("| {names} | {} |\n", group.why);
    }
    text += "\n| removed calls | threads | why |\n|---|---|---|\n";
    for line in LEFT_OUT {
        let threads = match line.threads {
            Threads::Service => "service",
            Threads::ServiceAndEgress => "service, egress",
        };
        let calls = quoted(line.calls.iter().copied());
        text += &format!("| {calls} | {threads} | {} |\n", line.why);
    }
    text
}

/// Both parts in one test: they are written to one file.
#[test]
fn the_page_shows_the_lists() {
    let mut page = std::fs::read_to_string(path()).expect("read SECURITY.md");
    for ([start, end], tables) in [(CALLS, tables()), (SERVICE, service_tables())] {
        let (before, rest) = page.split_once(start).expect("the list begins");
        let (shown, after) = rest.split_once(end).expect("the list ends");
        let expected = format!("\n{tables}\n");
        if std::env::var_os("STASIS_WRITE_PAGE").is_none() {
            assert_eq!(shown, expected, "write it anew with STASIS_WRITE_PAGE=1");
        }
        page = format!("{before}{start}{expected}{end}{after}");
    }
    if std::env::var_os("STASIS_WRITE_PAGE").is_some() {
        std::fs::write(path(), page).expect("write SECURITY.md");
    }
}
