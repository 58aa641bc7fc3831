//! The writer: one connection makes every change to the records.
//!
//!   callers ──request──► queue ──► BEGIN, each request in a savepoint, COMMIT ──► answers
//!                          ▲                                        │
//!                          └── requests that come meanwhile wait ───┘ and share the next COMMIT
//!
//! A caller that finds the connection free writes all waiting requests, including its own: alone,
//! it needs no other thread. Requests that arrive meanwhile are written by the writer thread, all
//! at once.
//!
//! Requests take effect in the order in which they were sent. A request that fails is undone alone
//! and answered with its own error. If the transaction itself fails, because the disk is full or a
//! request panicked, it is undone, each of its requests is answered with [`Error::NotWritten`], and
//! the next ones are not affected.
//!
//! No thread waits for the connection while it holds another lock.

use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{JoinHandle, ThreadId};

/// Requests that share one transaction, at most.
const MOST_TOGETHER: usize = 256;

/// The execution of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// With others, in a transaction that survives the end of this process.
    Together,
    /// With others, in a transaction that survives the end of the host.
    Synced,
    /// By itself, in no transaction.
    Alone,
}

/// A sent change. It is certain when its answer arrives.
#[must_use = "a change can fail; wait for its answer"]
pub struct PendingChange<T> {
    answer: Receiver<Result<T>>,
    /// Until its sender waits for it.
    unwritten: Option<Arc<Shared>>,
}

impl<T> PendingChange<T> {
    /// Waits until the change is committed or refused.
    pub fn wait(mut self) -> Result<T> {
        if let Some(shared) = self.unwritten.take() {
            shared.write_if_free();
        }
        self.answer.recv().unwrap_or_else(|_| Err(broke_off()))
    }
}

impl<T> Drop for PendingChange<T> {
    /// A change is written even if its sender does not wait.
    fn drop(&mut self) {
        if let Some(shared) = self.unwritten.take() {
            shared.leave_the_rest();
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the writer failed")]
struct BrokeOff;

#[derive(Debug, thiserror::Error)]
#[error("SQLite aborted the transaction: {0}")]
struct GivenUp(String);

type Cause = Arc<dyn std::error::Error + Send + Sync>;

fn broke_off() -> Error {
    Error::NotWritten(Arc::new(BrokeOff))
}

/// The writer's view of a request, whatever the type of its answer.
trait Request: Send {
    fn how(&self) -> WriteMode;
    /// The thread that sent it, for faults that a test arms.
    fn sender(&self) -> ThreadId;
    /// Applies the change, or returns the error.
    fn apply(&mut self, connection: &Connection) -> std::result::Result<(), String>;
    /// Sends the result to the caller. With a cause, nothing of the transaction was written.
    fn answer(self: Box<Self>, undone: Option<&Cause>);
}

struct Change<T, F> {
    how: WriteMode,
    sender: ThreadId,
    make: Option<F>,
    made: Option<Result<T>>,
    tell: Sender<Result<T>>,
}

impl<T: Send, F> Request for Change<T, F>
where
    F: FnOnce(&Connection) -> Result<T> + Send,
{
    fn how(&self) -> WriteMode {
        self.how
    }

    fn sender(&self) -> ThreadId {
        self.sender
    }

    fn apply(&mut self, connection: &Connection) -> std::result::Result<(), String> {
        let made = self.make.take().map(|make| make(connection));
        let failed = made.as_ref().and_then(|made| made.as_ref().err()).map(ToString::to_string);
        self.made = made;
        failed.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, undone: Option<&Cause>) {
        let made = match undone {
            Some(cause) => Err(Error::NotWritten(cause.clone())),
            None => self.made.unwrap_or_else(|| Err(broke_off())),
        };
        // the sender may have stopped waiting
        let _ = self.tell.send(made);
    }
}

/// State shared by callers and the writer thread.
struct Shared {
    queue: Mutex<Queue>,
    /// Work remains for the writer thread, or it must end.
    left: Condvar,
    session: Mutex<Session>,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Box<dyn Request>>,
    /// The writer thread is to write them.
    left: bool,
    closed: bool,
}

impl Shared {
    /// Writes the waiting changes, unless another thread does.
    fn write_if_free(&self) {
        if let Some(mut session) = self.session.try_lock() {
            self.write_group(&mut session);
            drop(session);
            self.leave_the_rest();
        }
    }

    /// Makes the writer thread write the waiting requests. Every writer calls this when it releases
    /// the connection: a request that found it busy would otherwise wait for ever.
    fn leave_the_rest(&self) {
        let mut queue = self.queue.lock();
        if !queue.requests.is_empty() && !queue.left {
            queue.left = true;
            self.left.notify_one();
        }
    }

    fn write_group(&self, session: &mut Session) {
        let group = self.queue.lock().take_group();
        let own = stasis_fault::owner();
        session.carry_out(group);
        stasis_fault::adopt(own);
    }

    /// The writer thread: runs until it must end and nothing is left.
    fn serve(&self) {
        loop {
            {
                let mut queue = self.queue.lock();
                while !queue.left && !queue.closed {
                    self.left.wait(&mut queue);
                }
                if queue.requests.is_empty() {
                    queue.left = false;
                    if queue.closed {
                        return;
                    }
                    continue;
                }
            }
            self.write_group(&mut self.session.lock());
        }
    }
}

impl Queue {
    /// The next requests that share a transaction; one that must be alone is the last of them.
    fn take_group(&mut self) -> Vec<Box<dyn Request>> {
        let mut group = Vec::new();
        while group.len() < MOST_TOGETHER
            && let Some(next) = self.requests.pop_front()
        {
            let alone = next.how() == WriteMode::Alone;
            group.push(next);
            if alone {
                break;
            }
        }
        group
    }
}

/// The way to the writer, which ends when this is dropped.
pub(crate) struct RecordsWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RecordsWriter {
    pub fn start(connection: Connection) -> std::io::Result<RecordsWriter> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            left: Condvar::new(),
            session: Mutex::new(Session { connection, synced: false }),
        });
        let thread = std::thread::Builder::new().name("stasis-records".into());
        let own = shared.clone();
        let thread = thread.spawn(move || own.serve())?;
        Ok(RecordsWriter { shared, thread: Some(thread) })
    }

