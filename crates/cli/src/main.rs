//! The `stasis` program. All of it is the library beside it: Cargo compiles a library as soon as
//! the interfaces of its dependencies are known, and a program only when all of them is compiled.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    stasis_cli::run()
}
