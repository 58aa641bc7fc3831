//! `stasis cp`: copies files to and from machines.
//!
//!   stasis cp data.csv work:          into the machine's home
//!   stasis cp work:/tmp/plot.png .    out of it
//!   stasis cp -r src work:src         a directory with its contents, links as links
//!   make report | stasis cp - work:report.txt
//!
//! Files are copied in pieces and can have any length. A local file gets its name when it is
//! complete.

use crate::client::{Client, escape};
use crate::context::Context;
use crate::failure::{CliFailure, PathContext, Result};
use crate::show;
use reqwest::Method;
use serde_json::json;
use stasis_api::{FileInfo, FileKind, FileList, Name};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Local path, `machine:path`, or `-` for standard input
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    from: String,
    /// Local path, `machine:path`, or `-` for standard output; relative paths in a machine start at
    /// its home
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    to: String,
    /// Copy directories
    #[arg(short, long)]
    recursive: bool,
}

/// One end of a copy.
enum End {
    Stream,
    Here(PathBuf),
    Machine(Name, String),
}

impl End {
    /// `name:path` is in a machine, unless the part before the colon cannot be its name.
    fn parse(text: &str) -> End {
        let parts = text.split_once(':').and_then(|(name, path)| Some((name.parse().ok()?, path)));
        match parts {
            None if text == "-" => End::Stream,
            Some((name, path)) => End::Machine(name, path.to_owned()),
            None => End::Here(text.into()),
        }
    }
}

/// The copied files, and the progress shown meanwhile.
struct Tally {
    files: u64,
    bytes: u64,
    transfer: show::Transfer,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let (from, to) = (End::parse(&args.from), End::parse(&args.to));
    let transfer = show::Transfer::new("cp", None, context.json);
    let mut tally = Tally { files: 0, bytes: 0, transfer };
    match (from, to) {
        (End::Here(from), End::Machine(name, to)) => {
            let client = context.client()?;
            let into = CopyTarget { client: &client, machine: name.as_str() };
            into.copy(&from, &to, args.recursive, &mut tally)?;
        }
        (End::Machine(name, from), End::Here(to)) => {
            let client = context.client()?;
            let out = Out { client: &client, machine: name.as_str() };
            out.copy(&from, &to, args.recursive, &mut tally)?;
        }
        (End::Stream, End::Machine(name, to)) => {
            let client = context.client()?;
            CopyTarget { client: &client, machine: name.as_str() }.stream(&to, &mut tally)?;
        }
        (End::Machine(name, from), End::Stream) => {
            let client = context.client()?;
            let out = Out { client: &client, machine: name.as_str() };
            let none = show::Transfer::new("cp", None, true);
            out.receive(&from, &mut std::io::stdout(), Path::new("standard output"), &none)?;
            // nothing else may go into the stream
            return Ok(ExitCode::SUCCESS);
        }
        _ => {
            let failure = CliFailure::usage("exactly one path must be in a machine");
            return Err(failure.hint("write that path as machine:path"));
        }
    }
    let Tally { files, bytes, transfer } = tally;
    drop(transfer);
    match context.json {
        true => show::json(&json!({ "files": files, "bytes": bytes })),
        false => eprintln!("{}, {}", show::count_of(files, "file"), show::size(bytes)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The address of a file of a machine.
fn address(machine: &str, rest: &str, path: &str) -> String {
    format!("/v1/machine/{machine}/{rest}path={}", escape::path(path))
}

fn last_name(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| !part.is_empty())
}

fn not_recursive(what: &str) -> CliFailure {
    CliFailure::usage(format!("{what} is a directory")).hint("use -r to copy it")
}

struct CopyTarget<'a> {
    client: &'a Client,
    machine: &'a str,
}

impl CopyTarget<'_> {
    fn copy(&self, from: &Path, to: &str, recursive: bool, tally: &mut Tally) -> Result<()> {
        let about = fs::metadata(from).at("look at", from)?;
        let name = from.file_name().map(|name| name.to_string_lossy().into_owned());
        let to = match name {
            Some(name) if self.is_directory(to)? => joined(to, &name),
            _ => to.to_owned(),
        };
        match about.is_dir() {
            true if !recursive => Err(not_recursive(&from.display().to_string())),
            true => self.directory(from, &to, tally),
            false => self.file(from, &to, tally),
        }
    }

