//! Every run gets an end, also when what it waits for hangs, its thread breaks off, or the records
//! cannot be written. In one test: what is armed here is armed for the whole process.

use stasis_fault::{Fault, arm_for_all};
use stasis_mcpv8::{ExecutionInfo, V8, V8Mode, V8RunRequest};
use stasis_testbed::{TestHost, until};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const ACCOUNT: &str = "test";
const GRACE: Duration = Duration::from_secs(3);
const HANGS: Duration = Duration::from_secs(20);

struct Bed {
    v8: V8,
    bed: TestHost,
}

impl Bed {
    fn run(&self, request: V8RunRequest) -> (ExecutionInfo, String) {
        let id = self.v8.run(ACCOUNT, request).expect("accepted");
        until("the run is over", || {
            self.v8.execution(ACCOUNT, &id).is_ok_and(|info| info.is_over())
                && self.v8.open_execution(ACCOUNT, &id).is_none()
        });
        self.v8.finished(ACCOUNT, &id).expect("an execution")
    }

    fn session(&self, code: &str) -> (ExecutionInfo, String) {
        self.run(of(code, V8Mode::HeapAndFiles))
    }
}

fn of(code: &str, mode: V8Mode) -> V8RunRequest {
    V8RunRequest {
        code: Some(code.into()),
        session: Some("s".into()),
        execution_timeout_secs: Some(2),
        mode,
        ..V8RunRequest::default()
    }
}

#[test]
fn every_run_gets_an_end() {
    let bed = TestHost::of("javascript");
    let bed = Bed { v8: V8::with_grace(bed.host.clone(), GRACE), bed };
    let (first, _) = bed.session("globalThis.n = 1");
    assert_eq!(first.status, "completed", "{first:?}");

    // its machine's driver hangs: the run is given up, and the session goes on from before it
    arm_for_all("driver.instruction", Fault::Call(Arc::new(|| std::thread::sleep(HANGS))));
    let start = Instant::now();
    let (hung, _) = bed.session("n = 100");
    assert!(start.elapsed() < HANGS, "{:?}", start.elapsed());
    let error = hung.error.expect("an error");
    assert_eq!((&*hung.status, &hung.heap), ("failed", &None), "{error}");
    assert!(error.contains("did not end within 3 s") && error.contains("its code ran"), "{error}");
    assert_eq!(bed.session("console.log(++n)").1, "2");

    // its thread breaks off
    let panics: Fault = Fault::Call(Arc::new(|| panic!("on purpose")));
    arm_for_all("branch.captured", panics);
    let branch = V8RunRequest {
        heap: first.heap.clone(),
        fs: Some("new".into()),
        ..of("1", V8Mode::HeapAndFiles)
    };
    let (broken, _) = bed.run(branch.clone());
    assert_eq!(broken.status, "failed");
    assert!(broken.error.expect("an error").contains("internal error"));
    assert_eq!(bed.run(branch).0.status, "completed");

    // a stateless run is answered while its machine still ends, and was never saved
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let hold = move || drop(released.lock().map(|gate| gate.recv_timeout(HANGS)));
    arm_for_all("state.leaving", Fault::Call(Arc::new(hold)));
    let before = bed.bed.host.machines().len();
    let busy = "const end = Date.now() + 200; while (Date.now() < end); console.log(1)";
    let (stateless, printed) = bed.run(of(busy, V8Mode::Stateless));
    assert_eq!((&*stateless.status, &*printed), ("completed", "1"));
    let all = bed.bed.host.machines();
    assert_eq!(all.len(), before + 1, "the machine is not removed yet");
    assert_eq!(all[0].describe().checkpoint, None);
    release.send(()).expect("the machine's driver waits");
    until("the machine is removed", || bed.bed.host.machines().len() == before);

    // the records take neither its end nor that it could not be recorded
    let refuse = || (0..2).for_each(|_| arm_for_all("records.commit", Fault::Error));
    arm_for_all("files.looking", Fault::Call(Arc::new(refuse)));
    let (unrecorded, _) = bed.run(of("console.log(1)", V8Mode::Heap));
    assert_ne!(unrecorded.status, "running");
    // when the one that hung gets on, it only tidies up
    std::thread::sleep((start + HANGS + GRACE).saturating_duration_since(Instant::now()));
    assert_eq!(bed.session("console.log(n)").1, "1", "the branch began at the first heap");
}
