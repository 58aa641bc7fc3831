//! `file` of `run_js`: read here, with the rights of the user who started the program.
//!
//!   call of run_js with a file ─► opened ─► the path it really has ─► with its text to the daemon
//!
//! The daemon opens no path. It decides whether the file may run, by the path that this process
//! found for the open descriptor: links are resolved, and a file that is exchanged after the
//! question is not the one that runs. Without `--allow-run-js-file` and a `run_js_file` policy
//! nothing is opened, whatever a client asks for.

use axum::body::Bytes;
use serde_json::{Value, json};
use stasis_mcpv8::{RUN_FILE, RunFile, V8Setup};
use stasis_sys::{files, libc};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

pub const FLAG: &str = "allow-run-js-file";
const CATEGORY: &str = "run_js_file";
const TOOL: &str = "run_js";
/// The most that the service takes as code.
const LARGEST: u64 = 8 << 20;
/// File systems of the kernel: their files tell about this process and its host.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Whether clients may name files to run. A policy has to allow each one, unless all are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFiles {
    are_open: bool,
}

impl HostFiles {
    pub fn of(setup: &V8Setup) -> HostFiles {
        let has = |policies: &Value| policies.get(CATEGORY).is_some();
        HostFiles { are_open: setup.allow_run_js_file || setup.policies.as_ref().is_some_and(has) }
    }

    /// A request's body with the texts of the files that it names.
    pub async fn body(self, body: Bytes) -> Bytes {
        if !self.are_open {
            return body;
        }
        let original = body.clone();
        let filled = tokio::task::spawn_blocking(move || {
            let mut message: Value = serde_json::from_slice(&body).ok()?;
            self.fill(&mut message).then(|| Bytes::from(message.to_string()))
        });
        filled.await.ok().flatten().unwrap_or(original)
    }

    /// Puts the text of a file in a call that names one; whether there was such a call.
    pub fn fill(self, message: &mut Value) -> bool {
        if let Value::Array(batch) = message {
            // each of them, also after the first
            let filled: Vec<bool> = batch.iter_mut().map(|one| self.fill(one)).collect();
            return filled.contains(&true);
        }
        if !self.are_open || message["method"] != "tools/call" || message["params"]["name"] != TOOL
        {
            return false;
        }
        let Some(arguments) = message["params"]["arguments"].as_object_mut() else { return false };
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let path = text("file").to_owned();
        let has_code = !text("code").is_empty();
        // only this process names the file that it has opened
        arguments.remove(RUN_FILE);
        if !path.is_empty() && !has_code {
            arguments.insert(RUN_FILE.to_owned(), json!(opened(Path::new(&path))));
        }
        true
    }
}

/// A file with its text, or with the reason why there is none.
fn opened(path: &Path) -> RunFile {
    let shown = |path: &Path| path.display().to_string();
    match open(path).and_then(|(file, real)| Ok((text(file)?, real))) {
        Ok((text, real)) => RunFile { path: shown(&real), text: Some(text), error: None },
        Err(error) => {
            // what the policy says of its real path, as far as there is one
            let real = path.canonicalize().unwrap_or_else(|_| plain(path));
            RunFile { path: shown(&real), text: None, error: Some(error) }
        }
    }
}

/// A file that is regular, open, and the path that it has, with every link resolved. Nothing else
/// is opened for reading: that alone starts some devices, and wakes who writes to a pipe.
fn open(path: &Path) -> Result<(File, PathBuf), String> {
    let told = |error: std::io::Error| error.to_string();
    let found = File::options().read(true).custom_flags(libc::O_PATH).open(path).map_err(told)?;
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    let real = std::fs::read_link(own).map_err(told)?;
    let is_file = found.metadata().map_err(told)?.is_file();
    if !is_file || KERNEL.iter().any(|own| real.starts_with(own)) {
        return Err("it is no regular file".into());
    }
    let file = files::reopen(found.as_fd(), libc::O_RDONLY).map_err(told)?;
    Ok((file.into(), real))
}

fn text(file: File) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

/// An absolute path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| Path::new("/").join(path));
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const OPEN: HostFiles = HostFiles { are_open: true };

    fn call(arguments: Value) -> Value {
        json!({ "method": "tools/call", "params": { "name": "run_js", "arguments": arguments } })
    }

    #[test]
    fn only_calls_that_name_a_file_get_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.js");
        std::fs::write(&file, "1").expect("written");
        let real = file.canonicalize().expect("a path");
        let filled = |files: HostFiles, arguments: Value| {
            let mut message = call(arguments);
            files.fill(&mut message);
            message["params"]["arguments"].clone()
        };
        let asked = json!({ "file": file, "opened": { "path": "/x", "text": "2" } });
        let text = json!({ "path": real, "text": "1" });
        assert_eq!(filled(OPEN, asked.clone())["opened"], text);
        assert_eq!(filled(HostFiles { are_open: false }, asked.clone()), asked);
        let both = filled(OPEN, json!({ "file": file, "code": "1" }));
        assert_eq!(both, json!({ "file": file, "code": "1" }));
        let code = filled(OPEN, json!({ "code": "1", "opened": text }));
        assert_eq!(code, json!({ "code": "1" }));
        let mut batch = json!([call(asked.clone()), { "method": "ping" }, call(asked.clone())]);
        assert!(OPEN.fill(&mut batch));
        for at in [0, 2] {
            assert_eq!(batch[at]["params"]["arguments"]["opened"], text);
        }
        let mut other = call(asked);
        other["params"]["name"] = "x".into();
        assert!(!OPEN.fill(&mut other));
        for mut odd in [json!(null), json!(7), json!("x"), json!({ "params": 1 }), call(json!(1))] {
            assert!(!OPEN.fill(&mut odd));
        }
    }

    #[test]
    fn the_path_is_that_of_the_opened_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().canonicalize().expect("a path");
        std::fs::create_dir(at.join("secret")).expect("made");
        std::fs::write(at.join("secret/key.js"), "key").expect("written");
        symlink("secret", at.join("open")).expect("a link");
        symlink("secret/key.js", at.join("link.js")).expect("a link");
        let secret = at.join("secret/key.js").display().to_string();
        for path in ["open/key.js", "link.js", "open/../secret/./key.js"] {
            let found = opened(&at.join(path));
            let found = (found.path, found.text.as_deref());
            assert_eq!(found, (secret.clone(), Some("key")), "{path}");
        }
        let gone = opened(&at.join("secret/../secret/none.js"));
        assert_eq!(gone.path, at.join("secret/none.js").display().to_string());
        assert!(gone.text.is_none() && gone.error.is_some());
    }

    #[test]
    fn what_is_no_text_of_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(made.expect("mkfifo").success());
        symlink("loop", at("loop")).expect("a link");
        std::fs::write(at("odd"), [0xff]).expect("written");
        std::fs::write(at("large"), vec![b' '; (LARGEST + 1) as usize]).expect("written");
        let own = ["pipe", "loop", "odd", "large", ""].map(at);
        let host = ["/proc/self/environ", "/dev/zero", "/sys/kernel/notes"].map(PathBuf::from);
        for path in own.iter().chain(&host) {
            let found = opened(path);
            assert!(found.text.is_none() && found.error.is_some(), "{found:?}");
        }
    }
}
