//! The host: a data directory with its engine, its records and its machines.

use crate::artifacts::Shelf;
use crate::error::{Doing, Error, Result};
use crate::events::{self, About, Events};
use crate::held::Held;
use crate::limits;
use crate::machine::Machine;
use crate::names::Names;
use crate::network;
use crate::observe::Moment;
use crate::quota::Accounts;
use crate::settings::{Dirs, Settings};
use crate::standby::{self, Standby};
use crate::traffic::Traffic;
use crate::warm::{self, Warm};
use stasis_api::{EventKind, Name, NewMachine, Ranged, Timestamp, Update};
use stasis_engine::{Config, Engine, Lazy, Turns, WallsConfig};
use stasis_store::{MachineRecord, NewRecord, Store};
use stasis_sys::{files, libc};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Tags of one machine, and bytes in each.
const MAX_TAGS: usize = 64;
const MAX_TAG: usize = 1024;
/// Environment variables of one machine, and bytes in all of them.
const MAX_ENV: usize = 1000;
const MAX_ENV_BYTES: usize = 128 << 10;

pub struct Host {
    inner: Arc<Inner>,
    machines: RwLock<Names>,
    /// Threads that make things ready before anybody asks.
    ahead: Vec<JoinHandle<()>>,
    /// Held as long as this process uses the directory.
    _lock: File,
}

pub(crate) struct Inner {
    pub settings: Settings,
    pub dirs: Dirs,
    pub standby: Standby,
    pub engine: Engine,
    /// Machines on their way into memory, fairly between accounts.
    pub restores: Turns,
    pub store: Store,
    pub traffic: Traffic,
    pub shelf: Shelf,
    pub events: Events,
    pub accounts: Accounts,
    /// Held by those who bring in roots that no template names yet.
    pub importing: RwLock<()>,
    pub warm: Warm,
}

impl Host {
    /// Opens a data directory, which one process at a time may use.
    pub fn open(settings: Settings) -> Result<Host> {
        let dirs = Dirs::below(&settings.data_dir);
        let lock = take_lock(&dirs)?;
        let store = Store::open(&dirs.data)?;
        let engine = Engine::start(Config {
            dir: dirs.content.clone(),
            run_dir: dirs.run.clone(),
            roots: dirs.roots.clone(),
            spawner: settings.spawner.clone(),
            lazy: Lazy::default(),
            walls: WallsConfig {
                limits: limits::in_engine(settings.limits),
                ..WallsConfig::default()
            },
        })?;
        let (shelf, events) = (Shelf::open(dirs.artifacts.clone())?, Events::open(&store)?);
        let inner = Arc::new(Inner {
            settings,
            dirs,
            standby: Standby::new(),
            engine,
            restores: Turns::for_restores(),
            store,
            traffic: Traffic::default(),
            shelf,
            events,
            accounts: Accounts::default(),
            importing: RwLock::default(),
            warm: Warm::default(),
        });
        events::keep_writing(&inner)?;
        let ahead = [standby::start(&inner), warm::start(&inner)].into_iter().collect();
        let ahead = std::io::Result::doing(ahead, || "start a thread".into())?;
        let host = Host { inner, machines: RwLock::default(), ahead, _lock: lock };
        host.load()?;
        Ok(host)
    }

