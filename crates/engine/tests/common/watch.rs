//! Turns a hang into a failure that says where.

use super::{Failure, Result};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The current step of a test.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<String>>);

impl Watch {
    pub fn doing(&self, what: impl Into<String>) {
        *self.0.lock().unwrap_or_else(|poison| poison.into_inner()) = what.into();
    }

    pub fn last(&self) -> String {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner()).clone()
    }
}

/// Runs `body` in a thread of its own and waits no longer than `limit`. A call into the engine
/// cannot be interrupted; a thread that hangs in one is left behind until the process ends.
pub fn within<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce(Watch) -> Result<T> + Send + 'static,
) -> Result<T> {
    let watch = Watch::default();
    let (sender, receiver) = mpsc::channel();
    let inside = watch.clone();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(body(inside));
    });
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            let seconds = limit.as_secs();
            Err(Failure::Program(format!("hangs ({seconds} s) in: {}", watch.last())))
        }
        Err(RecvTimeoutError::Disconnected) => Err(panicked(thread, &watch)),
    }
}

fn panicked(thread: std::thread::JoinHandle<()>, watch: &Watch) -> Failure {
    let panic = thread.join().err();
    let text = panic.as_ref().and_then(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied())
    });
    Failure::Program(format!("panic in: {}: {}", watch.last(), text.unwrap_or("(no message)")))
}
