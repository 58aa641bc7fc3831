//! Compiles the library that the agent for JavaScript loads into its interpreter. Nothing is linked
//! into this crate: the library is carried as bytes and laid beside the interpreter of a template.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "javascript/native.c";

fn main() {
    println!("cargo::rerun-if-changed=javascript");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a directory"));
    let compiler = cc::Build::new().opt_level(2).debug(false).cargo_metadata(false).get_compiler();
    let mut command: Command = compiler.to_command();
    command
        .args(["-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"])
        .args(["-s", "-Wl,--build-id=none", "-o"])
        .arg(out.join("stasis.node"))
        .arg(SOURCE);
    let status = command.status().expect("the C compiler starts");
    assert!(status.success(), "the C compiler failed: {command:?}");
}
