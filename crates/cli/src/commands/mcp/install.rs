//! `stasis mcp install` and `uninstall`: add or remove our entry in a client's settings. A copy of
//! the old file stays beside the new one.

use super::clients::{McpClient, ServerEntry};
use super::edit::EntryKey;
use crate::config::ValueSource;
use crate::context::Context;
use crate::failure::{CliFailure, Exit, PathContext, Result};
use crate::show;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Settings longer than this are not a client's.
const LONGEST: u64 = 64 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// Client
    #[arg(long, value_name = "CLIENT")]
    client: McpClient,
    /// Name of the server in the settings
    #[arg(long, value_name = "NAME", default_value = "stasis")]
    name: String,
    /// Settings file to change, such as a project's [default: the user's]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the new file without changing it
    #[arg(long, conflicts_with = "print")]
    dry_run: bool,
    /// Print only the entry
    #[arg(long)]
    print: bool,
}

/// A file before and after, and a description of the change.
struct Change<'a> {
    before: &'a str,
    after: &'a str,
    done: &'a str,
}

impl Args {
    fn place(&self) -> EntryKey<'_> {
        EntryKey { section: self.client.section(), name: &self.name }
    }

    fn check(&self) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match !self.name.is_empty() && self.name.chars().all(plain) {
            true => Ok(()),
            false => Err(CliFailure::usage("a name consists of letters, digits, `-` and `_`")),
        }
    }

    /// The file to change. A link is followed, and its target changed.
    fn path(&self) -> PathBuf {
        let path = self.file.clone().unwrap_or_else(|| self.client.file());
        path.canonicalize().unwrap_or(path)
    }

    fn settle(&self, path: &Path, change: Change, context: &Context) -> Result<ExitCode> {
        let Change { before, after, done } = change;
        if self.dry_run {
            print!("{after}");
            return Ok(ExitCode::SUCCESS);
        }
        let changed = before != after;
        if changed {
            write(path, before, after)?;
        }
        match (context.json, changed) {
            (true, _) => show::json(&json!({ "file": path, "changed": changed })),
            (false, true) => eprintln!("{done} {}", path.display()),
            (false, false) => eprintln!("{} already has this entry", path.display()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub fn install(args: &Args, tools: &str, context: &Context) -> Result<ExitCode> {
    args.check()?;
    let entry = args.client.entry(&args.name, &started(tools, context)?);
    let (format, at) = (args.client.format(), args.place());
    let odd = |what: String| refused(&args.path(), &what);
    if args.print {
        print!("{}", format.show(at, &entry).map_err(odd)?);
        return Ok(ExitCode::SUCCESS);
    }
    let path = args.path();
    let before = read(&path)?;
    let after = format.put(&before, at, &entry).map_err(odd)?;
    args.settle(&path, Change { before: &before, after: &after, done: "installed in" }, context)
}

pub fn uninstall(args: &Args, context: &Context) -> Result<ExitCode> {
    args.check()?;
    let path = args.path();
    let before = read(&path)?;
    let after = args.client.format().take(&before, args.place());
    let after = after.map_err(|what| refused(&path, &what))?;
    let Some(after) = after else {
        match context.json {
            true => show::json(&json!({ "file": path, "changed": false })),
            false => eprintln!("{} does not name {}", path.display(), args.name),
        }
        return Ok(ExitCode::SUCCESS);
    };
    args.settle(&path, Change { before: &before, after: &after, done: "taken out of" }, context)
}

/// How a client starts us: this program, with the current target options.
fn started(tools: &str, context: &Context) -> Result<ServerEntry> {
    let command = std::env::current_exe().at("find", Path::new("this program"))?;
    let mut args = vec!["mcp".to_owned()];
    if tools != "stasis" {
        args.extend(["--tools".to_owned(), tools.to_owned()]);
    }
    for (key, flag) in [("data_dir", "--data-dir"), ("url", "--url")] {
        args.extend(said(context, key).into_iter().flat_map(|value| [flag.to_owned(), value]));
    }
    let token = said(context, "token").map(|token| ("STASIS_TOKEN".to_owned(), token));
    let env = BTreeMap::from_iter(token);
    Ok(ServerEntry { command: command.display().to_string(), args, env })
}

/// A setting that a client would not have: from the command line or the environment.
fn said(context: &Context, key: &str) -> Option<String> {
    let mut all = context.config.settings.iter();
    let setting = all.find(|setting| setting.key.name == key)?;
    let here = matches!(setting.source, ValueSource::Flag(_) | ValueSource::Environment(_));
    setting.value.as_ref().filter(|_| here).map(ToString::to_string)
}

fn read(path: &Path) -> Result<String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Ok(file) if file.len() > LONGEST => return Err(refused(path, "it is too long")),
        _ => {}
    }
    fs::read_to_string(path).at("read", path)
}

/// Writes a file atomically, and keeps the previous one.
fn write(path: &Path, before: &str, after: &str) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).at("make", dir)?;
    let old = fs::metadata(path).ok();
    if old.is_some() {
        let backup = backup(path);
        fs::write(&backup, before).at("write", &backup)?;
        eprintln!("the previous file is {}", backup.display());
    }
    let new = beside(path, "stasis-new");
    fs::write(&new, after).at("write", &new)?;
    if let Some(old) = old {
        fs::set_permissions(&new, old.permissions()).at("change", &new)?;
    }
    fs::rename(&new, path).at("write", path)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{end}"));
    path.with_file_name(name)
}

/// An unused name for the previous file.
fn backup(path: &Path) -> PathBuf {
    let names = (1..).map(|n| beside(path, &format!("before-stasis-{n}")));
    let mut free = names.filter(|name| !name.exists());
    free.next().unwrap_or_else(|| beside(path, "before-stasis"))
}

fn refused(path: &Path, what: &str) -> CliFailure {
    CliFailure::new("mcp.settings", format!("{} was not changed: {what}", path.display()))
        .hint("`--print` prints the entry, to add by hand")
        .exit(Exit::Conflict)
}
