//! File trees of runs on real machines: what persists, what is bounded, and what a merge makes.

use serde_json::{Value, json};
use stasis_mcpv8::{ExecutionInfo, FsMerge, FsPush, V8, V8Mode, V8RunRequest};
use stasis_testbed::{TestHost, until};

const ACCOUNT: &str = "test";

struct Bed {
    v8: V8,
    bed: TestHost,
}

impl Bed {
    fn start() -> Bed {
        let bed = TestHost::of("javascript");
        Bed { v8: V8::new(bed.host.clone()), bed }
    }

    fn run(&self, request: V8RunRequest) -> (ExecutionInfo, String) {
        let id = self.v8.run(ACCOUNT, request).expect("accepted");
        until("the run is over", || self.v8.open_execution(ACCOUNT, &id).is_none());
        self.v8.finished(ACCOUNT, &id).expect("an execution")
    }

    /// A run that completes; its tree.
    fn tree(&self, request: V8RunRequest) -> String {
        let (info, printed) = self.run(request);
        assert_eq!((&*info.status, &info.error), ("completed", &None), "{printed}");
        info.fs.expect("a tree")
    }

    /// The output of a completed run.
    fn printed(&self, request: V8RunRequest) -> String {
        let (info, printed) = self.run(request);
        assert_eq!((&*info.status, &info.error), ("completed", &None), "{printed}");
        printed
    }

    fn push(&self, label: &str, ca_id: &str) -> Value {
        let (label, ca_id) = (Some(label.to_owned()), ca_id.to_owned());
        let push =
            FsPush { ca_id, label, expected: None, force: None, detach: None, message: None };
        self.v8.fs_push(ACCOUNT, push).expect("pushed")
    }

    fn merge(&self, [base, ours, theirs]: [&str; 3], prefer: Option<&str>) -> Value {
        let (base, prefer) = (Some(base.to_owned()), prefer.map(str::to_owned));
        let merge = FsMerge { ours: ours.to_owned(), theirs: theirs.to_owned(), base, prefer };
        self.v8.fs_merge(ACCOUNT, &merge).expect("an answer")
    }
}

/// Code that runs where the files are.
fn files(code: &str) -> V8RunRequest {
    let code = format!("process.chdir('/work');\n{code}");
    V8RunRequest { code: Some(code), mode: V8Mode::Files, ..V8RunRequest::default() }
}

fn on(fs: &str, code: &str) -> V8RunRequest {
    V8RunRequest { fs: Some(fs.into()), ..files(code) }
}

fn session(code: &str) -> V8RunRequest {
    V8RunRequest { session: Some("s".into()), ..files(code) }
}

/// Names of all files. The module of the run itself is in the working directory while it runs.
const LIST: &str = "const all = await fs.readdir('.', { recursive: true, withFileTypes: true });\n\
    const shown = all.filter((one) => !one.isDirectory() && !one.name.startsWith('main_'));\n\
    console.log(shown.map((one) => one.name).toSorted().join())";

#[test]
fn files_persist_and_globals_do_not() {
    let bed = Bed::start();
    let make = "globalThis.n = 1; await fs.mkdir('sub', { recursive: true });\n\
                await fs.writeFile('sub/a', 'é'); await fs.symlink('sub/a', 'link');\n\
                await fs.writeFile('run', '#!/bin/sh\\necho ran\\n', { mode: 0o755 });\n\
                await fs.writeFile('/tmp/other', 'x')";
    let first = bed.tree(session(make));
    let check = "const { execFileSync } = await import('node:child_process');\n\
                 console.log(typeof n, await fs.readFile('link', 'utf8'),\n\
                 await fs.readlink('link'), String(execFileSync('./run')).trim(),\n\
                 await fs.exists('/tmp/other'))";
    assert_eq!(bed.printed(session(check)), "undefined é sub/a ran false");
    until("no machine is left", || bed.bed.host.machines().is_empty());
    // identical files are the same tree, whichever run wrote them
    assert_eq!(bed.tree(files(make)), first);
    // a run that fails changes nothing, and is no entry
    let (info, _) = bed.run(session("await fs.rm('link'); throw new Error('no')"));
    assert_eq!((&*info.status, info.fs), ("failed", None));
    let second = bed.tree(session("await fs.appendFile('sub/a', 2)"));
    assert_ne!(second, first);
    assert_eq!(bed.printed(on(&first, "console.log(await fs.readFile('sub/a', 'utf8'))")), "é");
    assert_eq!(bed.printed(on(&second, "console.log(await fs.readFile('sub/a', 'utf8'))")), "é2");
    let log = bed.v8.session_log(ACCOUNT, "s").expect("a log");
    let trees: Vec<_> = log.iter().map(|entry| entry.output_fs.as_deref()).collect();
    assert_eq!(trees, [Some(&*first), Some(&*first), Some(&*second)]);
    assert!(log.iter().all(|entry| entry.output_heap.is_none()));
    // another account has none of it
    let stranger = V8RunRequest { fs: Some(first), ..files("1") };
    assert_eq!(bed.v8.run("other", stranger).expect_err("hidden").status, 404);
    let (bed, v8) = (bed.bed, bed.v8);
    drop(v8);
    let bed = bed.reopen();
    let bed = Bed { v8: V8::new(bed.host.clone()), bed };
    assert_eq!(bed.printed(session(LIST)), "a,link,run");
}

