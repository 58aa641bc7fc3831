//! Controlling terminals: taken by a session's leader before it has children, who inherit it.

use super::builder::{Builder, GROUPED};
use stasis_image::model::*;
use stasis_sys::libc;

impl<'a> Builder<'a> {
    /// Right after a session began, or was inherited.
    pub(super) fn control_terminal(&mut self, process: &Process) {
        for (slave, terminal) in self.terminals() {
            if terminal.session == process.pid {
                let args = [slave, libc::TIOCSCTTY, 0];
                self.program.must("take the controlling terminal", libc::SYS_ioctl, &args);
            } else if terminal.without.contains(&process.pid) {
                let args = [slave, libc::TIOCNOTTY, 0];
                self.program.must("give the terminal up", libc::SYS_ioctl, &args);
            }
        }
    }

    /// Once every process is in its group, one of them can be the foreground.
    pub(super) fn choose_foreground(&mut self, process: &Process) {
        let terminals = self.terminals();
        if terminals.is_empty() {
            return;
        }
        self.program.arrive(GROUPED);
        for (slave, terminal) in terminals {
            if terminal.session == process.pid && terminal.foreground != 0 {
                let living = self.living();
                self.program.await_word(GROUPED, living);
                let group = self.program.words(&[terminal.foreground as u64]);
                let args = [slave, libc::TIOCSPGRP, group];
                self.program.must("choose the foreground group", libc::SYS_ioctl, &args);
            }
        }
    }

    /// Terminals that control a session, with our copy of their slave.
    fn terminals(&self) -> Vec<(u64, &'a Terminal)> {
        let objects = &self.prepared.manifest.objects;
        let slave = |terminal: u32| {
            let wanted = ObjectKind::Pty(Pty { terminal, master: false });
            let index = objects.iter().position(|object| object.kind == wanted)?;
            self.prepared.objects[index].map(|number| number as u64)
        };
        let all = (0..).zip(objects).filter_map(|(index, object)| match &object.kind {
            ObjectKind::Terminal(terminal) if terminal.session != 0 => {
                Some((slave(index)?, &**terminal))
            }
            _ => None,
        });
        all.collect()
    }
}
