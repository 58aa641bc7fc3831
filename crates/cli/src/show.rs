//! Output for people: tables, results of instructions, images and progress.
//!
//! Data goes to standard output, messages to standard error. Text from machines is stripped of
//! terminal control sequences before it reaches a terminal.

mod clean;
mod image;
mod progress;
mod result;
mod sixel;
mod table;
mod transfer;

pub use clean::clean;
pub use progress::BuildProgress;
pub use result::{Screen, colours, show_chunk, went_well};
pub use table::{Table, age, count_of, object, one_line, size};
pub use transfer::Transfer;

use serde::Serialize;

/// Prints a value for programs.
pub fn json(value: &impl Serialize) {
    say(&serde_json::to_string_pretty(value).expect("values of ours have text keys"));
}

/// Prints a line of data.
pub fn say(line: &str) {
    say_on(&format!("{line}\n"));
}

/// Prints data without a newline. A closed pipe is not an error.
pub fn say_on(text: &str) {
    use std::io::Write;
    if write!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}
