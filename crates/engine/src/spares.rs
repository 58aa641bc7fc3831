//! Clones forked ahead: each waits at its gate, in walls of its own, for an image to become.
//!
//!   restore ──take──► shelf of a template and a root ◄──add── a thread, while nobody waits
//!
//! Forking is the longest step of a restore, and needs to know no more than the template, the walls
//! and the root's pid. A shelf is remembered when it is asked for, and filled from the second time
//! on: machines with files of their own each have a root of their own, which is rarely asked for
//! again soon. When a shelf is found empty it holds twice as many from then on; after a while
//! without use it is emptied. Images with sockets do without: those are made under pids that a
//! clone which is already there would have taken. One that has ended is passed over; if none can be
//! forked, restores fork for themselves.

use crate::clone::Clone;
use crate::error::{Doing, Result};
use crate::restore::Ground;
use crate::template::Template;
use crate::turns::Turns;
use crate::walls::WallsPool;
use stasis_image::ImageId;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// On one shelf: once it is asked for again, and at most.
const FIRST: usize = 2;
const MOST: usize = 64;
/// Shelves remembered.
const SHELVES: usize = 8;
/// Quiet time after somebody asked before more are forked, so as not to compete with them.
const QUIET: Duration = Duration::from_millis(8);
/// After this long without use a shelf is emptied.
const LULL: Duration = Duration::from_secs(15);

/// What a spare can be used for.
#[derive(Clone, PartialEq, Eq)]
pub struct Use {
    /// The image whose template it is forked from.
    pub template: ImageId,
    pub lower: Vec<String>,
    /// The root's number inside.
    pub pid: i32,
}

struct Shelf<T> {
    fit: Use,
    standing: Vec<T>,
    wanted: usize,
    asked: Instant,
}

/// Most recently asked first. Pure, so that it can be tested without clones.
struct Shelves<T>(VecDeque<Shelf<T>>);

impl<T> Default for Shelves<T> {
    fn default() -> Shelves<T> {
        Shelves(VecDeque::new())
    }
}

impl<T> Shelves<T> {
    fn take(&mut self, fit: &Use, now: Instant) -> Option<T> {
        let known = self.0.iter().position(|shelf| shelf.fit == *fit);
        let mut shelf = match known.and_then(|index| self.0.remove(index)) {
            Some(shelf) => shelf,
            None => Shelf { fit: fit.clone(), standing: Vec::new(), wanted: 0, asked: now },
        };
        if known.is_some() && shelf.standing.is_empty() {
            shelf.wanted = (2 * shelf.wanted).clamp(FIRST, MOST);
        }
        shelf.asked = now;
        let one = shelf.standing.pop();
        self.0.push_front(shelf);
        one
    }

    /// One that has fewer than wanted, when nobody asked for any just now.
    fn lacking(&self, now: Instant) -> Option<Use> {
        let last = self.0.front()?.asked;
        let lacks = |shelf: &&Shelf<T>| shelf.standing.len() < shelf.wanted;
        let quiet = now.duration_since(last) >= QUIET;
        self.0.iter().find(lacks).filter(|_| quiet).map(|shelf| shelf.fit.clone())
    }

    fn add(&mut self, fit: &Use, one: T) {
        if let Some(shelf) = self.0.iter_mut().find(|shelf| shelf.fit == *fit) {
            shelf.standing.push(one);
        }
    }

    /// Takes out what was not asked for in a while, and shelves beyond the last one remembered.
    fn thin_out(&mut self, now: Instant) -> Vec<Shelf<T>> {
        let fresh = self.0.iter().take(SHELVES);
        let kept = fresh.take_while(|shelf| now.duration_since(shelf.asked) < LULL).count();
        self.0.drain(kept..).collect()
    }

    fn remove(&mut self, gone: impl Fn(&Use) -> bool) -> Vec<Shelf<T>> {
        let all = std::mem::take(&mut self.0);
        let (old, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|shelf| gone(&shelf.fit));
        self.0 = kept.into();
        old
    }
}

struct Shared {
    walls: Arc<WallsPool>,
    captures: Arc<Turns>,
    shelves: Mutex<Shelves<Ground>>,
    /// Templates of the shelves, to fork from while they are there.
    templates: Mutex<VecDeque<Weak<Template>>>,
    asked: Condvar,
    over: AtomicBool,
}

