//! Transfers variables and files from one machine to another, as bytes that the host does not
//! inspect. The two machines write and read the variables themselves; the host copies the files.

use crate::driver::Driver;
use crate::error::{Error, Result};
use stasis_protocol::{Order, Report};
use std::collections::BTreeMap;

/// Names that were copied, and why others were not.
pub type TransferredNames = (Vec<String>, BTreeMap<String, String>);

pub fn carried(report: Report) -> Option<TransferredNames> {
    match report {
        Report::Carried { names, failed } => Some((names, failed)),
        _ => None,
    }
}

/// The action for one file of a machine.
pub enum FileWrite<'a> {
    File { path: &'a str, mode: u32, bytes: &'a [u8] },
    Link { path: &'a str, target: &'a str },
    Nothing { path: &'a str },
}

impl Driver {
    /// Writes a file into the machine, all or nothing; wakes the machine.
    pub(crate) fn put(&mut self, put: &FileWrite<'_>) -> Result<()> {
        self.wake()?;
        let files = self.machine.work().files.clone();
        let files = files.ok_or_else(|| self.machine.removed())?;
        let (path, done) = match put {
            FileWrite::File { path, mode, bytes } => {
                (path, files.put(&format!("/{path}"), *mode, bytes))
            }
            FileWrite::Link { path, target } => (path, files.link(&format!("/{path}"), target)),
            FileWrite::Nothing { path } => (path, files.discard(&format!("/{path}"))),
        };
        // files of an ended tree belong to no machine
        if self.live.as_ref().is_some_and(|live| !live.tree.is_alive()) {
            self.fall_back_between("its process ended");
            return Err(Error::Ended(self.machine.name().to_string()));
        }
        let machine = || self.machine.name().to_string();
        let path = format!("/{path}");
        done.map_err(|fault| Error::File { machine: machine(), path, fault })
    }

    /// Reads variables from a file of the machine into its session.
    pub(crate) fn load(&mut self, path: String) -> Result<TransferredNames> {
        self.query(&Order::Load { path }, carried)
    }
}
