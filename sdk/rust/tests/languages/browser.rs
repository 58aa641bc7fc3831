//! A page in a real browser, of another origin than the service, that does the scenarios.
//!
//!   page.html ─► browser ─► service, which allows this origin
//!        ▲──── what it says ─┘
//!
//! The page comes from a server of this test, which is also told what it says. A browser that ends
//! or falls silent before the page is over is a failure.

use crate::packages::prepared;
use libtest_mimic::Failed;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Against hangs only: a scenario takes as long as the machine is slow.
const SILENCE: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(200);

/// Where the page will be: known before the service starts, which has to allow it.
pub struct Origin {
    listener: TcpListener,
    pub url: String,
}

impl Origin {
    pub fn new() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        Origin { listener, url }
    }

    /// Opens the page with the files of a project and what it is given; what it said.
    pub fn run(&self, project: &Path, given: &serde_json::Value) -> Result<String, Failed> {
        let (tell, told) = channel();
        let listener = self.listener.try_clone()?;
        let (files, given) = (project.to_owned(), given.to_string());
        // waits for connections until the test's end
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (files, given, tell) = (files.clone(), given.clone(), tell.clone());
                std::thread::spawn(move || drop(serve(&client, &files, &given, &tell)));
            }
        });
        Browser::open(&self.url)?.listen(&told)
    }
}

enum Word {
    Said(String),
    /// With what went wrong, if something did.
    Over(String),
}

struct Browser {
    child: Child,
    dir: tempfile::TempDir,
}

impl Browser {
    fn open(url: &str) -> Result<Browser, Failed> {
        let (dir, at) = (tempfile::tempdir()?, prepared("STASIS_TEST_BROWSER", ".dev/browser"));
        let log = std::fs::File::create(dir.path().join("log"))?;
        let mut command = Command::new(at.join("chromium"));
        command.args(["--headless", "--disable-gpu", "--disable-software-rasterizer"]);
        // the page is ours, and containers have neither namespaces for it nor much of /dev/shm
        command.args(["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"]);
        command.arg(format!("--user-data-dir={}", dir.path().join("profile").display())).arg(url);
        command.env("LD_LIBRARY_PATH", at.join("lib")).env("HOME", dir.path());
        command.env("FONTCONFIG_FILE", at.join("fonts.conf"));
        // a group, so that all its processes end together
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Browser { child, dir })
    }

    /// The page's messages until its end.
    fn listen(mut self, told: &Receiver<Word>) -> Result<String, Failed> {
        let (mut said, mut heard) = (String::new(), Instant::now());
        loop {
            match told.recv_timeout(LOOK) {
                Ok(Word::Said(line)) => said = said + &line + "\n",
                Ok(Word::Over(wrong)) if wrong.is_empty() => return Ok(said),
                Ok(Word::Over(wrong)) => return Err(format!("{said}{wrong}").into()),
                Err(RecvTimeoutError::Disconnected) => return Err("nobody serves the page".into()),
                Err(RecvTimeoutError::Timeout) => {
                    let ended = self.child.try_wait()?;
                    if ended.is_none() && heard.elapsed() < SILENCE {
                        continue;
                    }
                    let log = std::fs::read_to_string(self.dir.path().join("log"))?;
                    return Err(format!("the browser is silent, {ended:?}:\n{said}\n{log}").into());
                }
            }
            heard = Instant::now();
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// One request for a file of the page, or with a word of it.
fn serve(
    mut client: &TcpStream,
    files: &Path,
    given: &str,
    tell: &Sender<Word>,
) -> std::io::Result<()> {
    let (line, body) = read(client)?;
    let mut words = line.split(' ').skip(1);
    let found = match words.next().unwrap_or_default() {
        "/" => Some(("text/html", include_bytes!("page.html").to_vec())),
        "/given" => Some(("application/json", given.as_bytes().to_vec())),
        "/said" => tell.send(Word::Said(body)).ok().map(|()| ("text/plain", Vec::new())),
        "/over" => tell.send(Word::Over(body)).ok().map(|()| ("text/plain", Vec::new())),
        path if path.ends_with(".js") && !path.contains("..") => {
            let file = std::fs::read(files.join(path.trim_start_matches('/')));
            file.ok().map(|text| ("text/javascript", text))
        }
        _ => None,
    };
    let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
    let (kind, content) = found.unwrap_or_default();
    let length = content.len();
    let head = format!("content-type: {kind}\r\ncontent-length: {length}\r\nconnection: close");
    client.write_all(format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n").as_bytes())?;
    client.write_all(&content)
}

/// The first line of a request, and its body.
fn read(client: &TcpStream) -> std::io::Result<(String, String)> {
    let mut lines = BufReader::new(client);
    let (mut first, mut length) = (String::new(), 0);
    lines.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body)?;
    Ok((first, String::from_utf8_lossy(&body).into_owned()))
}