/// Ends with its thread, and everything that waits.
pub struct Spares {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.asked.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Spares {
    pub fn start(walls: Arc<WallsPool>, captures: Arc<Turns>) -> Result<Spares> {
        let shared = Arc::new(Shared {
            walls,
            captures,
            shelves: Mutex::default(),
            templates: Mutex::default(),
            asked: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("stasis-spares".into());
        let thread = thread.spawn(move || own.keep_filled()).doing(|| "start a thread".into())?;
        Ok(Spares { shared, thread: Some(thread) })
    }

    /// Walls with a clone that waits in them, if there are any of this use.
    pub fn take(&self, fit: &Use, template: &Arc<Template>) -> Option<Ground> {
        self.shared.remember(template);
        let next = || self.shared.shelves().take(fit, Instant::now());
        let mut taken = next();
        while let Some(dead) = taken.take_if(|ground| !waits(ground)) {
            drop(dead);
            taken = next();
        }
        self.shared.asked.notify_one();
        taken
    }

    /// Lets go of those that were forked from a template.
    pub fn forget(&self, template: ImageId) {
        drop(self.shared.remove(|fit| fit.template == template));
    }

    /// Lets go of those around layers that are gone.
    pub fn forget_layers(&self, layers: &[PathBuf]) {
        let gone = |dir: &String| layers.iter().any(|layer| Path::new(dir) == layer);
        drop(self.shared.remove(|fit| fit.lower.iter().any(gone)));
    }

    pub fn clear(&self) {
        drop(self.shared.remove(|_| true));
    }
}

fn waits(ground: &Ground) -> bool {
    ground.spare.as_ref().is_some_and(Clone::is_waiting)
}

impl Shared {
    fn shelves(&self) -> MutexGuard<'_, Shelves<Ground>> {
        self.shelves.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn remove(&self, gone: impl Fn(&Use) -> bool) -> Vec<Shelf<Ground>> {
        self.shelves().remove(gone)
    }

    fn remember(&self, template: &Arc<Template>) {
        let mut known = self.templates.lock().unwrap_or_else(|poison| poison.into_inner());
        known.retain(|known| known.upgrade().is_some_and(|known| !Arc::ptr_eq(&known, template)));
        known.push_front(Arc::downgrade(template));
        known.truncate(SHELVES);
    }

    fn template(&self, image: ImageId) -> Option<Arc<Template>> {
        let known = self.templates.lock().unwrap_or_else(|poison| poison.into_inner());
        let mut alive = known.iter().filter_map(Weak::upgrade);
        alive.find(|template| template.image().is_some_and(|held| held.id == image))
    }

    fn keep_filled(&self) {
        const LOOK: Duration = Duration::from_millis(4);
        const IDLE: Duration = Duration::from_millis(200);
        while !self.over.load(Ordering::Relaxed) {
            let old = self.shelves().thin_out(Instant::now());
            drop(old);
            let lacking = self.shelves().lacking(Instant::now());
            match lacking.filter(|_| !self.captures.any_taken()) {
                Some(fit) => self.fill(&fit),
                None => {
                    let shelves = self.shelves();
                    let busy = shelves.0.iter().any(|shelf| shelf.standing.len() < shelf.wanted);
                    drop(self.asked.wait_timeout(shelves, if busy { LOOK } else { IDLE }));
                }
            }
        }
        self.remove(|_| true);
    }

    /// One more; a shelf that cannot be filled is forgotten.
    fn fill(&self, fit: &Use) {
        match self.fork(fit) {
            Some(ground) => self.shelves().add(fit, ground),
            None => drop(self.remove(|other| other == fit)),
        }
    }

    fn fork(&self, fit: &Use) -> Option<Ground> {
        let template = self.template(fit.template)?;
        let walls = self.walls.take(fit.lower.clone()).ok()?;
        let clone = Clone::fork_into(&template, &walls, fit.pid).ok()?;
        Some(Ground { walls, spare: Some(clone) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Use {
        let template = ImageId::of(b"a template");
        Use { template, lower: vec![name.into()], pid: 2 }
    }

    #[test]
    fn a_shelf_is_filled_from_the_second_time_on_and_grows_with_bursts() {
        let (mut shelves, start) = (Shelves::<u8>::default(), Instant::now());
        let later = start + QUIET;
        assert!(shelves.take(&of("a"), start).is_none());
        assert!(shelves.lacking(later).is_none());
        assert!(shelves.take(&of("a"), start).is_none());
        assert!(shelves.lacking(start).is_none(), "somebody asked just now");
        for _ in 0..FIRST {
            assert!(shelves.lacking(later).is_some());
            shelves.add(&of("a"), 1);
        }
        assert!(shelves.lacking(later).is_none());
        for _ in 0..FIRST {
            assert!(shelves.take(&of("a"), later).is_some());
        }
        assert!(shelves.take(&of("a"), later).is_none());
        assert_eq!(shelves.0[0].wanted, 2 * FIRST);
    }

    #[test]
    fn what_is_not_asked_for_goes_and_so_does_what_is_forgotten() {
        let (mut shelves, start) = (Shelves::<u8>::default(), Instant::now());
        shelves.take(&of("old"), start);
        shelves.add(&of("old"), 1);
        shelves.take(&of("new"), start + LULL);
        assert_eq!(shelves.thin_out(start + LULL).len(), 1);
        assert_eq!(shelves.remove(|fit| fit.lower == ["new"]).len(), 1);
        assert!(shelves.0.is_empty());
    }
}
