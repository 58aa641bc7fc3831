//! Trees that a machine has left, and that end behind its back.
//!
//! The end of a tree takes about as long as a restore, so an undo or a redo does not wait for the
//! tree of the one before. At most a few are ending at a time, because each still takes memory.

use std::collections::VecDeque;
use std::thread::JoinHandle;

/// Trees of one machine that may be ending while it goes on.
const MOST: usize = 2;

#[derive(Default)]
pub(crate) struct Endings {
    threads: VecDeque<JoinHandle<()>>,
    /// The one that still saves and records the state that was left.
    saving: Option<JoinHandle<()>>,
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

    /// The same, for a tree whose state is saved first.
    pub fn save(&mut self, thread: Option<JoinHandle<()>>) {
        self.wait_saved();
        self.saving = thread;
    }

    /// Waits until the states that were left are on record.
    pub fn wait_saved(&mut self) {
        drop(self.saving.take().map(JoinHandle::join));
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
    fn what_is_being_saved_is_waited_for_apart() {
        let mut endings = Endings::default();
        let (tell, told) = mpsc::channel::<()>();
        endings.add(std::thread::spawn(move || told.recv().unwrap_or_default()).into());
        let (save, saved) = mpsc::channel();
        endings.save(std::thread::spawn(move || save.send(()).unwrap_or_default()).into());
        endings.wait_saved();
        assert!(saved.try_recv().is_ok());
        assert_eq!(endings.threads.len(), 1, "the other is not waited for");
        drop(tell);
    }
}