    fn load(&self) -> Result<()> {
        for record in self.inner.store.machines()? {
            self.insert(record);
        }
        for machine in self.machines() {
            // one whose records cannot be read must not keep the others away
            if let Err(error) = machine.recover() {
                tracing::error!(machine = %machine.name(), %error, "not recovered");
                machine.work().pinned = Some(error.to_string());
            }
        }
        Ok(())
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Names> {
        self.machines.read().unwrap_or_else(|poison| poison.into_inner())
    }

    pub(crate) fn write(&self) -> std::sync::RwLockWriteGuard<'_, Names> {
        self.machines.write().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Makes a machine. Its process starts with its first instruction.
    pub fn create(&self, account: &str, new: NewMachine) -> Result<Arc<Machine>> {
        let limits = stasis_api::Limits { memory_mb: new.memory_mb, ..Default::default() };
        let limits = new.limits.or(limits);
        check(&limits, &new.tags, &new.env)?;
        new.retention.check()?;
        network::check(new.network)?;
        let template = self.template(new.template.as_deref())?.template;
        let no_template = || Error::NoTemplate(template.name.clone());
        let image = self.inner.hold(&template.image, no_template)?;
        let record = NewRecord {
            name: new.name.unwrap_or_else(fresh_name),
            account: account.to_owned(),
            template: template.digest.clone(),
            created_at: Timestamp::now(),
            expires_at: new.expires_at,
            tags: new.tags,
            limits,
            env: new.env,
            durability: new.durability,
            network: new.network,
            parent: None,
            parent_id: None,
            reseed: false,
            retention: new.retention,
        };
        self.inner.in_turn(account, || {
            self.inner.admit_machines(account, 1)?;
            Ok(self.announce(self.inner.store.add_machine(record, &image)?))
        })
    }

    /// All or none: a taken name leaves nothing behind.
    pub(crate) fn add_all(
        &self,
        records: Vec<NewRecord>,
        image: &Held,
    ) -> Result<Vec<Arc<Machine>>> {
        let records = self.inner.store.add_machines(records, image)?;
        Ok(records.into_iter().map(|record| self.announce(record)).collect())
    }

    fn announce(&self, record: MachineRecord) -> Arc<Machine> {
        let machine = self.insert(record);
        let parent = machine.record().made.parent.clone();
        let about = parent.map(|parent| match parent.seq {
            Some(seq) => format!("{}@{seq}", parent.machine),
            None => parent.machine.to_string(),
        });
        machine.event(EventKind::MachineCreated, About { about, ..About::default() });
        machine
    }

    /// Makes a machine known that is recorded.
    pub(crate) fn insert(&self, record: MachineRecord) -> Arc<Machine> {
        let machine = Arc::new(Machine::new(self.inner.clone(), record));
        self.inner.accounts.add(&machine);
        self.write().insert(&machine);
        machine
    }

    /// A machine of an account. Those of others do not exist for it.
    pub fn machine_of(&self, account: &str, name: &str) -> Result<Arc<Machine>> {
        let own = |name: Name| self.read().get(account, &name).cloned();
        let found = name.parse().ok().and_then(own).filter(|machine| !machine.is_removed());
        found.ok_or_else(|| Error::NoMachine(name.to_owned()))
    }

    /// The oldest machine of that name, whichever account has it: for programs that own the host,
    /// never for what a client asks.
    pub fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        let found = name.parse().ok().and_then(|name: Name| self.read().any(&name).cloned());
        let found = found.filter(|machine| !machine.is_removed());
        found.ok_or_else(|| Error::NoMachine(name.to_owned()))
    }

    /// All machines, newest first.
    pub fn machines(&self) -> Vec<Arc<Machine>> {
        let mut all: Vec<_> = self.read().all().cloned().collect();
        all.sort_by_key(|machine| std::cmp::Reverse(machine.id));
        all
    }

    /// Changes tags, limits, durability or expiry.
    pub fn update(&self, machine: &Arc<Machine>, update: Update) -> Result<()> {
        let _held = self.inner.in_turn(&machine.account(), || {
            let wanted = updated(&machine.record().made, &update)?;
            let held = self.inner.admit_memory_change(machine, wanted.limits)?;
            // locked until it is written: names may be exchanged, and others may change the same
            let mut record = machine.record();
            let made = updated(&record.made, &update)?;
            self.inner.store.set_machine(machine.id, &made)?;
            record.made = made;
            Ok(held)
        })?;
        machine.event_at(EventKind::MachineUpdated, None);
        // between instructions: limits of a running one change when it has ended
        machine.ask(|driver| driver.apply_limits())
    }

    /// Ends and forgets a machine. Its images go with the next collection.
    pub fn remove(&self, machine: &Arc<Machine>) -> Result<()> {
        machine.leave()?;
        self.inner.store.remove_machine(machine.id).inspect_err(|_| machine.stay())?;
        self.write().remove(machine);
        self.inner.accounts.remove(machine);
        machine.event_at(EventKind::MachineRemoved, None);
        machine.observe(Moment::Removed);
        machine.tell();
        Ok(())
    }

    /// Moves a machine out of memory; an instruction that runs is waited for.
    pub fn swap(&self, machine: &Arc<Machine>) -> Result<()> {
        machine.ask(|driver| driver.swap_out())
    }

    /// Brings a machine into memory and waits until its agent has answered.
    pub fn wake(&self, machine: &Arc<Machine>) -> Result<()> {
        machine.ask(|driver| driver.wake())
    }

