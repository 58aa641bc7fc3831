//! Images held in memory, in parked processes, so that restores of them are fast and share pages.
//!
//!   an image is wanted ─┬─ parked ──────────► restored from there
//!                       ├─ nobody asked yet ─► restored from its files alone, at once
//!                       └─ asked before ────► waits until the thread here has parked it
//!
//! The first one at a service that has just started does not wait for a template to be built. Those
//! behind it do, so that they share one copy, and meet damage before they run. What many branches
//! start from is parked for as long as it is used. If parking fails, the next one is the first
//! again, and meets what is wrong.

use crate::error::Result;
use crate::host::HostInner;
use parking_lot::{Condvar, Mutex, MutexGuard};
use stasis_engine::{Image, ImageId, fault};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the first one has the processors for itself, unless others come.
const QUIET: Duration = Duration::from_millis(150);
/// States that branches started from: how many are held, and for how long after their last use.
const BRANCHED: usize = 4;
const LULL: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(5);
/// How long one waits for others to park what it starts from; it then starts without.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct TemplateWarmer {
    all: Mutex<All<Image>>,
    changed: Condvar,
}

/// What is parked and what is to be: pure, so that it can be tested without processes.
struct All<T> {
    images: HashMap<ImageId, State<T>>,
    over: bool,
}

enum State<T> {
    /// It was requested; it is parked from then on.
    Wanted(Instant),
    Parking,
    Parked {
        image: T,
        /// When it was last used, if it is held only for a while.
        used: Option<Instant>,
    },
}

impl<T> Default for All<T> {
    fn default() -> All<T> {
        All { images: HashMap::new(), over: false }
    }
}

impl<T> All<T> {
    fn due(&self, now: Instant) -> Option<ImageId> {
        let is_due = |state: &State<T>| matches!(state, State::Wanted(from) if *from <= now);
        self.images.iter().find(|(_, state)| is_due(state)).map(|(id, _)| *id)
    }

    /// When there is something to do next.
    fn next(&self, now: Instant) -> Duration {
        let wanted = self.images.values().filter_map(|state| match state {
            State::Wanted(from) => Some(from.saturating_duration_since(now)),
            _ => None,
        });
        wanted.min().unwrap_or(LOOK)
    }

    /// Takes out what was held for branches and is not used any more, or is one too many.
    fn thin_out(&mut self, now: Instant) -> Vec<ImageId> {
        let held = |(id, state): (&ImageId, &State<T>)| match state {
            State::Parked { used: Some(used), .. } => Some((*used, *id)),
            _ => None,
        };
        let mut held: Vec<(Instant, ImageId)> = self.images.iter().filter_map(held).collect();
        held.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
        let is_over = |index: usize, used: Instant| {
            index >= BRANCHED || now.saturating_duration_since(used) >= LULL
        };
        let over = held.iter().enumerate().filter(|(index, (used, _))| is_over(*index, *used));
        let gone: Vec<ImageId> = over.map(|(_, (_, id))| *id).collect();
        gone.iter().for_each(|id| drop(self.images.remove(id)));
        gone
    }
}

impl TemplateWarmer {
    fn all(&self) -> MutexGuard<'_, All<Image>> {
        self.all.lock()
    }

    /// An image that is parked.
    fn parked(&self, id: ImageId) -> Option<Image> {
        match self.all().images.get_mut(&id)? {
            State::Parked { image, used } => {
                if let Some(used) = used {
                    *used = Instant::now();
                }
                Some(image.clone())
            }
            _ => None,
        }
    }

    pub fn is_parked(&self, id: ImageId) -> bool {
        self.parked(id).is_some()
    }

    /// Says that an image is in use, and waits until it is parked unless nobody said so before.
    fn want(&self, id: ImageId) {
        let mut all = self.all();
        let end = Instant::now() + PATIENCE;
        while !all.over {
            let now = Instant::now();
            if now >= end {
                return;
            }
            match all.images.get_mut(&id) {
                Some(State::Parked { .. }) => return,
                // notified once: waiting threads would otherwise keep waking each other
                Some(State::Wanted(from)) if *from > now => {
                    *from = now;
                    self.changed.notify_all();
                }
                Some(State::Wanted(_) | State::Parking) => {}
                None => {
                    all.images.insert(id, State::Wanted(now + QUIET));
                    self.changed.notify_all();
                    return;
                }
            }
            self.changed.wait_for(&mut all, end - now);
        }
    }

    /// Notes how parking ended.
    fn ended(&self, id: ImageId, parked: Option<State<Image>>) {
        let mut all = self.all();
        match parked {
            Some(state) => drop(all.images.insert(id, state)),
            None => drop(all.images.remove(&id)),
        }
        self.changed.notify_all();
    }

    pub fn end(&self) {
        self.all().over = true;
        self.changed.notify_all();
    }
}

