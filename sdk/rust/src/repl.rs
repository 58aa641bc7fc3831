//! A conversation with one machine, in the form that foreverVM's users know.

use crate::{Exec, Instruction, Machine, Result};

/// `exec` gives something with `output()` and `result()`. The machine stays.
#[derive(Debug, Clone)]
pub struct Repl {
    machine: Machine,
}

impl Repl {
    pub(crate) fn new(machine: Machine) -> Repl {
        Repl { machine }
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn machine_name(&self) -> &str {
        self.machine.name()
    }

    pub async fn exec(&self, exec: impl Into<Exec>) -> Result<Instruction> {
        self.machine.exec(exec).await
    }
}
