//! Threads with the engine's privileges, for callers that have dropped theirs.
//!
//!   service thread ──job──► queue ──► idle worker
//!   (restricted)              └─ none idle ─► starter ──► new worker, driver
//!
//! A thread inherits the restrictions of the thread that starts it. The service's threads are
//! restricted (`stasis_sandbox::service`), so they cannot start threads for the engine. They send a
//! job to the starter, a thread as unrestricted as the one that opened the first host of this
//! process.
//!
//! If a job panics, its caller gets an error and the worker continues.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

/// The default of tokio's blocking pool.
const MOST_WORKERS: usize = 512;
/// Idle time after which a worker ends.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// A thread to start, and the channel for the result.
struct Start {
    name: &'static str,
    run: Job,
    started: mpsc::Sender<io::Result<()>>,
}

/// A job did not finish.
#[derive(Debug, thiserror::Error)]
#[error("the job failed")]
pub struct JobAborted;

struct Threads {
    starter: mpsc::Sender<Start>,
    workers: Mutex<Workers>,
    news: Condvar,
}

#[derive(Default)]
struct Workers {
    jobs: VecDeque<Job>,
    idle: usize,
    all: usize,
}

impl Threads {
    fn lock(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock()
    }
}

static THREADS: OnceLock<Threads> = OnceLock::new();

/// Starts the starter with the rights of this thread, unless this process has one.
pub(crate) fn prepare() -> io::Result<()> {
    if THREADS.get().is_some() {
        return Ok(());
    }
    let (starter, starts) = mpsc::channel::<Start>();
    std::thread::Builder::new().name("stasis-starter".into()).spawn(move || {
        for Start { name, run, started } in starts {
            let thread = std::thread::Builder::new().name(name.into()).spawn(run);
            let _ = started.send(thread.map(drop));
        }
    })?;
    // two at once: the second one drops its starter
    let _ = THREADS.set(Threads { starter, workers: Mutex::default(), news: Condvar::new() });
    Ok(())
}

/// Opening a host has started it; other users are not restricted.
fn threads() -> &'static Threads {
    prepare().expect("the first thread starts");
    THREADS.get().expect("prepared")
}

/// Starts a thread with the engine's privileges, on behalf of any thread.
pub(crate) fn spawn(name: &'static str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (started, answer) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts threads has exited");
    let start = Start { name, run: Box::new(run), started };
    threads().starter.send(start).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Runs a job that may block, or needs the engine's privileges, on a thread that has them.
pub async fn block<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JobAborted> {
    let answer = Arc::new(Mutex::new(None));
    let place = answer.clone();
    begin(Box::new(move || {
        let done = job();
        *place.lock() = Some(done);
    }))
    .await
    .map_err(|_| JobAborted)?;
    let done = answer.lock().take();
    done.ok_or(JobAborted)
}

/// Not generic, because channels of a hundred types would take long to compile. Without a message,
/// the job panicked or was dropped.
fn begin(job: Job) -> tokio::sync::oneshot::Receiver<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    give(Box::new(move || {
        job();
        let _ = tell.send(());
    }));
    told
}

/// The same for a job without a waiting caller.
pub fn hand_over(job: impl FnOnce() + Send + 'static) {
    give(Box::new(job));
}

fn give(job: Job) {
    let all = threads();
    let mut workers = all.lock();
    workers.jobs.push_back(job);
    if workers.jobs.len() <= workers.idle || workers.all >= MOST_WORKERS {
        drop(workers);
        all.news.notify_one();
        return;
    }
    workers.all += 1;
    drop(workers);
    if let Err(error) = spawn("stasis-worker", work) {
        tracing::error!(%error, "cannot start a thread");
        let mut workers = all.lock();
        workers.all -= 1;
        if workers.all == 0 {
            // no worker is left: waiting callers get an error
            workers.jobs.clear();
        }
    }
}

fn work() {
    while let Some(job) = next() {
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a job failed");
        }
    }
}

/// The next job; none after a long idle time.
fn next() -> Option<Job> {
    let all = threads();
    let mut workers = all.lock();
    loop {
        if let Some(job) = workers.jobs.pop_front() {
            return Some(job);
        }
        workers.idle += 1;
        let timeout = all.news.wait_for(&mut workers, IDLE);
        workers.idle -= 1;
        if timeout.timed_out() && workers.jobs.is_empty() {
            workers.all -= 1;
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::mpsc::RecvTimeoutError;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    #[test]
    fn jobs_run_at_once_and_a_panic_ends_one_alone() {
        prepare().expect("a starter");
        let (tell, told) = mpsc::channel();
        // each waits for the other, so neither can wait for a worker
        let waiting = std::thread::spawn(move || {
            wait(block(move || told.recv_timeout(Duration::from_secs(60))))
        });
        wait(block(move || tell.send(()))).expect("done").expect("heard");
        let heard: Result<(), RecvTimeoutError> = waiting.join().expect("a thread").expect("done");
        heard.expect("they ran at once");
        let broken: Result<(), JobAborted> = wait(block(|| panic!("on purpose")));
        broken.expect_err("it broke off");
        assert_eq!(wait(block(|| 7)).expect("workers go on"), 7);
    }

    #[test]
    fn a_thread_has_the_rights_of_the_starter_whoever_asks() {
        prepare().expect("a starter");
        let asking = std::thread::spawn(|| {
            stasis_sys::process::drop_capabilities().expect("given up");
            let (tell, told) = mpsc::channel();
            spawn("stasis-test", move || {
                let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
                tell.send(status).expect("somebody waits");
            })
            .expect("started");
            let own = std::fs::read_to_string("/proc/thread-self/status").expect("status");
            (own, told.recv().expect("a status"))
        });
        let effective = |status: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("sets");
            u64::from_str_radix(line.trim(), 16).expect("a number")
        };
        let (own, theirs) = asking.join().expect("a thread");
        assert_eq!(effective(&own), 0);
        assert_ne!(effective(&theirs), 0);
    }
}
