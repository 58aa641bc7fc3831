//! What the engine does not carry yet. The list can only shrink: a gap that is none any more fails
//! its test until its line is deleted.

use crate::common::{Failure, Result};
use crate::stage::Stage;

/// (program, events, words of the engine's refusal). Events: one by name, `*` for all with a capture,
/// `restore` for all that restore.
#[rustfmt::skip]
pub const KNOWN_GAPS: &[(&str, &str, &str)] = &[
    ("blocked_calls_eintr", "*", "sockets are not carried yet"),
    ("file_locks", "*", "file locks are not carried yet"),
    ("directories", "*", "an O_PATH descriptor is not supported"),
    ("fifos", "restore", "a FIFO is not carried yet"),
    ("inotifies", "*", "inotify is not supported"),
    ("inotify_pending", "*", "inotify is not supported"),
    ("memfds", "*", "a deleted file (/memfd:mapped (deleted))"),
    ("unix_pairs", "*", "sockets are not carried yet"),
    ("unix_listening", "*", "sockets are not carried yet"),
    ("ptys", "*", "device /dev/pts/ptmx (5:2) is not supported"),
    ("shared_descriptors", "*", "sockets are not carried yet"),
    ("tcp_listening", "*", "sockets are not carried yet"),
    ("tcp_inside", "*", "sockets are not carried yet"),
    ("udp", "*", "sockets are not carried yet"),
    ("madvise", "*", "memory marked MADV_DONTFORK is not carried yet"),
    ("many_fds", "*", "sockets are not carried yet"),
    ("python_sqlite_transaction", "*", "file locks are not carried yet"),
    ("python_asyncio_tasks", "*", "sockets are not carried yet"),
    ("js_timers", "*", "memory marked MADV_DONTFORK is not carried yet"),
    ("js_workers", "*", "memory marked MADV_DONTFORK is not carried yet"),
    ("js_child_process", "*", "sockets are not carried yet"),
    ("js_wasm", "*", "memory marked MADV_DONTFORK is not carried yet"),
    ("js_promises_streams", "*", "memory marked MADV_DONTFORK is not carried yet"),
    ("deno_pending_timer", "*", "sockets are not carried yet"),
];

/// The reason why a pair is not expected to work.
pub fn of(program: &str, event: &str) -> Option<&'static str> {
    let applies = |gap: &&(&str, &str, &str)| {
        let covers = match gap.1 {
            "*" => event != "plain",
            "restore" => !["plain", "capture"].contains(&event),
            other => other == event,
        };
        gap.0 == program && covers
    };
    KNOWN_GAPS.iter().find(applies).map(|gap| gap.2)
}

/// A gap is closed, or refused with its reason while the source runs on.
pub fn must_be_clean(stage: &mut Stage, result: Result<()>, reason: &str) -> Result<()> {
    match result {
        Ok(()) => {
            Err(Failure::Program(format!("works now: delete its line in KNOWN_GAPS ({reason})")))
        }
        Err(Failure::Engine { doing, error }) if error.to_string().contains(reason) => {
            let source = stage.source.as_mut();
            source.map_or(Ok(()), |source| source.check()).map_err(|failure| {
                Failure::Program(format!("{doing}: {error}; and then the source {failure}"))
            })
        }
        Err(other) => Err(other),
    }
}
