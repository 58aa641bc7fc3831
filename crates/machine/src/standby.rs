//! Trees that stand ready before anybody asked: templates restored ahead, told nothing yet.
//!
//!   new machine ──take──► shelf of its template ◄──add── a thread, while nobody waits
//!
//! A new machine then begins with the order that tells it its name. A shelf starts with few; when
//! it is found empty it holds twice as many from then on, so that a host that sees bursts is ready
//! for the next, and goes back to few when it was not asked for a while. A tree that ended while it
//! stood (memory ran out) is passed over; if none can be made, machines start without.

use crate::error::Result;
use crate::host::Inner;
use crate::line::Line;
use crate::live::parse_image;
use stasis_engine::Tree;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// On one shelf: at first, and at most.
const FIRST: usize = 2;
const MOST: usize = 64;
/// Templates with a shelf.
const SHELVES: usize = 4;
/// Quiet time after somebody took one before more are made, so as not to compete with them.
const QUIET: Duration = Duration::from_millis(10);
/// After this long without use a shelf goes back to few, and later to none.
const LULL: Duration = Duration::from_secs(20);
const LONG_LULL: Duration = Duration::from_secs(300);

/// A machine's process and the line to its agent, before it has a name.
pub struct Stood {
    pub tree: Tree,
    pub line: Line,
}

/// What stands ready, and what is wanted: pure, so that it can be tested without trees.
struct Shelves<T>(HashMap<String, Shelf<T>>);

struct Shelf<T> {
    standing: Vec<T>,
    wanted: usize,
    asked: Instant,
}

impl<T> Shelves<T> {
    /// One that stands ready around an image, which somebody wants now.
    fn take(&mut self, image: &str, now: Instant) -> Option<T> {
        if !self.0.contains_key(image) {
            self.make_room();
        }
        let new = || Shelf { standing: Vec::new(), wanted: FIRST, asked: now };
        let shelf = self.0.entry(image.to_owned()).or_insert_with(new);
        if shelf.standing.is_empty() {
            shelf.wanted = (2 * shelf.wanted).min(MOST);
        }
        shelf.asked = now;
        shelf.standing.pop()
    }

    /// Forgets the shelf that was asked longest ago when there are as many as there may be.
    fn make_room(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, shelf)| shelf.asked);
        if self.0.len() >= SHELVES
            && let Some(image) = oldest.map(|(image, _)| image.clone())
        {
            self.0.remove(&image);
        }
    }

    /// An image with fewer standing around it than wanted, when nobody asked just now.
    fn lacking(&self, now: Instant) -> Option<String> {
        let quiet = |shelf: &Shelf<T>| now.duration_since(shelf.asked) >= QUIET;
        let mut shelves = self.0.iter();
        let lacks = |shelf: &Shelf<T>| quiet(shelf) && shelf.standing.len() < shelf.wanted;
        shelves.find(|(_, shelf)| lacks(shelf)).map(|(image, _)| image.clone())
    }

    fn add(&mut self, image: &str, one: T) {
        if let Some(shelf) = self.0.get_mut(image) {
            shelf.standing.push(one);
        }
    }

    /// Takes out what nobody has asked for in a while.
    fn thin_out(&mut self, now: Instant) -> Vec<T> {
        let mut gone = Vec::new();
        for shelf in self.0.values_mut() {
            let idle = now.duration_since(shelf.asked);
            if idle >= LULL {
                shelf.wanted = if idle >= LONG_LULL { 0 } else { FIRST };
                let keep = shelf.wanted.min(shelf.standing.len());
                gone.extend(shelf.standing.drain(keep..));
            }
        }
        gone
    }
}

pub struct Standby {
    shelves: Mutex<Shelves<Stood>>,
    asked: Condvar,
    over: AtomicBool,
}

