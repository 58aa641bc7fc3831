//! Trees that a machine has left, and that end behind its back.
//!
//! The end of a tree takes about as long as a restore, so an undo or a redo does not wait for the
//! tree of the one before, only for its state. At most a few are ending at a time, because each
//! still takes memory.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

/// Trees of one machine that may be ending while it goes on.
const MOST: usize = 2;

#[derive(Default)]
pub(crate) struct Endings {
    threads: VecDeque<JoinHandle<()>>,
    /// The one that still saves and records the state that was left, and what tells that it has.
    saving: Option<(JoinHandle<()>, Receiver<()>)>,
}

impl Endings {
    /// A thread that ends a tree; none if it could not be started.
    pub fn add(&mut self, thread: Option<JoinHandle<()>>) {
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.extend(thread);
        while self.threads.len() > MOST {
            drop(self.threads.pop_front().map(JoinHandle::join));
        }
    }

    /// The same, for a tree whose state is saved first. The thread drops the other end of `saved`
    /// when the state is on record, or lost.
    pub fn save(&mut self, thread: Option<JoinHandle<()>>, saved: Receiver<()>) {
        self.wait_saved();
        self.saving = thread.map(|thread| (thread, saved));
    }

    /// Waits until the states that were left are on record. Their trees may still be ending.
    pub fn wait_saved(&mut self) {
        if let Some((thread, saved)) = self.saving.take() {
            // nothing is sent
            let _ = saved.recv();
            self.add(Some(thread));
        }
    }

    /// Waits until all trees have ended.
    pub fn wait(&mut self) {
        self.wait_saved();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Drop for Endings {
    fn drop(&mut self) {
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn few_end_at_a_time_and_all_have_ended_after_a_wait() {
        let mut endings = Endings::default();
        let lines: Vec<_> = (0..MOST)
            .map(|_| {
                let (tell, told) = mpsc::channel::<()>();
                endings.add(std::thread::spawn(move || told.recv().unwrap_or_default()).into());
                tell
            })
            .collect();
        assert_eq!(endings.threads.len(), MOST, "added without a wait");
        endings.wait_saved();
        drop(lines);
        endings.add(std::thread::spawn(|| ()).into());
        assert!(endings.threads.len() <= MOST);
        endings.wait();
        assert!(endings.threads.is_empty());
    }

    #[test]
    fn a_state_is_waited_for_and_its_tree_is_not() {
        let mut endings = Endings::default();
        let (tell, told) = mpsc::channel::<()>();
        let (recorded, is_recorded) = mpsc::channel();
        let (saving, saved) = mpsc::channel();
        let end = move || {
            recorded.send(()).unwrap_or_default();
            drop(saving);
            told.recv().unwrap_or_default();
        };
        endings.save(std::thread::spawn(end).into(), saved);
        endings.wait_saved();
        assert!(is_recorded.try_recv().is_ok());
        assert_eq!(endings.threads.len(), 1, "its tree is still ending");
        drop(tell);
        endings.wait();
        assert!(endings.threads.is_empty());
    }
}
