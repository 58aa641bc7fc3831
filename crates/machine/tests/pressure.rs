//! More machines than the host has memory for, used, branched and undone at random: nothing is
//! lost, and memory stays free. Short here; `make soak` runs 200 machines of 256 MiB for five
//! minutes.
//!
//!   8 users, each with machines of its own ─► instruction, branch, undo, redo ─► what a model says
//!   the upkeep of a service                ─► frees memory every second
//!   a look at the host                     ─► how much memory is free at worst

use stasis_machine::{Branch, Host, Machine, Preparation, Steps};
use stasis_testbed::{TestHost, value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const USERS: usize = 8;

struct Scale {
    machines: usize,
    mib: u64,
    time: Duration,
    keep_free: u64,
}

impl Scale {
    fn now() -> Scale {
        let (machines, mib, time) = match std::env::var_os("STASIS_SOAK") {
            Some(_) => (200, 256, Duration::from_secs(300)),
            None => (12, 16, Duration::from_secs(6)),
        };
        let all = (machines as u64 * mib) << 20;
        // room for two thirds of them, if the host has that much
        let keep_free = free().saturating_sub(all / 3 * 2).max(total() / 20);
        Scale { machines, mib, time, keep_free }
    }
}

fn meminfo(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("read the host's memory");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

fn free() -> u64 {
    meminfo("MemAvailable:")
}

fn total() -> u64 {
    meminfo("MemTotal:")
}

/// A machine, and its state after each instruction that is not undone; with those undone last.
struct Modelled {
    machine: Arc<Machine>,
    states: Vec<u64>,
    undone: Vec<u64>,
    pages: u64,
}

impl Modelled {
    /// Random pages are neither equal nor small on disk.
    fn make(bed: &TestHost, mib: u64) -> Modelled {
        let machine = bed.machine();
        let make = format!(
            "import numpy as np\n\
             big = np.frombuffer(bytearray(np.random.bytes({mib} << 20)), 'u1')\n\
             big[::4096] = 0; n = 0\n{LOOK}"
        );
        let modelled = Modelled { machine, states: vec![0], undone: Vec::new(), pages: mib << 8 };
        assert_eq!(value(&modelled.machine, &make), modelled.expected());
        modelled
    }

    fn expected(&self) -> String {
        let state = self.states.last().expect("the first state stays");
        format!("({state}, {})", (state % 251) * self.pages.div_ceil(16))
    }

    /// Writes one page in sixteen.
    fn write(&mut self, state: u64) {
        self.states.push(state);
        self.undone.clear();
        let code = format!("n = {state}; big[::65536] = n % 251\n{LOOK}");
        assert_eq!(value(&self.machine, &code), self.expected());
    }

    fn undo(&mut self, host: &Host) {
        if self.states.len() > 1 {
            host.undo(&self.machine, Steps::default()).expect("undo");
            self.undone.extend(self.states.pop());
        }
    }

    fn redo(&mut self, host: &Host) {
        if let Some(state) = self.undone.pop() {
            host.redo(&self.machine, Steps::default()).expect("redo");
            self.states.push(state);
        }
    }

    /// Checks a branch, changes it and removes it.
    fn branch(&mut self, host: &Host) {
        let one = Branch { names: vec![None], ..Branch::default() };
        let branch = host.branch(&self.machine, one).expect("branch").remove(0);
        assert_eq!(value(&branch, &format!("big[1] += 1\n{LOOK}")), self.expected());
        host.remove(&branch).expect("remove a branch");
    }

    fn check(&mut self) {
        assert_eq!(value(&self.machine, LOOK), self.expected());
    }
}

/// The same numbers in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % end
    }
}

/// The state: a number, and the sum of what was written of it.
const LOOK: &str = "(n, int(big[::65536].astype('u8').sum()))";

#[test]
fn nothing_is_lost_and_memory_stays_free() {
    let scale = Scale::now();
    let bed = TestHost::with(|settings| {
        settings.keep_free = Some(scale.keep_free);
        settings.preparation = Preparation::Usual;
    });
    let (over, swapped) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (least, steps) = (AtomicU64::new(u64::MAX), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                swapped.fetch_add(bed.host.relieve().expect("free memory"), Ordering::Relaxed);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                least.fetch_min(free(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let users: Vec<_> = (0..USERS)
            .map(|user| {
                scope.spawn({
                    let (bed, scale, steps) = (&bed, &scale, &steps);
                    move || use_machines(bed, scale, user, steps)
                })
            })
            .collect();
        let ended: Vec<_> = users.into_iter().map(|user| user.join()).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|user| user.expect("a user found what its model says"));
    });
    let (least, swapped) = (least.into_inner() >> 20, swapped.into_inner());
    let (kept, steps) = (scale.keep_free >> 20, steps.into_inner());
    eprintln!("{steps} steps, {swapped} swapped out, {least} MiB free at worst, {kept} to be kept");
    // in the short form other tests use most of the memory
    if std::env::var_os("STASIS_SOAK").is_some() {
        assert!(swapped > 0, "memory was never short");
        assert!(least >= kept, "{least} MiB were free at worst, and {kept} were to be kept");
    }
}

fn use_machines(bed: &TestHost, scale: &Scale, user: usize, steps: &AtomicUsize) {
    let own = (user..scale.machines).step_by(USERS);
    let mut machines: Vec<Modelled> = own.map(|_| Modelled::make(bed, scale.mib)).collect();
    let mut random = Random(user as u64 + 1);
    let end = Instant::now() + scale.time;
    let mut next = 1;
    while Instant::now() < end {
        let machine = random.below(machines.len());
        let machine = &mut machines[machine];
        match random.below(10) {
            0..4 => machine.write(next),
            4..6 => machine.undo(&bed.host),
            6 => machine.redo(&bed.host),
            _ => machine.branch(&bed.host),
        }
        next += 1;
        steps.fetch_add(1, Ordering::Relaxed);
    }
    machines.iter_mut().for_each(Modelled::check);
}
