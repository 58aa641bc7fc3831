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
use crate::network::{LINK, carry};
use crate::observe::{ObservedEvent, word};
use crate::state::StateEvent;
use crate::unsaved;
use stasis_api::EventKind;
use stasis_egress::{Egress, RefusalSink};
use stasis_engine::{ImageId, Tree, fault};
use stasis_protocol::{Order, Reason, Wake};
use stasis_records::MachineRecord;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A machine's process and the line to its agent, before the agent is told anything.
pub struct RestoredTree {
    pub tree: Tree,
    pub line: AgentConnection,
}

/// Restores an image for an owner.
pub fn restore(host: &HostInner, image: ImageId, owner: &str) -> Result<RestoredTree> {
    let image = host.image(image)?;
    let (line, tree) = in_turn(host, owner, |ends| host.engine.restore(&image, ends))?;
    Ok(RestoredTree { tree, line })
}

/// Restores with a new line to the agent, in turn.
pub(crate) fn in_turn<T>(
    host: &HostInner,
    owner: &str,
    one: impl FnOnce(Vec<OwnedFd>) -> stasis_engine::Result<T>,
) -> Result<(AgentConnection, T)> {
    let (line, ends) = AgentConnection::open()?;
    let _turn = host.restores.take(owner);
    Ok((line, one(ends)?))
}

/// Brings a machine into memory from its newest image, of which a tree may be `ready`, gives it
/// its limits, and tells its agent.
pub fn wake(
    host: &HostInner,
    record: &MachineRecord,
    reason: Reason,
    ready: Option<RestoredTree>,
    refused: RefusalSink,
) -> Result<LiveMachine> {
    let (RestoredTree { tree, line }, egress) = connect(host, record, ready, refused)?;
    limits::apply(host, record, &tree)?;
    let mut live = LiveMachine { tree, line, _egress: egress, awake: false };
    let fresh = matches!(reason, Reason::New | Reason::Branch);
    live.line.send(&Order::Wake(Wake {
        reason,
        machine: record.made.name.to_string(),
        entropy: entropy(),
        reseed: reason == Reason::New || (fresh && record.made.reseed),
        env: if fresh { record.made.env.clone() } else { Default::default() },
    }))?;
    Ok(live)
}

/// The tree, with the network its machine has.
fn connect(
    host: &HostInner,
    record: &MachineRecord,
    ready: Option<RestoredTree>,
    refused: RefusalSink,
) -> Result<(RestoredTree, Option<Egress>)> {
    let owner = &record.made.account;
    match (record.made.network.is_none(), ready) {
        (true, Some(standby)) => Ok((standby, None)),
        (true, None) => Ok((restore(host, record.head_image, owner)?, None)),
        (false, Some(standby)) => {
            let packets = standby.tree.open_network(LINK)?;
            Ok((standby, Some(carry(host, record, refused, packets)?)))
        }
        (false, None) => {
            let image = host.image(record.head_image)?;
            let open = |ends| host.engine.restore_open(&image, ends, LINK);
            let (line, (tree, packets)) = in_turn(host, owner, open)?;
            Ok((RestoredTree { tree, line }, Some(carry(host, record, refused, packets)?)))
        }
    }
}

/// 32 fresh bytes, in hex.
fn entropy() -> String {
    let mut bytes = [0u8; 32];
    crate::host::random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Driver {
    /// Brings the machine into memory, if it is not, and waits until its agent has answered.
    pub(crate) fn wake(&mut self) -> Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        let machine = self.machine.clone();
        machine.host.in_turn(&machine.account(), || {
            machine.host.admit_memory(&machine)?;
            self.ensure_live()
        })?;
        self.answered().inspect_err(|_| self.let_go())
    }

    /// Brings the machine into memory, if it is not.
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
        // before the record, which names the image as soon as there is one
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

    /// Lets others at the machine's files, from now until it leaves memory.
    fn open_files(&self, files: Arc<MachineFiles>) -> Result<()> {
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
