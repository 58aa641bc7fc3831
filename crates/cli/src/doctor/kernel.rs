//! Checks of the kernel: features and permissions.

use super::{About, HealthCheck};
use stasis_sys::probe::{self, Feature, Need};
use std::fs;

/// This feature is reported separately, with its consequence.
const TOLD_BY_CGROUPS: &str = "cgroup2";

pub fn checks() -> Vec<HealthCheck> {
    let features = probe::features().into_iter().filter(|own| own.name != TOLD_BY_CGROUPS);
    let mut checks = vec![version(), root(), cgroups(), seccomp(), tun()];
    checks.extend(features.map(feature));
    checks
}

/// Features the engine needs from the kernel.
fn feature(feature: Feature) -> HealthCheck {
    let Feature { name, present, need, since, lack, fix, found } = feature;
    let about = About { name, required: need == Need::Required, costs: lack, fix };
    let found = match (present, found.is_empty()) {
        (true, true) => "present".to_owned(),
        (true, false) => found,
        (false, true) => format!("absent; Linux has it since {since}"),
        (false, false) => format!("{found}; Linux has it since {since}"),
    };
    about.check(present, found)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn release() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Major and minor number.
fn numbers(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || parts.next().flatten().unwrap_or(0);
    (next(), next())
}

fn version() -> HealthCheck {
    let about = About {
        name: "kernel",
        required: true,
        costs: "machines cannot be captured and restored",
        fix: "use Linux 6.13 or newer",
    };
    let release = release();
    about.check(numbers(&release) >= (6, 13), format!("Linux {release}"))
}

fn root() -> HealthCheck {
    let about = About {
        name: "root",
        required: true,
        costs: "sandboxes and templates cannot be created",
        fix: "run as root: sudo stasis ...",
    };
    let status = read("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    about.check(uid == Some("0"), format!("user {}", uid.unwrap_or("unknown")))
}

fn cgroups() -> HealthCheck {
    let about = About {
        name: "cgroups",
        required: false,
        costs: "only rlimits per process limit machines",
        fix: "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd",
    };
    let unified = read("/sys/fs/cgroup/cgroup.controllers");
    let old = fs::exists("/sys/fs/cgroup/memory/tasks").unwrap_or(false);
    match unified {
        Some(list) => about.check(list.contains("memory"), format!("version 2: {list}")),
        None if old => about.check(true, "version 1"),
        None => about.check(false, "none"),
    }
}

fn seccomp() -> HealthCheck {
    let about = About {
        name: "seccomp",
        required: true,
        costs: "machines could make any system call",
        fix: "use a kernel with CONFIG_SECCOMP_FILTER",
    };
    let actions = read("/proc/sys/kernel/seccomp/actions_avail");
    let present = actions.is_some_and(|list| list.contains("errno"));
    about.check(present, if present { "filters" } else { "no filters" })
}

fn tun() -> HealthCheck {
    let about = About {
        name: "TUN device",
        required: false,
        costs: "machines cannot have a network: `--network open` is refused",
        fix: "modprobe tun; in a container, pass /dev/net/tun in (--device /dev/net/tun)",
    };
    let present = probe::has_tun();
    about.check(present, if present { "present" } else { "not in this kernel" })
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn releases() {
        assert_eq!(numbers("6.18.5-amd64"), (6, 18));
        assert_eq!(numbers("5.4"), (5, 4));
        assert_eq!(numbers(""), (0, 0));
        assert!(numbers("6.18.0") > numbers("6.7.12"));
    }
}