impl HostInner {
    /// An image. What it began with is parked, or will be.
    pub fn image(&self, id: ImageId) -> Result<Image> {
        if let Some(image) = self.warm.parked(id) {
            return Ok(image);
        }
        let image = self.engine.store().image(id)?;
        self.warm.want(image.manifest.meta.origin.unwrap_or(image.id));
        Ok(image)
    }

    /// Holds a state that many branches are about to start from. They start without, only slower,
    /// if that cannot be done.
    pub fn park_for_branches(&self, id: ImageId, branches: usize) {
        let parked = self.image(id).and_then(|image| {
            if !self.warm.is_parked(image.id) {
                self.engine.park_for_burst(&image, branches)?;
                let used = Some(Instant::now());
                self.warm.ended(id, Some(State::Parked { image, used }));
            }
            Ok(())
        });
        if let Err(error) = parked {
            tracing::warn!(%error, image = %id, "branches start without a template");
        }
    }

    /// Lets go of the states that branches started from, when memory is short.
    pub fn cool_branched(&self) {
        let held = |state: &State<Image>| matches!(state, State::Parked { used: Some(_), .. });
        let gone: Vec<ImageId> = {
            let mut all = self.warm.all();
            let gone = all.images.iter().filter(|(_, state)| held(state)).map(|(id, _)| *id);
            let gone: Vec<ImageId> = gone.collect();
            gone.iter().for_each(|id| drop(all.images.remove(id)));
            gone
        };
        for id in gone {
            self.engine.evict(id);
        }
    }

    /// Lets go of an image that is no template any more.
    pub fn cool_down(&self, id: ImageId) {
        self.warm.all().images.remove(&id);
        self.engine.evict(id);
    }
}

/// The thread that parks; it ends with [`TemplateWarmer::end`].
pub fn start(host: &Arc<HostInner>) -> std::io::Result<JoinHandle<()>> {
    let host = Arc::downgrade(host);
    std::thread::Builder::new().name("stasis-warm".into()).spawn(move || keep_warm(&host))
}

fn keep_warm(host: &Weak<HostInner>) {
    while let Some(host) = host.upgrade() {
        let now = Instant::now();
        let mut all = host.warm.all();
        if all.over {
            return;
        }
        let (gone, due) = (all.thin_out(now), all.due(now));
        match due {
            Some(id) => drop(all.images.insert(id, State::Parking)),
            None if gone.is_empty() => {
                let wait = all.next(now);
                host.warm.changed.wait_for(&mut all, wait);
                continue;
            }
            None => {}
        }
        drop(all);
        for id in gone {
            host.engine.evict(id);
        }
        if let Some(id) = due {
            park(&host, id);
        }
    }
}

fn park(host: &HostInner, id: ImageId) {
    // waiting threads are notified in any case, and this thread is ready for the next one
    let parked = catch_unwind(AssertUnwindSafe(|| {
        fault::point("warm.parking")?;
        let image = host.engine.store().read_image(id)?;
        host.engine.park(&image)?;
        Ok::<_, stasis_engine::Error>(State::Parked { image, used: None })
    }));
    match &parked {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, image = %id, "not parked"),
        Err(_) => tracing::error!(image = %id, "parking failed"),
    }
    host.warm.ended(id, parked.ok().and_then(|parked| parked.ok()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ImageId {
        format!("{number:02x}").repeat(32).parse().expect("an image's name")
    }

    #[test]
    fn what_is_wanted_is_due_after_a_moment() {
        let now = Instant::now();
        let mut all: All<()> = All::default();
        assert_eq!((all.due(now), all.next(now)), (None, LOOK));
        all.images.insert(id(1), State::Wanted(now + QUIET));
        assert_eq!((all.due(now), all.next(now)), (None, QUIET));
        assert_eq!(all.due(now + QUIET), Some(id(1)));
        all.images.insert(id(1), State::Parking);
        assert_eq!(all.due(now + QUIET), None);
    }

    #[test]
    fn templates_stay_and_what_was_branched_goes_when_it_is_old_or_too_much() {
        let now = Instant::now();
        let mut all = All::default();
        all.images.insert(id(0), State::Parked { image: (), used: None });
        for number in 1..=BRANCHED as u8 + 1 {
            let used = Some(now + Duration::from_secs(number.into()));
            all.images.insert(id(number), State::Parked { image: (), used });
        }
        assert_eq!(all.thin_out(now), [id(1)]);
        let (later, newest) = (now + LULL, BRANCHED as u8 + 1);
        let gone = all.thin_out(later + Duration::from_secs(u64::from(newest) - 1));
        assert_eq!(gone.len(), BRANCHED - 1);
        assert!(all.images.contains_key(&id(0)) && all.images.contains_key(&id(newest)));
    }
}
