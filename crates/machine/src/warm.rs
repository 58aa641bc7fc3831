//! Images held in memory, in parked processes, so that restores of them are fast and share pages.
//!
//!   an image is wanted ─┬─ parked ──────────► restored from there
//!                       ├─ first request ───► restored from its files alone, at once
//!                       └─ later requests ──► waits until the thread here has parked it
//!
//! The first restore after a service start does not wait for a template to be parked. Later ones
//! do, so that they share one copy, and find damage before they run. The common state of many
//! branches is parked while it is used. If parking fails, the next restore counts as the first
//! again, and reports the error.

use crate::error::Result;
use crate::host::HostInner;
use parking_lot::{Condvar, Mutex, MutexGuard};
use stasis_engine::{Image, ImageId, fault};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Delay before parking after the first restore, unless others follow.
const QUIET: Duration = Duration::from_millis(150);
/// States that branches started from: how many are held, and for how long after their last use.
const BRANCHED: usize = 4;
const LULL: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(5);
/// Maximum wait for a parked image; the restore then continues without.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct TemplateWarmer {
    all: Mutex<All<Image>>,
    changed: Condvar,
}

/// Parked and requested images: pure, so that it can be tested without processes.
struct All<T> {
    images: HashMap<ImageId, State<T>>,
    over: bool,
}

enum State<T> {
    /// It was requested, and stays parked.
    Wanted(Instant),
    Parking,
    Parked {
        image: T,
        /// Its last use, if it is held only for a while.
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

    /// The time of the next step.
    fn next(&self, now: Instant) -> Duration {
        let wanted = self.images.values().filter_map(|state| match state {
            State::Wanted(from) => Some(from.saturating_duration_since(now)),
            _ => None,
        });
        wanted.min().unwrap_or(LOOK)
    }

    /// Removes images held for branches that are unused or too many.
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

    /// Marks an image as in use, and waits until it is parked, except for the first caller.
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

    /// Says that an image is in use, and does not wait.
    pub(crate) fn note(&self, id: ImageId) {
        let mut all = self.all();
        if !all.over && !all.images.contains_key(&id) {
            all.images.insert(id, State::Wanted(Instant::now() + QUIET));
            self.changed.notify_all();
        }
    }

    /// Records the result of parking.
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
    /// An image whose first template is parked, or will be.
    pub fn image(&self, id: ImageId) -> Result<Image> {
        if let Some(image) = self.warm.parked(id) {
            return Ok(image);
        }
        let image = self.engine.store().image(id)?;
        self.warm.want(image.manifest.meta.origin.unwrap_or(image.id));
        Ok(image)
    }

    /// The same without waiting until that is parked: for a tree that takes the place of one in
    /// memory, so that there is no more memory without a template than before.
    pub fn image_at_once(&self, id: ImageId) -> Result<Image> {
        if let Some(image) = self.warm.parked(id) {
            return Ok(image);
        }
        let image = self.engine.store().image(id)?;
        self.warm.note(image.manifest.meta.origin.unwrap_or(image.id));
        Ok(image)
    }

    /// Parks a state that many branches are about to start from. If that fails, they start without
    /// it, only slower.
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

    /// Drops the states of branches when memory is short.
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

    /// Drops an image that is no longer a template.
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
    // waiting threads are notified in any case, and this thread continues
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

    /// An undo must not wait for a template that is being built, or about to be.
    #[test]
    fn an_image_is_noted_without_a_wait() {
        let warmer = TemplateWarmer::default();
        warmer.note(id(1));
        assert!(matches!(warmer.all().images.get(&id(1)), Some(State::Wanted(_))));
        warmer.all().images.insert(id(2), State::Parking);
        warmer.note(id(2));
        assert!(matches!(warmer.all().images.get(&id(2)), Some(State::Parking)));
        warmer.end();
        warmer.note(id(3));
        assert!(!warmer.all().images.contains_key(&id(3)), "nothing is begun after the end");
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
