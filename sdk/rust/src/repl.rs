//! A REPL on one machine, in foreverVM's form.

use crate::{Exec, Instruction, Machine, Result};

/// `exec` returns an object with `output()` and `result()`. The machine stays.
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
