//! SECURITY.md shows the list of calls as it is. Written anew with STASIS_WRITE_PAGE=1.

use stasis_sandbox::seccomp::{ALLOWED, Call, REFUSED};
use stasis_sys::libc;
use std::path::{Path, PathBuf};

const START: &str = "<!-- calls: kept equal to crates/sandbox/src/seccomp/list.rs by a test -->\n";
const END: &str = "<!-- end of calls -->\n";

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md")
}

fn answer(errno: i32) -> String {
    match errno {
        0 => "nothing is done, success".into(),
        libc::EPERM => "`EPERM`".into(),
        libc::ENOSYS => "`ENOSYS`".into(),
        other => format!("error {other}"),
    }
}

fn name(call: &Call) -> String {
    match call.note {
        "" => format!("`{}`", call.name),
        note => format!("`{}` ({note})", call.name),
    }
}

fn tables() -> String {
    let mut text = String::from("| allowed | what for |\n|---|---|\n");
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

#[test]
fn the_page_shows_the_list() {
    let page = std::fs::read_to_string(path()).expect("read SECURITY.md");
    let (before, rest) = page.split_once(START).expect("the list begins");
    let (shown, after) = rest.split_once(END).expect("the list ends");
    let expected = format!("\n{}\n", tables());
    if std::env::var_os("STASIS_WRITE_PAGE").is_some() {
        let page = format!("{before}{START}{expected}{END}{after}");
        std::fs::write(path(), page).expect("write SECURITY.md");
        return;
    }
    assert_eq!(shown, expected, "write it anew with STASIS_WRITE_PAGE=1");
}
