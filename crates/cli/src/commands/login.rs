//! `stasis login`: stores a service's address and token for later commands.
//!
//! The token comes from a prompt or a pipe, so it appears in no process list and no shell history.
//! It is stored only if the service accepts it.

use crate::client::Client;
use crate::config::Login;
use crate::context::Context;
use crate::failure::{CliFailure, Result};
use crate::show;
use rustyline::completion::Completer;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Editor, Helper};
use serde_json::json;
use stasis_api::Whoami;
use std::borrow::Cow;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

const HERE: &str = "http://127.0.0.1:7717";

#[derive(clap::Args)]
pub struct Args {
    /// Address of the service [default: a service on this host]
    address: Option<String>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let url = args.address.or_else(|| context.config.text("url")).unwrap_or_else(|| HERE.into());
    let url = url.trim_end_matches('/').to_owned();
    let token = match context.config.text("token") {
        Some(token) => token,
        None => ask(&url)?,
    };
    let who: Whoami = Client::remote(&url, Some(token.clone()))?.get("/v1/whoami")?;
    let path = Login { url: url.clone(), token }.write()?;
    if context.json {
        show::json(&json!({ "url": url, "account": who.account, "file": path }));
    } else {
        eprintln!("logged in to {url} as {}", show::one_line(&who.account, 80));
    }
    if is_open(&url) {
        eprintln!("note: the token is sent to {url} without encryption");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the connection is unencrypted.
fn is_open(url: &str) -> bool {
    let here = ["http://127.", "http://localhost", "http://[::1]"];
    url.starts_with("http://") && !here.iter().any(|start| url.starts_with(start))
}

/// The token, from a terminal without echo, or from a pipe.
fn ask(url: &str) -> Result<String> {
    let none = || {
        CliFailure::usage("no token on standard input").hint("create one with `stasis token new`")
    };
    let line = match std::io::stdin().is_terminal() {
        true => typed(url).ok_or_else(none)?,
        false => {
            std::io::stdin().lock().lines().next().and_then(|line| line.ok()).ok_or_else(none)?
        }
    };
    Some(line.trim().to_owned()).filter(|token| !token.is_empty()).ok_or_else(none)
}

fn typed(url: &str) -> Option<String> {
    let mut editor =
        Editor::<Unseen, MemHistory>::with_history(rustyline::Config::default(), MemHistory::new())
            .ok()?;
    editor.set_helper(Some(Unseen));
    editor.readline(&format!("token for {url}: ")).ok()
}

/// Shows a star for each character.
struct Unseen;

impl Completer for Unseen {
    type Candidate = String;
}

impl Hinter for Unseen {
    type Hint = String;
}

impl Validator for Unseen {}

impl Helper for Unseen {}

impl Highlighter for Unseen {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        "*".repeat(line.chars().count()).into()
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_the_host_unencrypted_is_told() {
        assert!(is_open("http://example.org") && is_open("http://10.0.0.1:7717"));
        for closed in ["https://example.org", "http://127.0.0.1:7717", "http://[::1]:1"] {
            assert!(!is_open(closed), "{closed}");
        }
    }
}
