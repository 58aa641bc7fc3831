//! Trees that were killed and have not ended yet.
//!
//!   Tree::kill ── not gone in time ──► remains ── looked at every second ──► gone: dropped
//!
//! A killed process stays as long as the kernel is busy with it: a disk that does not answer, much
//! memory to free, a debugger that holds it. Until it has ended, no other machine may get its user
//! ids, its cgroup or its directory, so the tree keeps them. No caller waits for that.

use crate::tree::Tree;
use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);

struct Remains {
    trees: Vec<Tree>,
    /// Whether a thread checks them.
    watched: bool,
}

static REMAINS: Mutex<Remains> = Mutex::new(Remains { trees: Vec::new(), watched: false });

fn lock() -> MutexGuard<'static, Remains> {
    REMAINS.lock()
}

/// How many killed trees of this process have not ended yet, although they had time to.
pub fn remains() -> usize {
    lock().trees.len()
}

/// Keeps a tree until it has ended.
pub(crate) fn keep(tree: Tree) {
    let mut remains = lock();
    remains.trees.push(tree);
    if !remains.watched {
        let thread = std::thread::Builder::new().name("stasis-remains".into());
        // without a thread they stay, and the next one that comes tries again
        remains.watched = thread.spawn(watch).is_ok();
    }
}

fn watch() {
    loop {
        std::thread::sleep(LOOK);
        let mut remains = lock();
        let (gone, left) = std::mem::take(&mut remains.trees)
            .into_iter()
            .partition(|tree| tree.walls.init.has_ended());
        remains.trees = left;
        remains.watched = !remains.trees.is_empty();
        let over = !remains.watched;
        drop(remains);
        // their directories are removed meanwhile, without holding the list
        drop::<Vec<Tree>>(gone);
        if over {
            return;
        }
    }
}