#[test]
fn heaps_with_files_have_both() {
    let bed = Bed::start();
    let both = |request: V8RunRequest| V8RunRequest { mode: V8Mode::HeapAndFiles, ..request };
    let (info, _) = bed.run(both(session("globalThis.n = 1; await fs.writeFile('a', 'a')")));
    let (heap, tree) = (info.heap.expect("a heap"), info.fs.expect("a tree"));
    let next = both(session("n += 1; await fs.writeFile('b', 'b'); console.log(n)"));
    assert_eq!(bed.printed(next), "2");
    // the heap with its own files, and with others
    let at = |code: &str| V8RunRequest { heap: Some(heap.clone()), ..both(files(code)) };
    assert_eq!(bed.printed(at(&format!("{LIST}; console.log(n)"))), "a\n1");
    let other = bed.tree(files("await fs.writeFile('c', 'c')"));
    let swapped =
        V8RunRequest { fs: Some(other.clone()), ..at(&format!("{LIST}; console.log(n)")) };
    assert_eq!(bed.printed(swapped), "c\n1");
    // a failed run with other files leaves heap and files as they were
    let failing = V8RunRequest { fs: Some(other), ..both(session("n = 100; throw 1")) };
    assert_eq!(bed.run(failing).0.status, "failed");
    assert_eq!(bed.printed(both(session(&format!("{LIST}; console.log(n)")))), "a,b\n2");
    assert_eq!(bed.printed(on(&tree, LIST)), "a");
    // a label that is not there yet starts empty, and a push creates it
    let made = bed.tree(on("new", "await fs.writeFile('first', '1')"));
    assert_eq!(bed.push("new", &made)["status"], "advanced");
    assert_eq!(bed.push("new", &tree)["status"], "rejected");
    assert_eq!(bed.printed(on("new", LIST)), "first");
}

#[test]
fn leftovers_of_code_are_bounded() {
    let bed = Bed::start();
    let kept = bed.tree(session("await fs.writeFile('kept', 'x')"));
    for (code, word) in [
        (
            "const { writeFileSync } = await import('node:fs');\n\
          for (let n = 0; n <= 10000; n++) writeFileSync(`${n}`, '')",
            "10000 files",
        ),
        (
            "const { truncateSync, writeFileSync } = await import('node:fs');\n\
          writeFileSync('hole', ''); truncateSync('hole', 300 * 1024 * 1024)",
            "256 MiB",
        ),
        (
            "const { mkdirSync } = await import('node:fs');\n\
          let path = '.'; const name = 'd'.repeat(200);\n\
          for (let n = 0; n < 10; n++) { path += `/${name}`; mkdirSync(path) }",
            "files",
        ),
    ] {
        let (info, _) = bed.run(session(code));
        let error = info.error.expect("an error");
        assert!(info.status == "failed" && error.contains(word), "{error}");
    }
    // links lead nowhere, and what is no file is left out
    let odd = "const { execFileSync } = await import('node:child_process');\n\
               await fs.symlink('/etc/passwd', 'out'); await fs.symlink('..', 'up');\n\
               execFileSync('mkfifo', ['pipe'])";
    assert_eq!(bed.printed(session(&format!("{odd}\n{LIST}"))), "kept,out,pipe,up");
    let shown = format!("console.log(await fs.readlink('out'), await fs.readlink('up')); {LIST}");
    assert_eq!(bed.printed(session(&shown)), "/etc/passwd ..\nkept,out,up");
    assert_eq!(bed.printed(on(&kept, LIST)), "kept");
}

#[test]
fn merges() {
    let bed = Bed::start();
    let base = bed.tree(files(
        "await fs.writeFile('text', '1\\n2\\n3\\n'); await fs.writeFile('gone', 'x');\n\
         await fs.writeFile('bin', new Uint8Array([0]))",
    ));
    let ours = bed.tree(on(
        &base,
        "await fs.writeFile('text', 'one\\n2\\n3\\n'); await fs.rm('gone');\n\
         await fs.writeFile('ours', '')",
    ));
    let theirs = bed.tree(on(
        &base,
        "await fs.writeFile('text', '1\\n2\\nthree\\n'); await fs.mkdir('d');\n\
         await fs.writeFile('d/theirs', '')",
    ));
    let merged = bed.merge([&base, &ours, &theirs], None);
    assert_eq!(merged["status"], "merged", "{merged}");
    let tree = merged["ca_id"].as_str().expect("a tree");
    assert_eq!(bed.printed(on(tree, LIST)), "bin,ours,text,theirs");
    let text = "console.log(await fs.readFile('text', 'utf8'))";
    assert_eq!(bed.printed(on(tree, text)), "one\n2\nthree");
    // conflicts: bytes, a changed file that the other side removed, a file where a directory is
    let clash = bed.tree(on(
        &base,
        "await fs.writeFile('bin', new Uint8Array([0, 1])); await fs.writeFile('gone', 'y');\n\
         await fs.writeFile('d', 'no directory')",
    ));
    let other = bed.tree(on(
        &theirs,
        "await fs.writeFile('bin', new Uint8Array([0, 2])); await fs.rm('gone')",
    ));
    let found = bed.merge([&base, &clash, &other], None);
    let kinds = found["conflicts"].as_array().expect("conflicts").iter();
    let kinds: Vec<_> = kinds.map(|one| (one["path"].clone(), one["kind"].clone())).collect();
    let told = [("bin", "binary"), ("gone", "modify/delete"), ("d", "modify/delete")];
    assert_eq!(kinds, told.map(|(path, kind)| (json!(path), json!(kind))));
    for (prefer, list) in [("ours", "bin,d,gone,text"), ("theirs", "bin,text,theirs")] {
        let merged = bed.merge([&base, &clash, &other], Some(prefer));
        assert_eq!(
            bed.printed(on(merged["ca_id"].as_str().expect("a tree"), LIST)),
            list,
            "{prefer}"
        );
    }
}
