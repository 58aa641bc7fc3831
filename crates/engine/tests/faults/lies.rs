//! Images with valid checksums that are not true.
//!
//! One honest image is captured; each lie alters its manifest, is written to the store like any
//! image, and must be refused when it is read. Lies that reading cannot detect must fail cleanly
//! later.

use crate::bench::Bench;
use crate::own;
use stasis_image::model::*;
use stasis_image::{ImageId, OriginId};
use std::time::Instant;

const RESERVED: u64 = 0x6f00_0000_0000;

type Lie = (&'static str, fn(&mut Manifest));

fn live(manifest: &mut Manifest) -> &mut LiveProcess {
    live_of(&mut manifest.processes[0])
}

fn live_of(process: &mut Process) -> &mut LiveProcess {
    match &mut process.state {
        ProcessState::Live(live) => live,
        ProcessState::Zombie { .. } => panic!("the process is a zombie"),
    }
}

fn anonymous(manifest: &mut Manifest) -> &mut Vma {
    let vmas = &mut live(manifest).vmas;
    let found = vmas.iter_mut().find(|vma| vma.backing == Backing::Anonymous);
    found.expect("an anonymous mapping")
}

fn kernel_page(manifest: &mut Manifest) -> Vma {
    let vmas = &live(manifest).vmas;
    let found = vmas.iter().find(|vma| matches!(vma.backing, Backing::Kernel(_)));
    found.expect("one of the kernel's pages").clone()
}

fn add_mapping(manifest: &mut Manifest, vma: Vma) {
    let vmas = &mut live(manifest).vmas;
    vmas.push(vma);
    vmas.sort_by_key(|vma| vma.start);
}

fn mapping_at(start: u64, pages: u64) -> Vma {
    Vma {
        start,
        end: start + pages * 4096,
        prot: 7,
        backing: Backing::Anonymous,
        traits: VmaTraits::default(),
        name: None,
    }
}

fn hold(manifest: &mut Manifest, path: &str, origin: &[u8]) {
    manifest.files.held.push(HeldFile { path: path.into(), origin: OriginId::of(origin) });
}

fn add_file(manifest: &mut Manifest, path: &str, kind: FileEntryKind) {
    manifest.files.entries.push(FileEntry {
        path: path.into(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime_s: 0,
        mtime_ns: 0,
        xattrs: Vec::new(),
        kind,
    });
}

fn link(target: &str) -> FileEntryKind {
    FileEntryKind::Symlink { target: target.into() }
}

fn hard_link(target: &str) -> FileEntryKind {
    FileEntryKind::Hardlink { target: target.into() }
}

fn regular() -> FileEntryKind {
    FileEntryKind::Regular { size: 0, runs: Vec::new() }
}

fn add_object(manifest: &mut Manifest, kind: ObjectKind) {
    manifest.objects.push(Object { flags: 0, owner: None, kind });
}

fn ipc_name() -> IpcName {
    IpcName { id: 3, key: 0, uid: 0, gid: 0, mode: 0o600 }
}

fn first_run(manifest: &mut Manifest) -> &mut PageRun {
    &mut manifest.memory[0].runs[0]
}

fn timer(id: i32, left_ns: u64) -> PosixTimer {
    let (clock, notify, signal, value) = (0, 1, 0, 0);
    PosixTimer { id, clock, notify, signal, value, tid: 0, left_ns, interval_ns: 0, overrun: 0 }
}

const PROCESSES: &[Lie] = &[
    ("a filter that is not there", |m| live(m).filters.push(0)),
    ("a filter of no instructions", |m| m.meta.filters.push(SeccompFilter(Vec::new()))),
    ("a filter longer than the kernel takes", |m| {
        m.meta.filters.push(SeccompFilter(vec![0; 4097]))
    }),
    ("a filter without the right to one", |m| {
        m.meta.filters.push(SeccompFilter(vec![0x7fff_0000_0000_0006]));
        live(m).filters.push(0);
        let thread = &mut live(m).threads[0];
        (thread.no_new_privs, thread.creds.effective) = (false, 0);
    }),
    ("no process", |m| m.processes.clear()),
    ("no living process", |m| {
        m.processes.iter_mut().for_each(|process| {
            process.state = ProcessState::Zombie { status: 0, comm: String::new() };
        });
    }),
    ("pid 0", |m| m.processes[0].pid = 0),
    ("pid 1, which is the init", |m| {
        m.processes[0].pid = 1;
        live(m).threads[0].tid = 1;
    }),
    ("a negative pid", |m| {
        m.processes[0].pid = -5;
        live(m).threads[0].tid = -5;
    }),
    ("a pid beyond all", |m| {
        m.processes[0].pid = i32::MAX;
        live(m).threads[0].tid = i32::MAX;
    }),
    ("two processes of one pid", |m| {
        let copy = m.processes[1].clone();
        m.processes.push(copy);
    }),
    ("a process that is its own parent", |m| m.processes[1].ppid = m.processes[1].pid),
    ("parents in a circle", |m| {
        m.processes[1].ppid = m.processes[2].pid;
        m.processes[2].ppid = m.processes[1].pid;
    }),
    ("a parent who does not exist", |m| m.processes[1].ppid = 77777),
    ("a parent of number 0", |m| m.processes[1].ppid = 0),
    ("a zombie as parent", |m| {
        m.processes[1].state = ProcessState::Zombie { status: 0, comm: String::new() };
        m.processes[2].ppid = m.processes[1].pid;
    }),
    ("an rseq area on our own pages", |m| {
        let area = Rseq { address: RESERVED + 64, length: 32, signature: 0 };
        live(m).threads[0].rseq = Some(area);
    }),
    ("an rseq area past the end of memory", |m| {
        let area = Rseq { address: u64::MAX - 16, length: 32, signature: 0 };
        live(m).threads[0].rseq = Some(area);
    }),
    ("no thread", |m| live(m).threads.clear()),
    ("a first thread of another number", |m| live(m).threads[0].tid += 1000),
    ("a thread twice", |m| {
        let thread = live(m).threads[0].clone();
        live(m).threads.push(thread);
    }),
    ("a thread of another process's number", |m| {
        let mut thread = live(m).threads[0].clone();
        thread.tid = m.processes[1].pid;
        live(m).threads.push(thread);
    }),
    ("more processes than there may be", |m| {
        let process = m.processes[0].clone();
        m.processes.extend((0..5000).map(|_| process.clone()));
    }),
    ("no program file", |m| live(m).exe = u32::MAX),
    ("a signal number 65", |m| {
        let action = SigAction { signal: 65, handler: 0, flags: 0, restorer: 0, mask: 0 };
        live(m).actions.push(action);
    }),
    ("a stop by a signal that stops nobody", |m| {
        live(m).stopped = Some(JobStop { signal: 64, told: false });
    }),
    ("a pending signal of three bytes", |m| live(m).pending.push(SigInfo(vec![1, 2, 3]))),
    ("a pending signal of no bytes, of a thread", |m| {
        live(m).threads[0].pending.push(SigInfo(Vec::new()));
    }),
    ("a timer of a negative number", |m| live(m).timers.push(timer(-1, 5))),
    ("a timer twice", |m| live(m).timers = vec![timer(3, 5), timer(3, 5)]),
    ("a timer of all time", |m| live(m).timers.push(timer(0, u64::MAX))),
    ("an interval timer of all time", |m| live(m).itimers[0].left_us = u64::MAX),
    ("limits without end", |m| live(m).rlimits = vec![(0, 0); 1000]),
    ("auxiliary words without end", |m| live(m).mm.auxv = vec![6; 100_000]),
    ("a clock before all time", |m| m.meta.clocks.monotonic_ns = i64::MIN),
    ("a clock after all time", |m| m.meta.clocks.boottime_ns = i64::MAX),
];

const MEMORY: &[Lie] = &[
    ("a mapping that ends before it starts", |m| {
        let vma = anonymous(m);
        (vma.start, vma.end) = (vma.end, vma.start);
    }),
    ("an empty mapping", |m| anonymous(m).end = anonymous(m).start),
    ("a mapping off its pages", |m| anonymous(m).start += 1),
    ("a mapping up to the kernel's half", |m| {
        add_mapping(m, mapping_at(0x7fff_ffff_e000, 2));
    }),
    ("a mapping of the kernel's half", |m| add_mapping(m, mapping_at(0xffff_8000_0000_0000, 1))),
    ("mappings over one another", |m| {
        let (start, end) = (anonymous(m).start, anonymous(m).end);
        add_mapping(m, mapping_at(start, (end - start) / 4096));
    }),
    ("mappings out of order", |m| live(m).vmas.reverse()),
    ("a mapping over the interpreter", |m| add_mapping(m, mapping_at(RESERVED, 1))),
    ("a mapping into the engine's pages", |m| add_mapping(m, mapping_at(RESERVED - 4096, 2))),
    ("a mapping out of the engine's pages", |m| {
        add_mapping(m, mapping_at(RESERVED + 0x1fff_f000, 2));
    }),
    ("a mapping around the engine's pages", |m| {
        add_mapping(m, mapping_at(RESERVED - 4096, 0x2_0002));
    }),
    ("one of the kernel's pages beside the interpreter", |m| {
        let page = kernel_page(m);
        live(m).vmas.retain(|vma| vma.backing != page.backing);
        add_mapping(m, Vma { start: RESERVED - 4096, end: RESERVED, ..page });
    }),
    ("one of the kernel's pages twice", |m| {
        let page = kernel_page(m);
        add_mapping(m, Vma { start: 0x10000, end: 0x11000, ..page });
    }),
    ("a protection of unknown bits", |m| anonymous(m).prot = 0xff),
    ("a file that does not exist", |m| {
        anonymous(m).backing = Backing::PrivateFile { file: u32::MAX, offset: 0 };
    }),
    ("a place in a file beyond all", |m| {
        anonymous(m).backing = Backing::PrivateFile { file: 0, offset: u64::MAX - 4095 };
    }),
    ("shared memory that does not exist", |m| {
        anonymous(m).backing = Backing::Segment { segment: 99, offset: 0 };
    }),
    ("private pages of shared memory that does not exist", |m| {
        anonymous(m).backing = Backing::PrivateSegment { segment: 99, offset: 0 };
    }),
    ("a pack that does not exist", |m| first_run(m).pack = 4_000_000_000),
    ("a page beyond its pack", |m| first_run(m).slot = 1 << 40),
    ("a page beyond all packs", |m| first_run(m).slot = u64::MAX),
    ("a page beyond all memory", |m| {
        let last = m.memory[0].runs.last_mut().expect("a run");
        last.page = u64::MAX - 1;
    }),
    ("a run of no pages", |m| first_run(m).count = 0),
    ("runs over one another", |m| {
        let run = *first_run(m);
        m.memory[0].runs.insert(0, run);
    }),
    ("runs out of order", |m| m.memory[0].runs.reverse()),
    ("memory twice", |m| {
        let copy = m.memory[0].clone();
        m.memory.push(copy);
    }),
    ("a guard over the engine's pages", |m| m.memory[0].guards.push((RESERVED, RESERVED + 4096))),
    ("a guard of no length", |m| m.memory[0].guards.push((4096, 4096))),
    ("shared memory of any size", |m| {
        let kind = SegmentKind::Anonymous;
        m.segments.push(Segment { kind, size: u64::MAX, runs: Vec::new() });
    }),
    ("shared memory with pages beyond its end", |m| {
        let run = PageRun { page: 1, ..*first_run(m) };
        let kind = SegmentKind::Anonymous;
        m.segments.push(Segment { kind, size: 4096, runs: vec![run] });
    }),
];

const OBJECTS: &[Lie] = &[
    ("a descriptor of nothing", |m| live(m).fds[0].object = u32::MAX),
    ("a negative descriptor", |m| live(m).fds[0].number = -1),
    ("a descriptor beyond all", |m| live(m).fds[0].number = i32::MAX),
    ("a descriptor twice", |m| {
        let fd = live(m).fds[0];
        live(m).fds.push(fd);
    }),
    ("a descriptor of a pipe's contents", |m| {
        let found = m.objects.iter().position(|o| matches!(o.kind, ObjectKind::PipeBuffer { .. }));
        live(m).fds[0].object = found.expect("a pipe") as u32;
    }),
    ("a memory file that does not exist", |m| {
        add_object(m, ObjectKind::Memfd { segment: 9, offset: 0, locks: Vec::new() });
    }),
    ("a pipe that does not exist", |m| {
        add_object(m, ObjectKind::Pipe { pipe: 1 << 30, end: PipeEnd::Read });
    }),
    ("a pipe that is something else", |m| {
        add_object(m, ObjectKind::Eventfd { count: 0, semaphore: false });
        let pipe = m.objects.len() as u32 - 1;
        add_object(m, ObjectKind::Pipe { pipe, end: PipeEnd::Read });
    }),
    ("a pipe of any size", |m| {
        let content = PipeContent::default();
        add_object(m, ObjectKind::PipeBuffer { path: None, capacity: u32::MAX, content });
    }),
    ("a pipe with more than it holds", |m| {
        let content = PipeContent { bytes: vec![1; 5000], packets: Vec::new() };
        add_object(m, ObjectKind::PipeBuffer { path: None, capacity: 4096, content });
    }),
    ("a terminal that does not exist", |m| {
        add_object(m, ObjectKind::Pty(Pty { terminal: 1 << 30, master: true }));
    }),
    ("System V memory that does not exist", |m| {
        let memory = SysvMemory { name: ipc_name(), segment: 9, removed: false };
        add_object(m, ObjectKind::SysvMemory(memory));
    }),
    ("a mapping of System V memory that does not exist", |m| {
        anonymous(m).backing = Backing::Sysv { id: 5, writable: true };
    }),
    ("a mapping shorter than its System V memory", |m| {
        m.segments.push(Segment { kind: SegmentKind::Anonymous, size: 1 << 40, runs: Vec::new() });
        let segment = m.segments.len() as u32 - 1;
        let memory = SysvMemory { name: ipc_name(), segment, removed: false };
        add_object(m, ObjectKind::SysvMemory(memory));
        anonymous(m).backing = Backing::Sysv { id: ipc_name().id, writable: true };
    }),
    ("a queue with more than it holds", |m| {
        let messages = vec![(1, vec![0; 5000])];
        let queue = SysvQueue { name: ipc_name(), limit: 4096, messages };
        add_object(m, ObjectKind::SysvQueue(queue));
    }),
    ("a descriptor of a queue", |m| {
        let queue = SysvQueue { name: ipc_name(), limit: 4096, messages: Vec::new() };
        add_object(m, ObjectKind::SysvQueue(queue));
        live(m).fds[0].object = m.objects.len() as u32 - 1;
    }),
    ("a timer descriptor of all time", |m| {
        let (clock, ticks, settime_flags) = (1, 0, 0);
        let (left_ns, interval_ns) = (u64::MAX, 0);
        let timer = Timerfd { clock, ticks, settime_flags, left_ns, interval_ns };
        add_object(m, ObjectKind::Timerfd(timer));
    }),
];

const FILES: &[Lie] = &[
    ("a file above the root", |m| add_file(m, "..", regular())),
    ("a file beside the root", |m| add_file(m, "../evil", regular())),
    ("a file by way of its parent", |m| add_file(m, "tmp/../../evil", regular())),
    ("a file by its whole name", |m| add_file(m, "/tmp/evil", regular())),
    ("a file with a NUL in its name", |m| add_file(m, "a\0b", regular())),
    ("a file with too long a name", |m| add_file(m, &"n".repeat(256), regular())),
    ("a file of no name", |m| add_file(m, "", regular())),
    ("a file named as its directory", |m| add_file(m, "tmp/.", regular())),
    ("a directory that is a link", |m| {
        add_file(m, "way", link("/tmp"));
        add_file(m, "way/evil", regular());
    }),
    ("a directory that is a link to a link", |m| {
        add_file(m, "one", link("/"));
        add_file(m, "one/tmp", FileEntryKind::Directory);
        add_file(m, "one/tmp/evil", regular());
    }),
    ("a directory that is replaced by a link", |m| {
        add_file(m, "dir", FileEntryKind::Directory);
        add_file(m, "dir", link("/tmp"));
        add_file(m, "dir/evil", regular());
    }),
    ("a directory that comes after its file", |m| {
        add_file(m, "late/evil", regular());
        add_file(m, "late", FileEntryKind::Directory);
    }),
    ("a file in a file", |m| {
        add_file(m, "file", regular());
        add_file(m, "file/evil", regular());
    }),
    ("a file twice", |m| {
        add_file(m, "same", regular());
        add_file(m, "same", regular());
    }),
    ("another name for a file outside", |m| add_file(m, "evil", hard_link("../../../etc/passwd"))),
    ("another name for a file by its whole name", |m| {
        add_file(m, "evil", hard_link("/etc/passwd"))
    }),
    ("another name for a file through a link", |m| {
        add_file(m, "way", link("/etc"));
        add_file(m, "evil", hard_link("way/passwd"));
    }),
    ("another name for a link", |m| {
        add_file(m, "way", link("/etc/passwd"));
        add_file(m, "evil", hard_link("way"));
    }),
    ("another name for itself", |m| add_file(m, "evil", hard_link("evil"))),
    ("another name for a directory", |m| {
        add_file(m, "dir", FileEntryKind::Directory);
        add_file(m, "evil", hard_link("dir"));
    }),
    ("an overlay's own notes", |m| {
        add_file(m, "dir", FileEntryKind::Directory);
        let note = ("trusted.overlay.redirect".into(), b"/etc".to_vec());
        m.files.entries.last_mut().expect("a file").xattrs.push(note);
    }),
    ("an open file that is not there", |m| hold(m, "evil", b"one")),
    ("an open file that is a link", |m| {
        add_file(m, "evil", link("/etc/passwd"));
        hold(m, "evil", b"one");
    }),
    ("an open file twice", |m| {
        add_file(m, "evil", regular());
        hold(m, "evil", b"one");
        hold(m, "evil", b"two");
    }),
    ("two open files of one inode", |m| {
        for name in ["evil", "twin"] {
            add_file(m, name, regular());
            hold(m, name, b"one");
        }
    }),
    ("a mode that says what kind it is", |m| {
        add_file(m, "evil", regular());
        m.files.entries.last_mut().expect("a file").mode = 0o020_644;
    }),
    ("a file of any size", |m| {
        add_file(m, "evil", FileEntryKind::Regular { size: u64::MAX, runs: Vec::new() });
    }),
    ("a file with pages beyond its end", |m| {
        let run = PageRun { page: 5, ..*first_run(m) };
        add_file(m, "evil", FileEntryKind::Regular { size: 10, runs: vec![run] });
    }),
];

#[test]
fn a_lie_is_refused_when_it_is_read() {
    own::process("lies::a_lie_is_refused_when_it_is_read", || {
        let bench = Bench::start();
        let mut source = bench.launch("children");
        let honest = bench.proves_capture(&mut source);
        let store = bench.engine.store();
        let mut believed = Vec::new();
        for (what, lie) in [PROCESSES, MEMORY, OBJECTS, FILES].concat() {
            let mut manifest = (*honest.manifest).clone();
            lie(&mut manifest);
            assert_ne!(manifest, *honest.manifest, "{what}: nothing was altered");
            let id = store.write_image(manifest).expect("write an image").id;
            match store.read_image(id) {
                Ok(_) => believed.push(what),
                Err(error) => assert_eq!(error.code(), "image.unfit", "{what}: {error}"),
            }
        }
        assert_eq!(believed, [""; 0], "lies that were believed");
        store.read_image(honest.id).expect("the honest image");
    });
}

/// True enough to be read, and impossible all the same.
const IMPOSSIBLE: &[Lie] = &[
    ("a working directory that is not there", |m| live(m).cwd = "/nowhere".into()),
    ("the same, of a child", |m| {
        let child = m.processes.last_mut().expect("a child");
        live_of(child).cwd = "/nowhere".into();
    }),
    ("a session nobody leads", |m| m.processes[1].sid = 4000),
    ("a group nobody leads", |m| m.processes[1].pgid = 4000),
    ("a library that is not there", |m| m.meta.mapped_files[0].path = "/lib/nothing.so".into()),
    ("a library by way of its parent", |m| m.meta.mapped_files[0].path = "../../etc/passwd".into()),
    ("a library with an end in its name", |m| m.meta.mapped_files[0].path = "/lib/a\0b".into()),
    ("a pack that is not there", |m| m.meta.packs[0].root.0[0] ^= 1),
    ("a pack with fewer pages", |m| {
        m.meta.packs[0].pages = 1 << 30;
        m.memory[0].runs.last_mut().expect("a run").slot = 1 << 29;
    }),
    ("an outside descriptor nobody supplies", |m| {
        let outside = m.objects.iter_mut().find_map(|object| match &mut object.kind {
            ObjectKind::External { slot } => Some(slot),
            _ => None,
        });
        *outside.expect("an outside descriptor") = 1000;
    }),
    ("a processor of the future", |m| m.meta.cpu.flags.push("zz_future".into())),
    ("a shared file that is not there", |m| {
        let path = "/nowhere".into();
        anonymous(m).backing = Backing::SharedFile { path, offset: 0, writable: true };
    }),
    ("a memory file of more than there is", |m| {
        let kind = SegmentKind::Memfd { name: "x".repeat(1000), seals: 0 };
        m.segments.push(Segment { kind, size: 1 << 40, runs: Vec::new() });
    }),
    ("timers of enormous numbers that notify nobody there", |m| {
        let gone = PosixTimer { notify: 4, tid: 99999, ..timer(i32::MAX, 5) };
        live(m).timers = vec![timer(i32::MAX - 1, 5), gone];
    }),
];

#[test]
fn impossible_manifests_fail_cleanly() {
    own::process("lies::impossible_manifests_fail_cleanly", || {
        let bench = Bench::start();
        let mut source = bench.launch("children");
        let honest = bench.proves_capture(&mut source);
        // spawner, blank template, and the source's own
        let before = 2 + source.living().len();
        own::settles_at(before).expect("at rest");
        for (what, lie) in IMPOSSIBLE {
            let mut manifest = (*honest.manifest).clone();
            lie(&mut manifest);
            let id: ImageId = bench.engine.store().write_image(manifest).expect("write").id;
            let start = Instant::now();
            let read = bench.engine.store().read_image(id);
            let restored = read.map_err(Into::into).and_then(|image| bench.restore(&image));
            let error = restored.err().unwrap_or_else(|| panic!("{what}: restored"));
            assert!(start.elapsed() < own::PATIENCE, "{what}: {:?}", start.elapsed());
            eprintln!("{what}: [{}] {error}", error.code());
            assert_eq!(bench.unfinished(), [""; 0], "{what}: files left in tmp");
            own::settles_at(before).unwrap_or_else(|left| panic!("{what}: {left}"));
        }
        bench.restore(&honest).expect("the honest image").check();
        source.check();
    });
}
