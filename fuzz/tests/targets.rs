//! Every target over its seeds and mutations of them, for some seconds each.

use stasis_fuzz::{Target, plain};
use std::collections::BTreeSet;
use std::time::Duration;

/// Inputs that even a slow machine gets through in that time.
const LEAST: u64 = 100;

fn check(target: Target) {
    let soak = std::env::var_os("STASIS_SOAK").is_some();
    let count = plain::run(&target, Duration::from_secs(if soak { 120 } else { 3 }));
    assert!(count > LEAST, "{}: {count} inputs", target.name);
}

#[test]
fn image_reader() {
    check(stasis_fuzz::image_reader());
}

#[test]
fn pack_reader() {
    check(stasis_fuzz::pack_reader());
}

#[test]
fn cold_pack_reader() {
    check(stasis_fuzz::cold_pack_reader());
}

#[test]
fn heads_of_bundles() {
    check(stasis_fuzz::bundle_reader());
}

#[test]
fn any_file_is_taken_in_whole_or_refused_and_leaves_nothing() {
    let target = stasis_fuzz::bundle_importer();
    (target.seeds)().iter().for_each(|seed| assert!(stasis_fuzz::import(seed), "a seed is fine"));
    let half = (target.seeds)().remove(0);
    assert!(!stasis_fuzz::import(&half[..half.len() / 2]), "half of one is refused");
    check(target);
    std::fs::remove_dir_all(stasis_fuzz::import_dir()).expect("remove what is empty now");
}

#[test]
fn dns_reader() {
    check(stasis_fuzz::dns_reader());
}

#[test]
fn head_reader() {
    check(stasis_fuzz::head_reader());
}

#[test]
fn hello_reader() {
    check(stasis_fuzz::hello_reader());
}

#[test]
fn rego_reader() {
    check(stasis_fuzz::rego_reader());
}

#[test]
fn policy_reader() {
    check(stasis_fuzz::policy_reader());
}

#[test]
fn report_reader() {
    check(stasis_fuzz::report_reader());
}

/// A program without a target here would never run.
#[test]
fn every_program_is_a_target_here() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz_targets");
    let programs: BTreeSet<String> = std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_owned())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let targets = [
        stasis_fuzz::image_reader(),
        stasis_fuzz::pack_reader(),
        stasis_fuzz::cold_pack_reader(),
        stasis_fuzz::bundle_reader(),
        stasis_fuzz::bundle_importer(),
        stasis_fuzz::dns_reader(),
        stasis_fuzz::head_reader(),
        stasis_fuzz::hello_reader(),
        stasis_fuzz::policy_reader(),
        stasis_fuzz::rego_reader(),
        stasis_fuzz::report_reader(),
    ];
    assert_eq!(programs, targets.map(|target| target.name.to_owned()).into());
}

#[test]
fn an_input_that_fails_is_kept() {
    let fragile = Target {
        name: "fragile",
        seeds: || vec![b"good".to_vec()],
        words: &["bad"],
        run: |bytes| assert!(!bytes.windows(3).any(|three| three == b"bad"), "it broke"),
    };
    let ran = std::panic::catch_unwind(|| plain::run(&fragile, Duration::from_secs(60)));
    assert!(ran.is_err());
    let kept = plain::failed_input("fragile");
    let input = std::fs::read(&kept).expect("the input");
    std::fs::remove_file(kept).expect("remove it");
    assert!(input.windows(3).any(|three| three == b"bad"));
}
