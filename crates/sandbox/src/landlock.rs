//! The Landlock rules, for the kernel's version.
//!
//! A machine's files are its own, so nothing is forbidden among them. Forbidden are actions that no
//! machine needs: creating device nodes, ioctls on devices outside `/dev`, signals to processes
//! other than the machine's own programs, and (with any rule) every change of mounts and tracing of
//! outside processes. Abstract sockets are not scoped: they belong to the machine's own network
//! namespace, and a restore's sockets are not made by the machine itself.

use stasis_sys::landlock::{
    ACCESS_IOCTL_DEV, ACCESS_MAKE_BLOCK, ACCESS_MAKE_CHAR, ACCESS_REFER, Ruleset, SCOPE_SIGNAL,
};

/// The version that knows everything we ask for.
const NEEDED: u32 = 6;

/// The rules of every machine; `None` if the kernel is too old.
pub fn rules(version: u32) -> Option<Ruleset> {
    (version >= NEEDED).then(|| Ruleset {
        handled_files: ACCESS_MAKE_CHAR | ACCESS_MAKE_BLOCK | ACCESS_IOCTL_DEV | ACCESS_REFER,
        scoped: SCOPE_SIGNAL,
        below: vec![("/".into(), ACCESS_REFER), ("/dev".into(), ACCESS_IOCTL_DEV)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_gets_no_half_of_the_rules() {
        assert!(rules(NEEDED - 1).is_none());
        let rules = rules(NEEDED).unwrap();
        assert!(rules.below.iter().all(|(_, access)| rules.handled_files & access == *access));
    }
}
