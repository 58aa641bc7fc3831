//! The host: a data directory with its engine, its records and its machines.

use crate::action::Action;
use crate::artifacts::ArtifactStore;
use crate::budgets::BudgetMeters;
use crate::error::{Error, ErrorContext, Result};
use crate::events::{EventDetail, EventLog, EventWriter};
use crate::limits::in_engine;
use crate::lock;
use crate::machine::Machine;
use crate::observe::{ObservedEvent, Observer};
use crate::pinned::PinnedImage;
use crate::policies;
use crate::pressure::MemoryRelief;
use crate::quota::Accounts;
use crate::recover::STOPPED;
use crate::registry::MachineRegistry;
use crate::secrets;
use crate::settings::{DataDirs, Settings};
use crate::standby_pool::{self, StandbyPool};
use crate::template::{name_of, template_limits};
use crate::thread_count::ThreadCount;
use crate::threads;
use crate::traffic::Traffic;
use crate::turns::SharedTurns;
use crate::unsaved::{StartCell, UnsavedStart};
use crate::warm::{self, TemplateWarmer};
use parking_lot::{Mutex, RwLock};
use stasis_api::{EventKind, Limits, Name, NewMachine, Ranged, Timestamp, Update};
use stasis_egress::{Interception, PolicyBook};
use stasis_engine::{Engine, EngineConfig, Lazy, WallsConfig};
use stasis_policy::creation;
use stasis_policy::limits::{self, LimitBounds};
use stasis_records::{MachineId, MachineRecord, NewRecord, Records};
use stasis_secrets::SecretBook;
use stasis_template::ModuleStore;
use stasis_tools::ToolHub;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Host {
    inner: Arc<HostInner>,
    machines: RwLock<MachineRegistry>,
    /// Held while names are exchanged, so that memory applies exchanges in the order of the
    /// records.
    promoting: Mutex<()>,
    /// Threads that prepare things in advance.
    ahead: Vec<JoinHandle<()>>,
    _writer: EventWriter,
    /// Held as long as this process uses the directory.
    _lock: File,
}

/// Maximum time for the threads to end when the host is dropped.
const ENDING: Duration = Duration::from_secs(15);

pub(crate) struct HostInner {
    pub settings: Settings,
    pub dirs: DataDirs,
    pub standby: StandbyPool,
    pub engine: Engine,
    pub turns: SharedTurns,
    pub modules: ModuleStore,
    pub tools: ToolHub,
    /// Drivers and other threads that use this and have not ended, also those of removed machines.
    pub users: Arc<ThreadCount>,
    /// Held while a template is warmed up.
    pub warming_up: Mutex<()>,
    /// The host closes: instructions that wait for a person are left to the next one.
    pub closing: AtomicBool,
    pub policies: Arc<PolicyBook>,
    pub budgets: BudgetMeters,
    /// Held while policies change.
    pub changing_policies: Mutex<()>,
    pub secrets: Arc<SecretBook>,
    /// Held while secrets change.
    pub changing_secrets: Mutex<()>,
    pub interception: Arc<Interception>,
    /// The certificates of all authorities that the host trusts, as text.
    pub roots_file: Arc<OwnedFd>,
    pub records: Records,
    pub traffic: Traffic,
    pub artifact_store: ArtifactStore,
    pub events: EventLog,
    pub accounts: Accounts,
    /// Held by imports of roots that no template names yet.
    pub importing: RwLock<()>,
    pub warm: TemplateWarmer,
    pub relief: MemoryRelief,
    /// The observer of instructions.
    pub observer: OnceLock<Arc<dyn Observer>>,
}

