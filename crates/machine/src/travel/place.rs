//! One state of a machine: which instruction it is the state after, and its image, which stays as
//! long as somebody holds the place.

use crate::error::Result;
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::Address;
use stasis_engine::Image;
use std::sync::Arc;

pub struct Place {
    pub machine: Arc<Machine>,
    pub seq: Option<u64>,
    pub(crate) image: Image,
}

impl Place {
    pub fn address(&self) -> Address {
        Address { machine: self.machine.name(), seq: self.seq }
    }
}

impl Host {
    /// A machine's state after an instruction, or now; for the latter a checkpoint is taken if
    /// there is none.
    pub fn place(&self, machine: &Arc<Machine>, seq: Option<u64>) -> Result<Place> {
        let (held, seq) = match seq {
            Some(seq) => (self.checkpoint_image(machine, seq)?, Some(seq)),
            None => machine.ask(|driver| driver.current_image())?,
        };
        let image = self.inner().look_into(&held)?;
        Ok(Place { machine: machine.clone(), seq, image })
    }
}
