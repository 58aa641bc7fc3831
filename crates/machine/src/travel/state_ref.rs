//! A reference to one state of a machine: its instruction and its image, which is kept as long as
//! the reference exists.

use crate::action::Action;
use crate::error::Result;
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::Address;
use stasis_engine::Image;
use std::sync::Arc;

pub struct StateRef {
    pub machine: Arc<Machine>,
    pub seq: Option<u64>,
    pub(crate) image: Image,
}

impl StateRef {
    pub fn address(&self) -> Address {
        Address { machine: self.machine.name(), seq: self.seq }
    }
}

impl Host {
    /// A machine's state after an instruction, or its current state; for the latter a checkpoint is
    /// taken if there is none.
    pub fn place(&self, machine: &Arc<Machine>, seq: Option<u64>) -> Result<StateRef> {
        let (held, seq) = match seq {
            Some(seq) => (self.checkpoint_image(machine, seq)?, Some(seq)),
            None => machine.request(Action::Image)?,
        };
        let image = self.inner().look_into(&held)?;
        Ok(StateRef { machine: machine.clone(), seq, image })
    }
}