impl Host {
    /// Opens a data directory. Only one process at a time may use it.
    pub fn open(settings: Settings) -> Result<Host> {
        threads::prepare().doing(|| "start a thread".into())?;
        let dirs = DataDirs::below(&settings.data_dir);
        let lock = lock::take(&dirs)?;
        let records = Records::open(&dirs.data)?;
        let engine = Engine::start(EngineConfig {
            dir: dirs.content.clone(),
            run_dir: dirs.run.clone(),
            roots: dirs.roots.clone(),
            spawner: settings.spawner.clone(),
            lazy: Lazy::default(),
            walls: WallsConfig { limits: in_engine(settings.limits), ..WallsConfig::default() },
            preparation: settings.preparation,
        })?;
        let (artifact_store, events) =
            (ArtifactStore::open(dirs.artifacts.clone())?, EventLog::open(&records)?);
        let policies = policies::load(&records, settings.policy.clone())?;
        let budgets = BudgetMeters::load(&records)?;
        crate::traffic_totals::load(&records, &policies)?;
        let (secrets, interception, roots_file) = secrets::load(&records, &settings)?;
        let modules = ModuleStore::new(dirs.cache.join("modules"), settings.registries.clone());
        let tools = ToolHub::new(settings.tools.clone()).doing(|| "start a thread".into())?;
        let inner = Arc::new(HostInner {
            standby: StandbyPool::new(settings.preparation),
            settings,
            dirs,
            engine,
            turns: SharedTurns::new(),
            modules,
            tools,
            users: Arc::default(),
            warming_up: Mutex::default(),
            closing: AtomicBool::new(false),
            policies,
            budgets,
            secrets,
            changing_secrets: Mutex::default(),
            interception,
            roots_file,
            changing_policies: Mutex::default(),
            records,
            traffic: Traffic::default(),
            artifact_store,
            events,
            accounts: Accounts::default(),
            importing: RwLock::default(),
            warm: TemplateWarmer::default(),
            relief: MemoryRelief::default(),
            observer: OnceLock::new(),
        });
        let writer = EventWriter::start(&inner)?;
        let ahead = [standby_pool::start(&inner), warm::start(&inner)].into_iter().collect();
        let ahead = std::io::Result::doing(ahead, || "start a thread".into())?;
        let (machines, promoting) = Default::default();
        let host = Host { inner, machines, promoting, ahead, _writer: writer, _lock: lock };
        host.load()?;
        Ok(host)
    }

