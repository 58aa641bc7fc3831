//! The kernel: its features, and what it lets us do.

use super::{About, Check};
use std::fs;

pub fn checks() -> Vec<Check> {
    vec![
        version(),
        root(),
        overlay(),
        user_namespaces(),
        unprivileged(),
        ptrace(),
        cgroups(),
        userfaultfd(),
        pagemap_scan(),
        landlock(),
        seccomp(),
        tun(),
    ]
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

fn version() -> Check {
    let about = About {
        name: "kernel",
        required: true,
        costs: "machines cannot be saved and brought back",
        fix: "use Linux 5.11 or newer; 6.7 or newer is fast",
    };
    let release = release();
    about.check(numbers(&release) >= (5, 11), format!("Linux {release}"))
}

fn root() -> Check {
    let about = About {
        name: "root",
        required: true,
        costs: "walls and templates cannot be made",
        fix: "run as root: sudo stasis ...",
    };
    let status = read("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    about.check(uid == Some("0"), format!("user {}", uid.unwrap_or("unknown")))
}

fn overlay() -> Check {
    let about = About {
        name: "overlayfs",
        required: true,
        costs: "machines cannot share a root file system",
        fix: "modprobe overlay",
    };
    let listed = read("/proc/filesystems").unwrap_or_default();
    let present = listed.lines().any(|line| line.split_whitespace().last() == Some("overlay"));
    about.check(present, if present { "in /proc/filesystems" } else { "not in /proc/filesystems" })
}

fn user_namespaces() -> Check {
    let about = About {
        name: "user namespaces",
        required: true,
        costs: "machines cannot be walled off from the host's users",
        fix: "sysctl user.max_user_namespaces=65536",
    };
    let most = read("/proc/sys/user/max_user_namespaces").and_then(|text| text.parse::<u64>().ok());
    match most {
        Some(most) => about.check(most > 0, format!("at most {most}")),
        None => about.check(false, "this kernel has none"),
    }
}

fn unprivileged() -> Check {
    let about = About {
        name: "unprivileged user namespaces",
        required: false,
        costs: "everything has to be run as root",
        fix: "sysctl kernel.unprivileged_userns_clone=1 (Debian), \
              kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)",
    };
    let refusals = [
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ];
    let refused = refusals
        .iter()
        .find(|(name, bad)| read(&format!("/proc/sys/{name}")).as_deref() == Some(*bad));
    match refused {
        Some((name, value)) => about.check(false, format!("{} is {value}", name.replace('/', "."))),
        None => about.check(true, "not restricted"),
    }
}

fn ptrace() -> Check {
    let about = About {
        name: "ptrace",
        required: true,
        costs: "nothing can be saved",
        fix: "sysctl kernel.yama.ptrace_scope=1; level 3 is left only by a reboot",
    };
    match read("/proc/sys/kernel/yama/ptrace_scope") {
        Some(level) => about.check(level != "3", format!("ptrace_scope {level}")),
        None => about.check(true, "not restricted"),
    }
}

fn cgroups() -> Check {
    let about = About {
        name: "cgroups",
        required: false,
        costs: "limits of machines are set by rlimits alone, per process",
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

fn userfaultfd() -> Check {
    let about = About {
        name: "userfaultfd",
        required: false,
        costs: "large machines answer only when all of their memory is back",
        fix: "use a kernel with CONFIG_USERFAULTFD",
    };
    let present = fs::exists("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or(false);
    about.check(present, if present { "present" } else { "not in this kernel" })
}

fn pagemap_scan() -> Check {
    let about = About {
        name: "PAGEMAP_SCAN",
        required: false,
        costs: "every checkpoint compares all pages: longer, however little was written",
        fix: "use Linux 6.7 or newer",
    };
    let own = stasis_sys::pagemap::Pagemap::open(std::process::id() as i32);
    let newer = numbers(&release()) >= (6, 7);
    let found = if newer { "present" } else { "not in this kernel" };
    about.check(newer && own.is_ok(), found)
}

fn landlock() -> Check {
    let about = About {
        name: "Landlock",
        required: false,
        costs: "one of the walls around a machine's files is missing; the others stand",
        fix: "add landlock to the lsm= list of the kernel's command line",
    };
    match read("/sys/kernel/security/lsm") {
        Some(list) => about.check(list.split(',').any(|name| name == "landlock"), list),
        None => about.check(false, "/sys/kernel/security is not mounted: cannot tell"),
    }
}

fn seccomp() -> Check {
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

fn tun() -> Check {
    let about = About {
        name: "TUN device",
        required: false,
        costs: "machines cannot have a network: `--network open` is refused",
        fix: "modprobe tun; in a container, pass /dev/net/tun in (--device /dev/net/tun)",
    };
    let present = stasis_sys::probe::has_tun();
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