    /// Whether a path of the machine is a directory; its home is.
    fn is_directory(&self, path: &str) -> Result<bool> {
        if path.is_empty() || path.ends_with('/') {
            return Ok(true);
        }
        let found = self.client.get::<FileInfo>(&address(self.machine, "file/stat?", path));
        match found {
            Ok(info) => Ok(info.kind == FileKind::Directory),
            Err(failure) if failure.code == "file.not_found" => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn directory(&self, from: &Path, to: &str, tally: &mut Tally) -> Result<()> {
        for entry in fs::read_dir(from).at("list", from)? {
            let entry = entry.at("list", from)?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type().at("look at", &path)?;
            let to = joined(to, &name);
            if kind.is_dir() {
                self.directory(&path, &to, tally)?;
            } else if kind.is_file() {
                self.file(&path, &to, tally)?;
            } else if kind.is_symlink() {
                self.link(&path, &to, tally)?;
            }
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &str, tally: &mut Tally) -> Result<()> {
        let target = fs::read_link(from).at("read", from)?;
        let how = format!("file?target={}&", escape::path(&target.to_string_lossy()));
        let path = address(self.machine, &how, to);
        let empty = File::open("/dev/null").at("open", Path::new("/dev/null"))?;
        let _: FileInfo = self.client.upload(Method::PUT, &path, empty, &tally.transfer)?;
        tally.files += 1;
        Ok(())
    }

    /// Standard input, to its end.
    fn stream(&self, to: &str, tally: &mut Tally) -> Result<()> {
        if self.is_directory(to)? {
            let failure = CliFailure::usage("standard input has no file name");
            return Err(failure.hint("write the file name after the colon: machine:name"));
        }
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        let input = File::from(input.at("open", Path::new("standard input"))?);
        let path = address(self.machine, "file?", to);
        let info: FileInfo = self.client.upload(Method::PUT, &path, input, &tally.transfer)?;
        tally.files += 1;
        tally.bytes += info.size;
        Ok(())
    }

    fn file(&self, from: &Path, to: &str, tally: &mut Tally) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let file = File::open(from).at("open", from)?;
        let about = file.metadata().at("look at", from)?;
        let mode = format!("file?mode={:o}&", about.permissions().mode() & 0o777);
        let path = address(self.machine, &mode, to);
        tally.transfer.file(&from.display().to_string());
        let info: stasis_api::FileInfo =
            self.client.upload(Method::PUT, &path, file, &tally.transfer)?;
        tally.files += 1;
        tally.bytes += info.size;
        Ok(())
    }
}

fn joined(dir: &str, name: &str) -> String {
    match dir {
        "" => name.to_owned(),
        dir => format!("{}/{name}", dir.trim_end_matches('/')),
    }
}

/// Recreates a link of a machine here. Its target is not checked.
fn link(file: &FileInfo, to: &Path, tally: &mut Tally) -> Result<()> {
    let Some(target) = &file.target else { return Ok(()) };
    match fs::symlink_metadata(to) {
        Ok(there) if there.is_dir() => {
            return Err(CliFailure::usage(format!("{} is a directory", to.display()))
                .hint("remove it, or copy to another directory"));
        }
        Ok(_) => fs::remove_file(to).at("replace", to)?,
        Err(_) => {}
    }
    std::os::unix::fs::symlink(target, to).at("make", to)?;
    tally.files += 1;
    Ok(())
}

/// A machine's directory is never written through a local link, which an earlier copy may have
/// created.
fn refuse_link(to: &Path) -> Result<()> {
    match fs::symlink_metadata(to) {
        Ok(there) if there.is_symlink() => {
            Err(CliFailure::usage(format!("{} is a link, not a directory", to.display()))
                .hint("remove it, or copy to another directory"))
        }
        _ => Ok(()),
    }
}

struct Out<'a> {
    client: &'a Client,
    machine: &'a str,
}

impl Out<'_> {
    fn copy(&self, from: &str, to: &Path, recursive: bool, tally: &mut Tally) -> Result<()> {
        let about: FileInfo = self.client.get(&address(self.machine, "file/stat?", from))?;
        let to = match last_name(from) {
            Some(name) if to.is_dir() => to.join(name),
            _ => to.to_owned(),
        };
        match about.kind {
            FileKind::Directory if !recursive => Err(not_recursive(from)),
            FileKind::Directory => self.directory(&about.path, &to, tally),
            _ => self.file(from, &to, tally),
        }
    }

    fn directory(&self, from: &str, to: &Path, tally: &mut Tally) -> Result<()> {
        fs::create_dir_all(to).at("make", to)?;
        let mut cursor = String::new();
        loop {
            let page = match cursor.is_empty() {
                true => "files?".to_owned(),
                false => format!("files?cursor={}&", escape::path(&cursor)),
            };
            let list: FileList = self.client.get(&address(self.machine, &page, from))?;
            for file in &list.files {
                // a name from a machine cannot lead out of the local directory
                let Some(name) = last_name(&file.path).filter(|name| *name != "..") else {
                    continue;
                };
                match file.kind {
                    FileKind::Directory => {
                        refuse_link(&to.join(name))?;
                        self.directory(&file.path, &to.join(name), tally)?;
                    }
                    FileKind::File => self.file(&file.path, &to.join(name), tally)?,
                    FileKind::Symlink => link(file, &to.join(name), tally)?,
                    FileKind::Other => {}
                }
            }
            match list.next {
                Some(next) => cursor = next,
                None => return Ok(()),
            }
        }
    }

    fn file(&self, from: &str, to: &Path, tally: &mut Tally) -> Result<()> {
        let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = dir.join(format!(".stasis-{}", std::process::id()));
        tally.transfer.file(from);
        let bytes = self.download(from, &temporary, &tally.transfer).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })?;
        fs::rename(&temporary, to).at("write", to)?;
        tally.files += 1;
        tally.bytes += bytes;
        Ok(())
    }

    fn download(&self, from: &str, to: &Path, transfer: &show::Transfer) -> Result<u64> {
        let mut file = File::create(to).at("make", to)?;
        self.receive(from, &mut file, to, transfer)
    }

    fn receive(
        &self,
        from: &str,
        file: &mut dyn Write,
        to: &Path,
        transfer: &show::Transfer,
    ) -> Result<u64> {
        let path = address(self.machine, "file?", from);
        self.client.block(async {
            let none = None::<&serde_json::Value>;
            let mut answer = self.client.send(Method::GET, &path, none, true).await?;
            let mut bytes = 0;
            loop {
                match answer.chunk().await {
                    Ok(Some(part)) => {
                        bytes += part.len() as u64;
                        transfer.add(part.len());
                        file.write_all(&part).at("write", to)?;
                    }
                    Ok(None) => return Ok(bytes),
                    Err(error) => return Err(self.client.cut_off(&error)),
                }
            }
        })
    }
}
