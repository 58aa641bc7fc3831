//! Runs a program in the root that is being built: as the machine's user, in a jail.
//!
//! Its output is reported line by line, and the end of it kept for the error. A program that
//! exceeds the time limit is killed.

use crate::inside::USER;
use crate::progress::Progress;
use stasis_sys::jail::Jail;
use stasis_sys::{libc, process};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(3600);
const LARGEST_ANSWER: u64 = 4 << 20;
const LARGEST_LINE: u64 = 64 << 10;
const LINES_KEPT: usize = 12;

/// The end of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub ok: bool,
    /// Standard output.
    pub answer: String,
    /// The last lines of standard error.
    pub talk: String,
}

/// A jail in `root`; the caller adds visible paths.
pub fn jail(root: &Path) -> io::Result<Jail> {
    let root = root.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
    Jail::new(root, USER)
}

/// Runs `words` in the jail with exactly these variables.
pub fn run(
    jail: Jail,
    words: &[&str],
    env: &BTreeMap<String, String>,
    progress: &dyn Progress,
) -> io::Result<ProgramOutput> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().envs(env).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    jail.enter(&mut command);
    listen(command.spawn()?, progress)
}

fn listen(mut child: Child, progress: &dyn Progress) -> io::Result<ProgramOutput> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let pid = child.id() as i32;
    let (finished, watch) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if watch.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
                // the pid cannot have been reused: it has not been waited for yet
                let _ = process::kill(pid, libc::SIGKILL);
            }
        });
        let answer = scope.spawn(move || stdout.map_or(Ok(String::new()), answer));
        let talk = stderr.map_or(Ok(String::new()), |stderr| talk(stderr, progress));
        let answer = answer.join().expect("reading does not panic");
        drop(finished);
        Ok(ProgramOutput { ok: child.wait()?.success(), answer: answer?, talk: talk? })
    })
}

fn answer(mut stdout: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    stdout.by_ref().take(LARGEST_ANSWER).read_to_end(&mut bytes)?;
    io::copy(&mut stdout, &mut io::sink())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn talk(stderr: impl Read, progress: &dyn Progress) -> io::Result<String> {
    let mut reader = BufReader::new(stderr);
    let mut last = VecDeque::new();
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(LARGEST_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(Vec::from(last).join("\n"));
        }
        let line = plain(&String::from_utf8_lossy(&line));
        if !line.is_empty() {
            progress.say(&line);
            last.push_back(line);
        }
        while last.len() > LINES_KEPT {
            last.pop_front();
        }
    }
}

/// Without terminal control sequences.
fn plain(line: &str) -> String {
    line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
