//! A stopped process of our own, made to call.

use super::*;
use std::process::{Child, Command};

/// A process of our own that is stopped.
fn stopped() -> (Child, ProcessMemory, InjectionSite) {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id() as i32;
    ptrace::seize(pid, TRACED).unwrap();
    ptrace::interrupt(pid).unwrap();
    let stop = ptrace::wait_stop(pid, &Alarm::set(LIMIT).unwrap()).unwrap();
    assert_eq!(stop, StopReason::Interrupted);
    let memory = ProcessMemory::open(pid).unwrap();
    let site = InjectionSite::find(pid, &memory, &ptrace::regs(pid).unwrap(), &[]).unwrap();
    (child, memory, site)
}

#[test]
fn a_call_that_does_not_end_is_given_up_and_the_thread_put_back() {
    let (mut child, memory, site) = stopped();
    let pid = child.id() as i32;
    let before = ptrace::regs(pid).unwrap();
    let limit = Duration::from_millis(50);
    let mut injector = Injector::with(pid, &memory, site, TRACED, limit).unwrap();
    let error = injector.call(libc::SYS_pause, [0; 6]).unwrap_err();
    assert!(error.to_string().contains("did not end"), "{error}");
    injector.finish().unwrap();
    let after = ptrace::regs(pid).unwrap();
    assert_eq!((after.rip, after.rax, after.rsp), (before.rip, before.rax, before.rsp));
    child.kill().unwrap();
    end(pid);
}

#[test]
fn no_call_is_begun_when_the_time_of_a_pause_is_over() {
    let (mut child, memory, site) = stopped();
    let pid = child.id() as i32;
    let error = Injector::new(pid, &memory, site.until(std::time::Instant::now())).err().unwrap();
    assert_eq!(error.code(), "capture.refused", "{error}");
    let later = std::time::Instant::now() + LIMIT;
    let mut injector = Injector::new(pid, &memory, site.until(later)).unwrap();
    assert_eq!(injector.call(libc::SYS_getpid, [0; 6]).unwrap(), i64::from(pid));
    injector.finish().unwrap();
    child.kill().unwrap();
    end(pid);
}

#[test]
fn a_signal_of_the_programs_own_waits_until_it_runs_again() {
    let (mut child, memory, site) = stopped();
    let pid = child.id() as i32;
    process::kill(pid, libc::SIGTRAP).unwrap();
    let mut injector = Injector::new(pid, &memory, site).unwrap();
    let error = injector.call(libc::SYS_getpid, [0; 6]).unwrap_err();
    assert!(error.to_string().contains("a signal came in the way"), "{error}");
    injector.finish().unwrap();
    let waiting = ptrace::pending(pid, true).unwrap();
    let signals: Vec<i32> =
        waiting.iter().map(|info| i32::from_ne_bytes(info[..4].try_into().unwrap())).collect();
    assert_eq!(signals, [libc::SIGTRAP]);
    child.kill().unwrap();
    end(pid);
}