    /// Sends a change. Changes take effect in the order in which they were sent.
    pub fn send<T: Send + 'static>(
        &self,
        how: WriteMode,
        make: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> PendingChange<T> {
        let (tell, answer) = mpsc::channel();
        let sender = stasis_fault::owner();
        let change = Change { how, sender, make: Some(make), made: None, tell };
        self.shared.queue.lock().requests.push_back(Box::new(change));
        PendingChange { answer, unwritten: Some(self.shared.clone()) }
    }
}

impl Drop for RecordsWriter {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.left.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connection that writes, and whether its commits are synced now.
struct Session {
    connection: Connection,
    synced: bool,
}

impl Session {
    fn carry_out(&mut self, mut group: Vec<Box<dyn Request>>) {
        let alone = group.pop_if(|last| last.how() == WriteMode::Alone);
        if !group.is_empty() {
            self.write(group);
        }
        if let Some(mut request) = alone {
            let ran = catch_unwind(AssertUnwindSafe(|| request.apply(&self.connection)));
            request.answer(ran.is_err().then(|| Arc::new(BrokeOff) as Cause).as_ref());
        }
    }

    /// Writes a group in one transaction, then answers all callers.
    fn write(&mut self, mut group: Vec<Box<dyn Request>>) {
        let written = catch_unwind(AssertUnwindSafe(|| self.transaction(&mut group)));
        let written = written.unwrap_or_else(|_| Err(Arc::new(BrokeOff)));
        if written.is_err() && !self.connection.is_autocommit() {
            // if this fails, so does the next transaction, which tries again
            let _ = self.execute("ROLLBACK");
        }
        let undone = written.err();
        group.into_iter().for_each(|request| request.answer(undone.as_ref()));
    }

    fn transaction(&mut self, group: &mut [Box<dyn Request>]) -> std::result::Result<(), Cause> {
        self.sync_commits(group.iter().any(|one| one.how() == WriteMode::Synced)).map_err(cause)?;
        self.execute("BEGIN IMMEDIATE").map_err(cause)?;
        for request in group {
            stasis_fault::adopt(request.sender());
            self.execute("SAVEPOINT request").map_err(cause)?;
            if let Err(why) = request.apply(&self.connection) {
                if self.connection.is_autocommit() {
                    return Err(Arc::new(GivenUp(why)));
                }
                self.execute("ROLLBACK TO request").map_err(cause)?;
            }
            self.execute("RELEASE request").map_err(cause)?;
        }
        stasis_fault::point("records.commit").map_err(cause)?;
        self.execute("COMMIT").map_err(cause)
    }

    /// Whether the next commits wait until they are on disk.
    fn sync_commits(&mut self, synced: bool) -> rusqlite::Result<()> {
        if self.synced != synced {
            let level = if synced { "FULL" } else { "NORMAL" };
            self.connection.execute_batch(&format!("PRAGMA synchronous = {level}"))?;
            self.synced = synced;
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

fn cause(error: impl std::error::Error + Send + Sync + 'static) -> Cause {
    Arc::new(error)
}
