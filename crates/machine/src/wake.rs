//! Wakes machines: the only code that brings them into memory.
//!
//!   a new machine ── from `standby_pool.rs` ────────┐
//!   an undo ── restored ahead ──────────────────────┼─► tree + line ─► network ─► limits ─► told
//!   everything else ── restored now, in turn ───────┘
//!
//! If a step fails, the tree is killed and the machine stays swapped out.

use crate::connection::AgentConnection;
use crate::driver::Driver;
use crate::error::Result;
use crate::files::MachineFiles;
use crate::host::HostInner;
use crate::limits;
use crate::live::LiveMachine;
use crate::network::{Grants, LINK, carry};
use crate::observe::{ObservedEvent, word};
use crate::state::StateEvent;
use crate::unsaved;
use stasis_api::{EventKind, Limits, Network};
use stasis_egress::{Egress, RefusalSink};
use stasis_engine::{Image, ImageId, Tree, fault};
use stasis_protocol::{Order, Reason, Wake};
use stasis_records::MachineRecord;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A machine's process and the connection to its agent.
pub struct RestoredTree {
    pub tree: Tree,
    pub line: AgentConnection,
    /// The first order, if it was sent.
    pub told: Option<FirstOrder>,
}

impl RestoredTree {
    pub fn new(tree: Tree, line: AgentConnection) -> RestoredTree {
        RestoredTree { tree, line, told: None }
    }

    /// Applies the machine's limits and sends the agent its first order, unless that was done.
    pub fn tell(
        &mut self,
        host: &HostInner,
        record: &MachineRecord,
        first: FirstOrder,
    ) -> Result<()> {
        if self.told.is_none() {
            limits::apply(host, record, &self.tree)?;
            self.line.send(&Order::Wake(first.wake.clone()))?;
            self.told = Some(first);
        }
        Ok(())
    }
}

/// The first order to a machine's agent, and the settings of its tree at that moment.
pub struct FirstOrder {
    wake: Wake,
    limits: Limits,
    network: Network,
}

impl FirstOrder {
    pub fn of(record: &MachineRecord, reason: Reason, granted: &Grants) -> FirstOrder {
        let fresh = matches!(reason, Reason::New | Reason::Branch);
        let wake = Wake {
            reason,
            machine: record.made.name.to_string(),
            entropy: entropy(),
            reseed: reason == Reason::New || (fresh && record.made.reseed),
            env: if fresh { granted.fresh(&record.made.env) } else { Default::default() },
            defaults: granted.variables.clone(),
        };
        FirstOrder { wake, limits: record.made.limits, network: record.made.network.clone() }
    }

    /// Whether a tree that was given the one is as if it was given the other.
    fn is_like(&self, other: &FirstOrder) -> bool {
        let wake = Wake { entropy: self.wake.entropy.clone(), ..other.wake.clone() };
        self.wake == wake && self.limits == other.limits && self.network == other.network
    }
}

/// Restores an image for an account.
pub fn restore(host: &HostInner, image: ImageId, owner: &str) -> Result<RestoredTree> {
    restore_image(host, &host.image(image)?, owner)
}

/// The same for a tree that takes the place of one in memory.
pub fn restore_at_once(host: &HostInner, image: ImageId, owner: &str) -> Result<RestoredTree> {
    restore_image(host, &host.image_at_once(image)?, owner)
}

fn restore_image(host: &HostInner, image: &Image, owner: &str) -> Result<RestoredTree> {
    let (line, tree) = in_turn(host, owner, |ends| host.engine.restore(image, ends))?;
    Ok(RestoredTree::new(tree, line))
}

/// Restores with a new connection to the agent, in turn.
pub(crate) fn in_turn<T>(
    host: &HostInner,
    owner: &str,
    one: impl FnOnce(Vec<OwnedFd>) -> stasis_engine::Result<T>,
) -> Result<(AgentConnection, T)> {
    let (line, ends) = AgentConnection::open()?;
    let _turn = host.turns.restores.take(owner);
    Ok((line, one(ends)?))
}

