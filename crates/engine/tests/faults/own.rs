//! Tests in processes of their own.
//!
//! A test starts this program again, for itself alone, with `STASIS_FAULTS_ROLE` set; the second
//! one runs the body. So a test may count its descendants, mount, be killed, or hang.

use stasis_sys::{libc, process};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

const ROLE: &str = "STASIS_FAULTS_ROLE";
/// No test takes this long: one that does hangs, and that is a failure.
const LIMIT: Duration = Duration::from_secs(900);
/// Nor does anything a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `body` in a process of its own; `name` is the test's full name.
pub fn process(name: &str, body: impl FnOnce()) {
    if std::env::var(ROLE).as_deref() == Ok(name) {
        adopt_orphans();
        return body();
    }
    let status = wait(start(name, name, &[]), LIMIT);
    assert!(status.success(), "{name} in its own process: {status}");
}

/// A second role of a test, played by a further process; see `is`.
pub fn start(name: &str, role: &str, environment: &[(&str, &str)]) -> Child {
    let program = std::env::current_exe().expect("a test has a program file");
    Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .envs(environment.iter().copied())
        .spawn()
        .expect("a test can be started again")
}

pub fn is(role: &str) -> bool {
    std::env::var(ROLE).as_deref() == Ok(role)
}

/// Waits, but not for ever.
pub fn wait(mut child: Child, limit: Duration) -> ExitStatus {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("process {} hangs: not done in {limit:?}", child.id());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGKILL)
}

/// Orphans below this process become its children, and can be seen.
fn adopt_orphans() {
    process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0).expect("become a subreaper");
}

/// Waits until this process has no descendants; those that are left after a long time.
pub fn left_behind() -> Vec<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        while let Ok(Some(_)) = process::wait(-1, libc::WNOHANG | libc::__WALL) {}
        let left = descendants();
        if left.is_empty() || Instant::now() > end {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every process below this one, as "pid name state".
pub fn descendants() -> Vec<String> {
    let mut parents = std::collections::HashMap::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else { continue };
        let mut after = stat[close + 2..].split(' ');
        let state = after.next().unwrap_or("?").to_owned();
        let parent: u32 = after.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        parents.insert(pid, (parent, format!("{pid} {} {state}", &stat[open + 1..close])));
    }
    let own = std::process::id();
    let below = |mut pid: u32| {
        // a chain of parents that changes while it is read may loop
        for _ in 0..64 {
            match parents.get(&pid) {
                Some((parent, _)) if *parent == own => return true,
                Some((parent, _)) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    let mut all: Vec<String> =
        parents.iter().filter(|(pid, _)| below(**pid)).map(|(_, (_, text))| text.clone()).collect();
    all.sort();
    all
}

/// Descendants that have not ended (zombies are their parents' to reap), and are not inits: the
/// engine keeps a changing number of empty machines ready.
pub fn living() -> Vec<String> {
    let counts = |text: &String| !text.ends_with(" Z") && !text.contains(" stasis-init ");
    descendants().into_iter().filter(counts).collect()
}

/// Waits until something holds.
pub fn until(holds: impl Fn() -> bool, what: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{}", what());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until this many descendants live.
pub fn settles_at(count: usize) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = living();
        if now.len() == count {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("{count} processes before, now {}: {now:?}", now.len()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo")
}
