//! Epoll sets: watches put in again, without events the program has taken already.

use super::builder::Builder;
use stasis_image::model::*;
use stasis_sys::libc;

impl Builder<'_> {
    /// A watch that is added finds its descriptor ready and reports it. An event that is reported
    /// only once is consumed, and restored if it was pending.
    pub(super) fn watch(&mut self, live: &LiveProcess, set: i32, watches: &[EpollWatch]) {
        for watch in watches {
            self.control(set, libc::EPOLL_CTL_ADD, watch);
        }
        if !watches.iter().any(EpollWatch::is_told_once) {
            return;
        }
        const EVENT: usize = 12;
        let room = self.program.data(&vec![0; EVENT * watches.len()]);
        let args = [set as u64, room, watches.len() as u64, 0];
        self.program.any("take events", libc::SYS_epoll_wait, &args);
        for watch in watches.iter().filter(|watch| watch.is_told_once()) {
            if watch.due || watch.is_armed_shot() || !self.is_as_it_was(live, watch.fd) {
                self.control(set, libc::EPOLL_CTL_MOD, watch);
            }
        }
    }

    fn control(&mut self, set: i32, operation: i32, watch: &EpollWatch) {
        // struct epoll_event is packed: events, then data
        let mut event = watch.events.to_ne_bytes().to_vec();
        event.extend(watch.data.to_ne_bytes());
        let event = self.program.data(&event);
        let args = [set as u64, operation as u64, watch.fd as u64, event];
        self.program.must("watch a descriptor", libc::SYS_epoll_ctl, &args);
    }

    /// Whether a descriptor is ready for the same events as before. For others, a new event must
    /// not be mistaken for a reported one.
    fn is_as_it_was(&self, live: &LiveProcess, number: i32) -> bool {
        let fd = live.fds.iter().find(|fd| fd.number == number);
        let object = fd.map(|fd| &self.prepared.manifest.objects[fd.object as usize].kind);
        match object {
            Some(ObjectKind::Pipe { .. } | ObjectKind::Eventfd { .. }) => true,
            Some(ObjectKind::Socket(socket)) => {
                matches!(socket.state, SocketState::Connected { .. } | SocketState::Unconnected)
            }
            _ => false,
        }
    }
}