    /// Removes machines whose time is over; how many.
    pub fn expire(&self, now: Timestamp) -> Result<usize> {
        let over = |machine: &Arc<Machine>| {
            machine.record().made.expires_at.is_some_and(|expires| expires <= now)
        };
        let mut removed = 0;
        for machine in self.machines().into_iter().filter(over) {
            self.clear_away(&machine)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Saves every machine and lets its memory go: what a good end of the process does. Machines
    /// that cannot be saved are named.
    pub fn close(&self) -> Vec<(Name, Error)> {
        // one on its way into memory has a driver
        let awake = |machine: &Arc<Machine>| {
            let work = machine.work();
            work.live || work.has_driver()
        };
        let all: Vec<_> = self.machines().into_iter().filter(awake).collect();
        std::thread::scope(|scope| {
            let swaps: Vec<_> = all
                .iter()
                .map(|machine| scope.spawn(move || (machine.name(), self.swap(machine))))
                .collect();
            let done = swaps.into_iter().filter_map(|swap| swap.join().ok());
            let failed = done.filter_map(|(name, result)| Some((name, result.err()?))).collect();
            self.inner.events.write(&self.inner.store);
            failed
        })
    }
}

impl Drop for Host {
    /// Drivers hold the engine; without a host they must not. What is not saved by then is lost, as
    /// if the process had been killed: `close` saves first.
    fn drop(&mut self) {
        for machine in self.machines() {
            if machine.work().has_driver() {
                let _ = machine.interrupt();
                let _ = machine.ask(|driver| {
                    driver.let_go();
                    driver.machine.work().queue.cancel_all();
                    Ok(())
                });
            }
        }
        self.inner.standby.end();
        self.inner.warm.end();
        for thread in self.ahead.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// The name a template goes by; its digest, if it is gone.
    pub fn template_name(&self, digest: &str) -> String {
        let found = self.store.template(digest).ok().flatten();
        found.map_or_else(|| digest.to_owned(), |record| record.template.name)
    }
}

/// A record with the changes a client asks for, if they are within their ranges.
fn updated(made: &NewRecord, update: &Update) -> Result<NewRecord> {
    let mut made = made.clone();
    let Update { tags, limits, durability, expires_at, retention } = update.clone();
    made.tags = tags.unwrap_or(made.tags);
    made.limits = limits.map_or(made.limits, |limits| limits.or(made.limits));
    made.durability = durability.unwrap_or(made.durability);
    made.expires_at = expires_at.unwrap_or(made.expires_at);
    made.retention = retention.unwrap_or(made.retention);
    check(&made.limits, &made.tags, &made.env)?;
    made.retention.check()?;
    Ok(made)
}

pub(crate) fn check(
    limits: &stasis_api::Limits,
    tags: &std::collections::BTreeMap<String, String>,
    env: &std::collections::BTreeMap<String, String>,
) -> Result<()> {
    limits.check()?;
    let long = |(key, value): (&String, &String)| key.len() > MAX_TAG || value.len() > MAX_TAG;
    let odd = |key: &String| key.is_empty() || key.contains(['=', '\0']);
    let env_bytes: usize = env.iter().map(|(key, value)| key.len() + value.len()).sum();
    let fault = match () {
        () if tags.len() > MAX_TAGS => "a machine has at most 64 tags",
        () if tags.iter().any(long) => "a tag's name and value have at most 1024 bytes each",
        () if env.keys().any(odd) || env.values().any(|value| value.contains('\0')) => {
            "an environment variable has a name without `=`, and no NUL bytes"
        }
        () if env.len() > MAX_ENV || env_bytes > MAX_ENV_BYTES => {
            "a machine has at most 1000 environment variables, of 128 KiB in all"
        }
        () => return Ok(()),
    };
    Err(Error::Invalid(fault.to_owned()))
}

/// A lock that was let go of can be held a moment longer by a child that is just being started.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// One process at a time: whoever holds the lock. It goes with the process, however that ends.
fn take_lock(dirs: &Dirs) -> Result<File> {
    for dir in [&dirs.data, &dirs.roots, &dirs.cache] {
        std::fs::create_dir_all(dir).doing(|| format!("make {}", dir.display()))?;
    }
    let path = dirs.data.join("lock");
    let lock = File::options().create(true).append(true).open(&path);
    let lock = lock.doing(|| format!("open {}", path.display()))?;
    let end = Instant::now() + LOCK_PATIENCE;
    while files::flock(lock.as_fd(), libc::LOCK_EX | libc::LOCK_NB).is_err() {
        if Instant::now() > end {
            let said = format!("{} is in use by another process", dirs.data.display());
            return Err(Error::InUse(said));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(lock)
}

pub(crate) fn fresh_name() -> Name {
    let mut bytes = [0; 16];
    random(&mut bytes);
    Name::from_random(&bytes)
}

/// Fills with bytes nobody can guess.
pub(crate) fn random(bytes: &mut [u8]) {
    use std::io::Read;
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
    read.expect("the kernel has randomness");
}