impl Standby {
    pub fn new() -> Standby {
        Standby {
            shelves: Mutex::new(Shelves(HashMap::new())),
            asked: Condvar::new(),
            over: AtomicBool::new(false),
        }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves<Stood>> {
        self.shelves.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// A tree of this image that stands ready, if one does.
    pub fn take(&self, image: &str) -> Option<Stood> {
        let mut taken = self.shelves().take(image, Instant::now());
        while let Some(dead) = taken.take_if(|stood| !stood.tree.is_alive()) {
            drop(dead);
            taken = self.shelves().take(image, Instant::now());
        }
        self.asked.notify_one();
        taken
    }

    /// Lets go of what stands around an image that is no template any more.
    pub fn forget(&self, image: &str) {
        let gone = self.shelves().0.remove(image);
        drop(gone);
    }

    /// Lets go of all that stands. Shelves fill again when they are asked.
    pub fn clear(&self) {
        let gone = std::mem::take(&mut self.shelves().0);
        drop(gone);
    }

    /// Ends everything that stands; nothing is made after this.
    pub fn end(&self) {
        {
            // not between the thread's last look and its wait, which would then be a long one
            let _shelves = self.shelves();
            self.over.store(true, Ordering::Relaxed);
        }
        self.asked.notify_one();
        self.clear();
    }
}

/// The thread that makes trees ready; it ends with `Standby::end`.
pub fn start(host: &Arc<Inner>) -> std::io::Result<JoinHandle<()>> {
    let host = Arc::downgrade(host);
    std::thread::Builder::new().name("stasis-standby".into()).spawn(move || keep_ready(&host))
}

fn keep_ready(host: &Weak<Inner>) {
    /// After a failure, which whoever asks next meets and reports.
    const AFTER_FAILURE: Duration = Duration::from_secs(5);
    const LOOK: Duration = Duration::from_secs(5);
    const LATER: Duration = Duration::from_millis(20);
    while let Some(host) = host.upgrade() {
        let standby = &host.standby;
        if standby.over.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let gone = standby.shelves().thin_out(now);
        drop(gone);
        let lacking = standby.shelves().lacking(now);
        let wait = match lacking {
            Some(image) if !host.may_stand(&image) => LATER,
            Some(image) => match stand(&host, &image, "") {
                Ok(stood) => {
                    standby.shelves().add(&image, stood);
                    continue;
                }
                Err(_) => AFTER_FAILURE,
            },
            None if standby.shelves().lacking(now + QUIET).is_some() => QUIET,
            None => LOOK,
        };
        let shelves = standby.shelves();
        if !standby.over.load(Ordering::Relaxed) {
            let _ = standby.asked.wait_timeout(shelves, wait);
        }
    }
}

impl Inner {
    /// Whether a tree may be made ahead: not from a template that is not there yet, and not while
    /// many machines are on their way into memory.
    fn may_stand(&self, image: &str) -> bool {
        let parked = parse_image(image).is_ok_and(|id| self.warm.is_parked(id));
        parked && !self.traffic.is_arriving()
    }
}

/// Restores an image for an owner; its agent is told nothing yet.
pub fn stand(host: &Inner, image: &str, owner: &str) -> Result<Stood> {
    let image = host.image(image)?;
    let (line, tree) = restore(host, owner, |ends| host.engine.restore(&image, ends))?;
    Ok(Stood { tree, line })
}

/// Restores with a new line to the agent, in turn.
pub fn restore<T>(
    host: &Inner,
    owner: &str,
    one: impl FnOnce(Vec<OwnedFd>) -> stasis_engine::Result<T>,
) -> Result<(Line, T)> {
    let (line, ends) = Line::open()?;
    let _turn = host.restores.take(owner);
    Ok((line, one(ends)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shelves: &mut Shelves<u32>, now: Instant) -> usize {
        let mut made = 0;
        while let Some(image) = shelves.lacking(now) {
            shelves.add(&image, made);
            made += 1;
        }
        made as usize
    }

    #[test]
    fn a_shelf_grows_with_bursts_and_shrinks_in_lulls() {
        let now = Instant::now();
        let mut shelves = Shelves(HashMap::new());
        assert_eq!(shelves.take("a", now), None);
        assert_eq!(shelves.lacking(now), None, "not while somebody is busy");
        assert_eq!(fill(&mut shelves, now + QUIET), 2 * FIRST);
        let burst = now + QUIET;
        let had = (0..100).filter_map(|_| shelves.take("a", burst)).count();
        assert_eq!(had, 2 * FIRST);
        assert_eq!(fill(&mut shelves, burst + QUIET), MOST);
        let gone = shelves.thin_out(burst + LULL).len();
        assert_eq!(gone, MOST - FIRST);
        assert_eq!(shelves.lacking(burst + LULL), None);
        assert_eq!(shelves.thin_out(burst + LONG_LULL).len(), FIRST);
        assert_eq!(shelves.lacking(burst + LONG_LULL), None);
    }

    #[test]
    fn the_template_asked_longest_ago_makes_room() {
        let now = Instant::now();
        let mut shelves: Shelves<u32> = Shelves(HashMap::new());
        for index in 0..=SHELVES {
            let _ = shelves.take(&index.to_string(), now + QUIET * index as u32);
        }
        assert_eq!(shelves.0.len(), SHELVES);
        assert!(!shelves.0.contains_key("0"));
    }
}