    /// Sets the observer of instructions. The first one stays.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        let _ = self.inner.observer.set(observer);
    }

    fn load(&self) -> Result<()> {
        for record in self.inner.records.machines()? {
            self.insert(record);
        }
        // before anything runs that could make others
        self.inner.records.settle_calls(Timestamp::now())?;
        for machine in self.machines() {
            // a machine whose records are unreadable must not block the others
            if let Err(error) = machine.recover(STOPPED) {
                tracing::error!(machine = %machine.name(), %error, "not recovered");
                machine.work().pinned = Some(error.to_string());
            }
        }
        Ok(())
    }

    pub(crate) fn inner(&self) -> &Arc<HostInner> {
        &self.inner
    }

    pub(crate) fn read(&self) -> parking_lot::RwLockReadGuard<'_, MachineRegistry> {
        self.machines.read()
    }

    pub(crate) fn promoting(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.promoting.lock()
    }

    pub(crate) fn write(&self) -> parking_lot::RwLockWriteGuard<'_, MachineRegistry> {
        self.machines.write()
    }

    /// Creates a machine. Its process starts with its first instruction.
    pub fn create(&self, account: &str, new: NewMachine) -> Result<Arc<Machine>> {
        let asked = Limits { memory_mb: new.memory_mb, ..Limits::default() };
        let asked = new.limits.or(asked);
        check(&asked, &new.tags, &new.env)?;
        new.retention.check()?;
        let network = new.network.unwrap_or(self.inner.settings.network.clone());
        self.inner.check_network(&network)?;
        let found = self.template(new.template.as_deref())?;
        let own = template_limits(&found);
        let limits = limits::granted(asked, own, &self.inner.bounds(account));
        let (template, image) = (found.template.digest.clone(), found.image);
        let name = name_of(found);
        self.inner.may_create(account, (&name, &limits), &network)?;
        let no_template = || Error::NoTemplate(name.clone());
        let image = self.inner.hold(image, no_template)?;
        let record = NewRecord {
            name: new.name.unwrap_or_else(fresh_name),
            account: account.to_owned(),
            template,
            created_at: Timestamp::now(),
            expires_at: new.expires_at,
            tags: new.tags,
            limits,
            env: new.env,
            durability: new.durability,
            checkpoints: new.checkpoints,
            network,
            parent: None,
            parent_id: None,
            reseed: false,
            retention: new.retention,
        };
        let _coming = self.inner.expect_machines(account, 1)?;
        let record = self.inner.records.create(record, &image)?;
        Ok(self.announce(self.insert(record)))
    }

    /// Creates a machine for one piece of work, after which its creator removes it. It is saved
    /// only if a client requests it or memory is short. A service that starts again has it as it
    /// began.
    pub fn create_temporary(&self, account: &str, new: NewMachine) -> Result<Arc<Machine>> {
        let machine = self.create(account, new)?;
        machine.work().queue.stop_saving();
        Ok(machine)
    }

    /// All or none: a taken name creates nothing.
    pub(crate) fn add_all(
        &self,
        records: Vec<NewRecord>,
        image: &PinnedImage,
    ) -> Result<Vec<Arc<Machine>>> {
        let records = self.inner.records.branch(records, image)?;
        Ok(records.into_iter().map(|record| self.announce(self.insert(record))).collect())
    }

    /// The same for a branch of a state that is not on disk yet.
    pub(crate) fn announce_unsaved(
        &self,
        record: MachineRecord,
        start: UnsavedStart,
    ) -> Arc<Machine> {
        self.announce(self.insert_with(record, StartCell::of(Some(start))))
    }

    fn announce(&self, machine: Arc<Machine>) -> Arc<Machine> {
        let parent = machine.record().made.parent.clone();
        let about = parent.map(|parent| match parent.seq {
            Some(seq) => format!("{}@{seq}", parent.machine),
            None => parent.machine.to_string(),
        });
        machine.event(EventKind::MachineCreated, EventDetail { about, ..EventDetail::default() });
        machine
    }

    /// Adds a recorded machine to memory.
    pub(crate) fn insert(&self, record: MachineRecord) -> Arc<Machine> {
        self.insert_with(record, StartCell::default())
    }

    fn insert_with(&self, record: MachineRecord, start: StartCell) -> Arc<Machine> {
        let machine = Arc::new(Machine::new(self.inner.clone(), record, start));
        self.inner.accounts.add(&machine);
        self.write().insert(&machine);
        machine
    }

    /// A machine of an account. Machines of other accounts do not exist for it.
    pub fn machine_of(&self, account: &str, name: &str) -> Result<Arc<Machine>> {
        let own = |name: Name| self.read().get(account, &name).cloned();
        let found = name.parse().ok().and_then(own).filter(|machine| !machine.is_removed());
        found.ok_or_else(|| Error::NoMachine(name.to_owned()))
    }

    /// The oldest machine of that name in any account: for programs that own the host, never for
    /// client requests.
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

    /// Changes a machine's settings.
    pub fn update(&self, machine: &Arc<Machine>, update: Update) -> Result<()> {
        let bounds = self.inner.bounds(&machine.account());
        // only callers that change the same machine wait for this
        let _changing = machine.changing();
        let given = update.network.as_ref();
        given.map_or(Ok(()), |network| self.inner.check_network(network))?;
        let record = machine.record().clone();
        let wanted = updated(&record.made, &update, &bounds)?;
        if wanted.limits != record.made.limits {
            let changed = MachineRecord { made: wanted.clone(), ..record };
            self.inner.may_become(&changed, &wanted.network)?;
        }
        let _held = self.inner.in_turn(&machine.account(), || {
            self.inner.admit_memory_change(machine, wanted.limits)
        })?;
        self.inner.records.update(machine.id, wanted.clone())?;
        {
            let mut record = machine.record();
            // names may have been exchanged meanwhile
            let name = record.made.name.clone();
            record.made = NewRecord { name, ..wanted };
        }
        machine.event_at(EventKind::MachineUpdated, None);
        // between instructions: limits of a running one change when it has ended
        machine.request(Action::Limit)
    }

    /// Ends and removes a machine. The next collection removes its images.
    pub fn remove(&self, machine: &Arc<Machine>) -> Result<()> {
        self.remove_by(machine, Records::delete)
    }

    /// Removes a temporary machine without waiting for the disk. If the host ends right now, the
    /// machine is there again until it expires.
    pub fn remove_temporary(&self, machine: &Arc<Machine>) -> Result<()> {
        self.remove_by(machine, Records::delete_unsynced)
    }

    fn remove_by(
        &self,
        machine: &Arc<Machine>,
        delete: fn(&Records, MachineId) -> stasis_records::Result<()>,
    ) -> Result<()> {
        machine.leave()?;
        delete(&self.inner.records, machine.id).inspect_err(|_| machine.stay())?;
        self.write().remove(machine);
        self.inner.accounts.remove(machine);
        machine.event_at(EventKind::MachineRemoved, None);
        machine.observe(ObservedEvent::Removed);
        machine.tell();
        Ok(())
    }

    /// Moves a machine out of memory, after its running instruction.
    pub fn swap(&self, machine: &Arc<Machine>) -> Result<()> {
        machine.request(Action::SwapOut)
    }

    /// Brings a machine into memory and waits until its agent has answered.
    pub fn wake(&self, machine: &Arc<Machine>) -> Result<()> {
        machine.request(Action::Wake)
    }

    /// Removes expired machines; returns how many.
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

    /// Saves every machine and frees its memory, for an orderly shutdown. Returns the machines that
    /// could not be saved.
    pub fn close(&self) -> Vec<(Name, Error)> {
        self.inner.closing.store(true, Ordering::Relaxed);
        // a machine entering memory has a driver
        let awake = |machine: &Arc<Machine>| {
            let work = machine.work();
            work.state().takes_memory() || work.has_driver()
        };
        let all: Vec<_> = self.machines().into_iter().filter(awake).collect();
        std::thread::scope(|scope| {
            let swaps: Vec<_> = all
                .iter()
                .map(|machine| scope.spawn(move || (machine.name(), self.swap(machine))))
                .collect();
            let done = swaps.into_iter().filter_map(|swap| swap.join().ok());
            let failed = done.filter_map(|(name, result)| Some((name, result.err()?))).collect();
            // machines that never entered memory start from states that are on disk by now
            self.machines().iter().for_each(|machine| machine.settled());
            self.inner.events.write(&self.inner.records);
            self.inner.write_budgets();
            failed
        })
    }
}