/// Brings a machine into memory from its newest image, or from a `ready` tree of it, applies its
/// limits, and sends the agent its first order.
pub fn wake(
    host: &HostInner,
    record: &MachineRecord,
    reason: Reason,
    ready: Option<RestoredTree>,
    refused: RefusalSink,
) -> Result<LiveMachine> {
    let granted = Grants::of(host, record)?;
    let first = FirstOrder::of(record, reason, &granted);
    // the machine's settings may have changed since it was told
    let fits = |ready: &RestoredTree| ready.told.as_ref().is_none_or(|told| told.is_like(&first));
    let ready = ready.filter(fits);
    let (mut made, egress) = connect(host, record, ready, refused, &granted)?;
    made.tell(host, record, first)?;
    let (tree, line) = (made.tree, made.line);
    Ok(LiveMachine { tree, line, _egress: egress, awake: false, cpu_seen: None })
}

/// The tree, with its machine's network.
fn connect(
    host: &HostInner,
    record: &MachineRecord,
    ready: Option<RestoredTree>,
    refused: RefusalSink,
    granted: &Grants,
) -> Result<(RestoredTree, Option<Egress>)> {
    let owner = &record.made.account;
    let trusted = granted.trusted();
    match (record.made.network.is_none(), ready) {
        (true, Some(standby)) => Ok((standby, None)),
        (true, None) => Ok((restore(host, record.head_image, owner)?, None)),
        (false, Some(standby)) => {
            let packets = standby.tree.open_network(LINK, &trusted)?;
            Ok((standby, Some(carry(host, record, refused, granted, packets)?)))
        }
        (false, None) => {
            let image = host.image(record.head_image)?;
            let open = |ends| host.engine.restore_open(&image, ends, LINK, &trusted);
            let (line, (tree, packets)) = in_turn(host, owner, open)?;
            let egress = carry(host, record, refused, granted, packets)?;
            Ok((RestoredTree::new(tree, line), Some(egress)))
        }
    }
}

/// 32 fresh bytes, in hex.
fn entropy() -> String {
    hex::encode(crate::host::random::<32>())
}

impl Driver {
    /// Brings the machine into memory if necessary, and waits until its agent has answered.
    pub(crate) fn wake(&mut self) -> Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        let machine = self.machine.clone();
        machine.host.wait_for_memory();
        machine.host.in_turn(&machine.account(), || {
            machine.host.admit_memory(&machine)?;
            self.ensure_live()
        })?;
        self.answered().inspect_err(|_| self.let_go())
    }

    /// Brings the machine into memory if necessary.
    pub(crate) fn ensure_live(&mut self) -> Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        if !self.step(StateEvent::Wake) {
            return Err(self.machine.removed());
        }
        self.come_in().inspect_err(|_| self.let_go())
    }

    fn come_in(&mut self) -> Result<()> {
        // before the record, which names the image as soon as it exists
        let unsaved = self.machine.unsaved_start();
        let record = self.machine.record().clone();
        let reason = self.reason(&record);
        self.machine.observe(ObservedEvent::Waking(word(reason)));
        let ready = match reason {
            _ if unsaved.is_some() => {
                let restore = |state| unsaved::restore(&self.host, &state, &record.made.account);
                unsaved.map(restore).transpose()?
            }
            Reason::New => self.host.standby.take(record.head_image),
            _ => self.ahead.take().and_then(|ahead| ahead.finish(record.head_image)),
        };
        fault::point("driver.waking")?;
        let refused = self.machine.refusal_sink();
        let live = self.live.insert(wake(&self.host, &record, reason, ready, refused)?);
        let files = Arc::new(MachineFiles::new(live.tree.inside()?));
        self.open_files(files)?;
        self.machine.observe(ObservedEvent::Awake);
        Ok(())
    }

    fn reason(&self, record: &MachineRecord) -> Reason {
        let fresh = record.head_image == record.start_image;
        let back = std::mem::take(&mut self.machine.work().rolled_back);
        match (fresh, &record.made.parent) {
            (true, None) => Reason::New,
            (true, Some(_)) => Reason::Branch,
            (false, _) if back => Reason::Rollback,
            (false, _) => Reason::Wake,
        }
    }

    /// Opens the machine's files to other callers until it leaves memory.
    pub(crate) fn open_files(&self, files: Arc<MachineFiles>) -> Result<()> {
        let state = {
            let mut work = self.machine.work();
            let state = work.step(StateEvent::Awake).filter(|state| state.is_in_memory());
            if state.is_none() {
                drop(work);
                return Err(self.machine.removed());
            }
            work.files = Some(files);
            state
        };
        self.machine.event_at(EventKind::MachineWoken, None);
        self.machine.tell();
        self.passed(state);
        Ok(())
    }
}
