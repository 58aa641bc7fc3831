//! Every rule finds its violations, and is silent otherwise.

use super::arrows::{self, Package};
use super::sizes::{self, Long};
use super::{Finding, SourceFile, rust, text, tokens};

const LIBRARY: &str = "//! A library.\n\n#![forbid(unsafe_code)]\n";

fn source(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.into(), bytes: text.into() }
}

fn rust_findings(path: &str, text: &str) -> Vec<String> {
    rust::check(path, text, &tokens::parse(text).unwrap()).iter().map(Finding::to_string).collect()
}

fn long(path: &str, text: &str) -> Vec<Long> {
    sizes::measure(path, text, &tokens::parse(text).unwrap())
}

fn text_lines(text: &str) -> Vec<usize> {
    text::check(&source("dev/a.py", text)).iter().map(|finding| finding.line).collect()
}

/// A function of so many lines.
fn function(name: &str, lines: usize) -> String {
    format!("fn {name}() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn a_tidy_file_passes() {
    assert!(rust_findings("crates/engine/src/lib.rs", LIBRARY).is_empty());
    assert!(text::check(&source("README.md", "Nothing to do.\n")).is_empty());
}

#[test]
fn a_file_opens_with_its_docs() {
    let found = rust_findings("crates/engine/src/a.rs", "\n//! Late.\n");
    assert_eq!(found, ["crates/engine/src/a.rs:1: open with `//!`: what is this file for?"]);
}

#[test]
fn width_is_counted_in_letters() {
    let fits = format!("//! {}\n", "─".repeat(96));
    assert!(rust_findings("crates/sys/src/a.rs", &fits).is_empty());
    let wide = format!("//! {}\n", "─".repeat(97));
    let found = rust_findings("crates/sys/src/a.rs", &wide);
    assert_eq!(found, ["crates/sys/src/a.rs:1: 101 columns, 100 is the most"]);
}

#[test]
fn unsafe_has_one_home() {
    let code = "//! Docs.\nfn f() {\n    unsafe { g() }\n}\n";
    assert!(rust_findings("crates/sys/src/a.rs", code).is_empty());
    let found = rust_findings("crates/engine/tests/a.rs", code);
    assert_eq!(found, ["crates/engine/tests/a.rs:3: `unsafe` belongs in crates/sys/"]);
}

#[test]
fn unsafe_in_a_macro_is_found_and_in_a_string_is_not() {
    let code = "//! unsafe\nmacro_rules! m { () => { unsafe { g() } } }\n";
    assert_eq!(rust_findings("crates/image/src/a.rs", code).len(), 1);
    let code = "//! unsafe\n// unsafe { }\nconst A: &str = \"unsafe { }\";\n";
    assert!(rust_findings("crates/image/src/a.rs", code).is_empty());
}

#[test]
fn the_exception_has_a_number() {
    let code = "//! Docs.\n#[allow(unsafe_code)]\nfn f() {\n    unsafe { g() }\n}\n";
    assert!(rust_findings("crates/spawner/src/blank.rs", code).is_empty());
    let thrice = format!("//! Docs.\n{}", code.replace("//! Docs.\n", "").repeat(3));
    let found = rust_findings("crates/spawner/src/blank.rs", &thrice);
    assert_eq!(found.len(), 2, "one `unsafe` and one lifted lint too many: {found:?}");
    assert_eq!(rust_findings("crates/spawner/src/init.rs", code).len(), 2);
}

#[test]
fn crate_roots_forbid_unsafe() {
    let bare = "//! Docs.\n";
    let found = rust_findings("crates/cli/src/main.rs", bare);
    assert_eq!(found, ["crates/cli/src/main.rs: lacks `#![forbid(unsafe_code)]`"]);
    let found = rust_findings("crates/spawner/src/lib.rs", bare);
    assert_eq!(found, ["crates/spawner/src/lib.rs: lacks `#![deny(unsafe_code)]`"]);
    assert!(rust_findings("crates/sys/src/lib.rs", bare).is_empty());
    assert!(rust_findings("crates/cli/src/command/main.rs", bare).is_empty());
}

#[test]
fn a_function_has_at_most_sixty_lines() {
    assert!(long("a.rs", &function("f", 60)).is_empty());
    let found = long("a.rs", &format!("trait T {{\n    fn g();\n{}}}\n", function("f", 61)));
    let expected = Long { path: "a.rs".into(), name: "f".into(), line: 3, lines: 61 };
    assert_eq!(found, [expected]);
}

#[test]
fn types_of_functions_are_not_functions() {
    let fields = "    call: fn(u8) -> u8,\n".repeat(80);
    assert!(long("a.rs", &format!("struct S {{\n{fields}}}\n")).is_empty());
}

#[test]
fn a_file_is_measured_with_its_tests() {
    let uses = "use a::b;\n".repeat(497);
    let tests = format!("{uses}#[cfg(test)]\nmod tests {{\n}}\n");
    assert!(long("src/a.rs", &tests).is_empty());
    let found = long("src/a.rs", &format!("use a::c;\n{tests}"));
    assert_eq!((found.len(), found[0].lines), (1, 501));
    assert!(long("src/tests.rs", &uses.repeat(2)).is_empty());
    assert!(long("src/types.rs", &format!("//! Written by x.\n{}", uses.repeat(2))).is_empty());
}

#[test]
fn an_exception_covers_no_more_than_it_says() {
    let found = [Long { path: "a.rs".into(), name: "f".into(), line: 3, lines: 90 }];
    assert!(sizes::check(&found, &[("a.rs", "f", 90)]).is_empty());
    assert_eq!(sizes::check(&found, &[]).len(), 1);
    assert_eq!(sizes::check(&found, &[("a.rs", "f", 89)]).len(), 1);
    let stale = sizes::check(&found, &[("a.rs", "f", 90), ("a.rs", "g", 80)]);
    assert_eq!(stale[0].what, "`g` needs no exception any more: take it off the list");
}

#[test]
fn notes_to_self_are_found() {
    let note = concat!("TO", "DO");
    assert_eq!(text_lines(&format!("a\n# {note}: later\n")), [2]);
    assert!(text_lines("a mastodont's todo\n").is_empty());
}

#[test]
fn paths_of_one_machine_are_found() {
    let [work, root, home] = ["work", "root", "home"].map(|name| format!("/{name}/"));
    assert_eq!(text_lines(&format!("'{work}a'\n\nHOME={root}b\n{home}me\n")), [1, 3, 4]);
    assert!(text_lines(&format!("upper{work}a and frame{work}b, {{dir}}{root}\n")).is_empty());
    assert!(text::check(&source("LICENSE", &work)).is_empty());
}

#[test]
fn blobs_are_found() {
    let blob = SourceFile { path: "a.bin".into(), bytes: vec![0xff; 600 * 1024] };
    assert_eq!(text::check(&blob)[0].what, "600 KiB; blobs do not belong here");
}

#[test]
fn the_readme_says_how_to_start() {
    let half = [source("README.md", "Type `make test`.")];
    assert_eq!(text::check_readme(&half)[0].what, "does not say `make run`");
    assert_eq!(text::check_readme(&[]).len(), 2);
}

#[test]
fn a_file_that_nothing_includes_is_dead() {
    let mut modules = rust::Modules::default();
    let manifest = "autotests = false\n[[test]]\npath = \"tests/main.rs\"";
    modules.add_manifest("crates/b/Cargo.toml", manifest);
    for (path, text) in [
        ("crates/b/tests/main.rs", "mod part;"),
        ("crates/b/tests/part.rs", "mod piece;"),
        ("crates/b/tests/part/piece.rs", ""),
        ("crates/b/tests/forgotten.rs", ""),
        ("crates/a/src/lib.rs", "mod one; mod two; mod inline { }"),
        ("crates/a/src/one.rs", "mod inner;"),
        ("crates/a/src/one/inner.rs", ""),
        ("crates/a/src/two/mod.rs", "#[cfg(test)] mod tests;"),
        ("crates/a/src/two/tests.rs", ""),
        ("crates/a/src/three.rs", ""),
        ("crates/a/src/inline.rs", ""),
        ("crates/a/tests/whole.rs", "mod common;"),
        ("crates/a/tests/common/mod.rs", ""),
        ("crates/a/tests/suite/main.rs", "mod part;"),
        ("crates/a/tests/suite/part.rs", ""),
        ("crates/a/src/bin/program/main.rs", "mod piece;"),
        ("crates/a/src/bin/program/piece.rs", ""),
        ("fuzz/fuzz_targets/reader.rs", ""),
    ] {
        modules.add(path, &tokens::parse(text).unwrap());
    }
    let dead: Vec<String> = modules.dead().into_iter().map(|finding| finding.path).collect();
    let all = ["crates/a/src/inline.rs", "crates/a/src/three.rs", "crates/b/tests/forgotten.rs"];
    assert_eq!(dead, all);
}

#[test]
fn arrows_point_one_way() {
    let package = |name: &str, uses: &[&str]| Package {
        name: name.into(),
        uses: uses.iter().map(|used| (*used).to_owned()).collect(),
    };
    let good = [package("stasis-engine", &["stasis-sys"]), package("stasis-image", &[])];
    assert!(arrows::check(&good).is_empty());
    let turned = arrows::check(&[package("stasis-image", &["stasis-sys"])]);
    assert_eq!(turned[0].what, "must not use stasis-sys: dependencies point one way");
    assert_eq!(arrows::check(&[package("stasis-new", &[])]).len(), 1);
}

#[test]
fn metadata_is_read() {
    let metadata = serde_json::json!({ "packages": [
        { "name": "stasis-cli", "dependencies": [{ "name": "clap" }, { "name": "stasis-engine" }] },
    ] });
    let expected = Package { name: "stasis-cli".into(), uses: vec!["stasis-engine".into()] };
    assert_eq!(arrows::parse(&metadata), [expected]);
}

#[test]
fn what_is_not_rust_has_a_line() {
    assert_eq!(tokens::parse("fn f() {\n    )\n}\n"), Err(2));
}