impl Drop for Host {
    /// Drivers hold the engine and must not outlive the host. Unsaved state is lost, as if the
    /// process had been killed: `close` saves first.
    fn drop(&mut self) {
        self.inner.closing.store(true, Ordering::Relaxed);
        for machine in self.machines() {
            if machine.work().has_driver() {
                let _ = machine.interrupt();
                let _ = machine.request(Action::Discard);
            }
        }
        self.machines().iter().for_each(|machine| machine.settled());
        self.inner.standby.end();
        self.inner.warm.end();
        for thread in self.ahead.drain(..) {
            let _ = thread.join();
        }
        if !self.inner.users.wait(Instant::now() + ENDING) {
            tracing::warn!("closed while a thread still works");
        }
    }
}

impl HostInner {
    /// Limits that an account's machines may have.
    fn bounds(&self, account: &str) -> LimitBounds {
        let Settings { limits: default, most: host, .. } = self.settings;
        LimitBounds { default, host, account: self.quota_of(account).as_limits() }
    }

    /// The name of a template, or its digest if it was removed.
    pub fn template_name(&self, digest: &str) -> String {
        let found = self.records.template(digest).ok().flatten();
        found.map_or_else(|| digest.to_owned(), name_of)
    }
}

/// A record with a client's changes, if they are in range.
fn updated(made: &NewRecord, update: &Update, bounds: &LimitBounds) -> Result<NewRecord> {
    let mut made = made.clone();
    let Update { tags, limits, durability, checkpoints, network, expires_at, retention } =
        update.clone();
    let asked = limits.unwrap_or_default();
    check(&asked, tags.as_ref().unwrap_or(&made.tags), &made.env)?;
    made.tags = tags.unwrap_or(made.tags);
    made.limits = limits::changed(asked, made.limits, bounds);
    made.durability = durability.unwrap_or(made.durability);
    made.checkpoints = checkpoints.unwrap_or(made.checkpoints);
    made.network = network.unwrap_or(made.network);
    made.expires_at = expires_at.unwrap_or(made.expires_at);
    made.retention = retention.unwrap_or(made.retention);
    made.retention.check()?;
    Ok(made)
}

pub(crate) fn check(
    limits: &Limits,
    tags: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> Result<()> {
    limits.check()?;
    match creation::fault(tags, env) {
        None => Ok(()),
        Some(fault) => Err(Error::Invalid(fault.to_owned())),
    }
}

pub(crate) fn fresh_name() -> Name {
    Name::from_random(&random())
}

/// Unguessable bytes.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // without them an id could be guessed
    getrandom::fill(&mut bytes).expect("the kernel has randomness");
    bytes
}
