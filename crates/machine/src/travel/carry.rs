//! How variables and files get from one machine into another: as bytes the host does not look
//! into. They are pickled and unpickled by the two machines themselves.

use crate::driver::Driver;
use crate::error::{Error, Result};
use stasis_protocol::{Exec, Order, Report};
use std::collections::BTreeMap;

/// Bytes that go to a machine in one order.
const PIECE: usize = 6 << 20;

/// Names that were carried, and why others were not.
pub type Carried = (Vec<String>, BTreeMap<String, String>);

pub fn carried(report: Report) -> Option<Carried> {
    match report {
        Report::Carried { names, failed } => Some((names, failed)),
        _ => None,
    }
}

/// What to do with one file of a machine.
pub enum Put<'a> {
    File { path: &'a str, mode: u32, bytes: &'a [u8] },
    Link { path: &'a str, target: &'a str },
    Nothing { path: &'a str },
}

const BEGIN: &str = "import os\npath = data[0].decode()\n\
    os.makedirs(os.path.dirname(path), exist_ok=True)\nopen(path + '.adopting', 'wb').close()";
const APPEND: &str = "with open(data[0].decode() + '.adopting', 'ab') as file:\n    \
    file.write(data[1])";
const END: &str = "import os\npath = data[0].decode()\n\
    os.chmod(path + '.adopting', int(data[1]))\nos.replace(path + '.adopting', path)";
const LINK: &str = "import os\npath = data[0].decode()\n\
    os.makedirs(os.path.dirname(path), exist_ok=True)\n\
    os.symlink(data[1].decode(), path + '.adopting')\nos.replace(path + '.adopting', path)";
const REMOVE: &str = "import os\npath = data[0].decode()\n\
    os.path.lexists(path) and os.remove(path)";

impl Driver {
    /// Runs code beside the session, as part of instruction `seq`.
    fn aside(&mut self, seq: u64, code: &str, data: &[&[u8]]) -> Result<()> {
        let code = super::python::aside(code, data);
        let order = Order::Exec(Exec { seq, code, max_bytes: 1 << 16, max_whole: 0 });
        let done = self.query(&order, |report| match report {
            Report::Done(done) if done.seq == seq => Some(done),
            _ => None,
        })?;
        match done.error {
            None => Ok(()),
            Some(error) => Err(Error::Invalid(format!("{}: {}", error.name, error.message))),
        }
    }

    /// Puts a file into the machine, whole, or not at all.
    pub(crate) fn put(&mut self, seq: u64, put: &Put<'_>) -> Result<()> {
        let absolute = |path: &str| format!("/{path}").into_bytes();
        match put {
            Put::File { path, mode, bytes } => {
                let path = absolute(path);
                self.aside(seq, BEGIN, &[&path])?;
                for piece in bytes.chunks(PIECE) {
                    self.aside(seq, APPEND, &[&path, piece])?;
                }
                self.aside(seq, END, &[&path, mode.to_string().as_bytes()])
            }
            Put::Link { path, target } => {
                self.aside(seq, LINK, &[&absolute(path), target.as_bytes()])
            }
            Put::Nothing { path } => self.aside(seq, REMOVE, &[&absolute(path)]),
        }
    }

    /// Unpickles variables from a file of the machine into its session.
    pub(crate) fn load(&mut self, path: String) -> Result<Carried> {
        self.query(&Order::Load { path }, carried)
    }
}
