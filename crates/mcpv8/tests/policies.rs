//! mcp-v8's policies and hooks over real machines: categories, a remote server, scripts.

use serde_json::{Value, json};
use stasis_mcpv8::{FsPush, V8, V8Mode, V8RunRequest, V8Setup};
use stasis_testbed::{TestHost, until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// The account that runs the service, which may set policies.
const ACCOUNT: &str = "root";

struct Bed {
    v8: V8,
    _bed: TestHost,
}

impl Bed {
    fn start() -> Bed {
        let bed = TestHost::of("javascript");
        Bed { v8: V8::new(bed.host.clone()), _bed: bed }
    }

    fn setup(&self, policies: Value) -> String {
        let setup = V8Setup { policies: Some(policies), ..V8Setup::default() };
        self.v8.put_setup(ACCOUNT, setup).expect("a setup").0
    }

    /// The output of code under a setup.
    fn printed(&self, setup: &str, code: &str) -> String {
        let (code, setup) = (Some(code.to_owned()), Some(setup.to_owned()));
        let request = V8RunRequest { code, setup, mode: V8Mode::Files, ..V8RunRequest::default() };
        let id = self.v8.run(ACCOUNT, request).expect("accepted");
        until("the run is over", || self.v8.open_execution(ACCOUNT, &id).is_none());
        let (info, printed) = self.v8.finished(ACCOUNT, &id).expect("an execution");
        assert_eq!((&*info.status, &info.error), ("completed", &None), "{printed}");
        printed
    }
}

fn rego(text: &str) -> Value {
    json!({ "modules": [{ "name": "a.rego", "text": text }] })
}

/// Prints the message of whatever a piece of code throws, or its value.
const TRY: &str = "const say = async (act) => { try { console.log(await act()) } \
                   catch (error) { console.log(error.message) } };";

/// A policy server on loopback: allows paths below /work, and notes what it is asked.
fn server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line");
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                if head.is_empty() {
                    head = line.trim().to_owned();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let path = body["input"]["path"].as_str().unwrap_or_default().to_owned();
            noted.lock().expect("seen").push(format!("{head} {}", body["input"]));
            let answer = match path.as_str() {
                "/tmp/w-endless" => "x".repeat(3 << 20),
                path => json!({ "result": { "allow": path.starts_with("/tmp/w-") } }).to_string(),
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
            let mut stream = reader.into_inner();
            // a client that has enough of an endless answer closes first
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (url, seen)
}

#[test]
fn a_remote_server_decides_about_files() {
    let (bed, (url, seen)) = (Bed::start(), server());
    let policies = json!({ "filesystem": { "policies": [{ "remote": url }] } });
    let setup = bed.setup(policies);
    let code = format!(
        "{TRY} await say(async () => {{ await fs.writeFile('/tmp/w-a', 'x'); \
         return fs.readFile('/tmp/w-a', 'utf8') }}); \
         await say(() => fs.readFile('/etc/hostname', 'utf8')); \
         await say(() => fs.rename('/tmp/a', '/tmp/w-b')); \
         await say(() => fs.exists('/tmp/w-endless')); \
         console.log(typeof fetch, typeof child_process, typeof WebSocket)"
    );
    let printed = bed.printed(&setup, &code);
    let wanted = "x\nfs.readFile denied by policy: /etc/hostname is not allowed\n\
                  fs.rename denied by policy: /tmp/a is not allowed\n\
                  fs.exists denied by policy: /tmp/w-endless is not allowed\n\
                  undefined undefined undefined";
    assert_eq!(printed, wanted);
    let seen = seen.lock().expect("seen").clone();
    assert!(seen[0].starts_with("POST /v1/data/mcp/filesystem HTTP/1.1 "), "{seen:?}");
    assert!(seen[0].contains(r#""operation":"writeFile""#), "{seen:?}");
    assert!(seen.iter().any(|one| one.contains(r#""destination":"/tmp/w-b""#)), "{seen:?}");
    // a server that does not answer allows nothing
    let gone = json!({ "filesystem": { "policies": [{ "remote": "http://127.0.0.1:9" }] } });
    let code = format!("{TRY} await say(() => fs.readFile('/tmp/w-a'))");
    let printed = bed.printed(&bed.setup(gone), &code);
    assert_eq!(printed, "fs.readFile denied by policy: /tmp/w-a is not allowed");
}

/// Machines that start with the program's globals lose those that their policies do not mention.
#[test]
fn machines_with_the_program_are_restricted_like_others() {
    let bed = Bed::start();
    let plain = bed.v8.put_setup(ACCOUNT, V8Setup::default()).expect("a setup").0;
    let is_built = || bed._bed.host.template(Some("javascript-mcp-v8")).is_ok();
    until("the template is built", || {
        bed.printed(&plain, "1");
        is_built()
    });
    let code = "console.log(typeof fetch, typeof child_process, typeof Deno, typeof WebSocket, \
                typeof fs)";
    assert_eq!(bed.printed(&plain, code), "function object object function object");
    let policies = json!({ "subprocess": { "policies": [rego("package mcp.subprocess\n\
                    allow if input.args[1] == \"true\"")] } });
    let setup = bed.setup(policies);
    // some with the template and, right after it was built, perhaps without
    for _ in 0..3 {
        assert_eq!(bed.printed(&setup, code), "undefined object object undefined object");
        let code = format!("{TRY} await say(() => child_process.exec('id'))");
        let denied = "subprocess.exec denied by policy: '/bin/sh' is not allowed";
        assert_eq!(bed.printed(&setup, &code), denied);
    }
}

#[test]
fn programs_ask_and_hooks_see_their_output() {
    let bed = Bed::start();
    let only_echo = "package mcp.subprocess\nallow if input.command == \"echo\"\n\
                     allow if { input.operation == \"exec\"; input.args[1] == \"true\" }";
    let setup = bed.setup(json!({ "subprocess": { "policies": [rego(only_echo)] } }));
    let code = format!(
        "{TRY} const run = async (name, args) => new TextDecoder().decode((await new \
         Deno.Command(name, {{ args }}).output()).stdout).trim(); \
         await say(() => run('echo', ['hi'])); await say(() => run('ls', [])); \
         await say(async () => (await child_process.exec('true')).code); \
         await say(() => child_process.exec('id'))"
    );
    let printed = bed.printed(&setup, &code);
    let wanted = "hi\nsubprocess.command_output denied by policy: 'ls' is not allowed\n0\n\
                  subprocess.exec denied by policy: '/bin/sh' is not allowed";
    assert_eq!(printed, wanted);

    let layer = "let runs = 0; async function handle(input, next) { runs += 1; \
                 if (input.args[1] === 'never') return { code: 7, stdout: 'no', stderr: '' }; \
                 const out = await next(input); \
                 if (out.code !== 0) return next({ ...input, args: ['-c', 'echo again'] }); \
                 return { ...out, stdout: `${runs} ${out.stdout}` } }";
    let stack = json!([{ "script": layer, "name": "layer.js" }, "@policy", "@execute"]);
    let setup = bed.setup(json!({ "subprocess": { "stack": stack, "policies": [] } }));
    let code = "for (const command of ['echo hi', 'exit 3', 'never']) { \
                const { code, stdout } = await child_process.exec(command); \
                console.log(code, stdout.trim()) }";
    assert_eq!(bed.printed(&setup, code), "0 1 hi\n0 again\n7 no");
    // its top level lasts from run to run
    let code = "console.log((await child_process.exec('echo hi')).stdout.trim())";
    assert_eq!(bed.printed(&setup, code), "4 hi");
}

#[test]
fn scripts_rewrite_deny_and_run_out_of_time() {
    let bed = Bed::start();
    let hook = "async function pre(input) { \
                if (input.path === '/forever') for (;;); \
                if (input.path === '/odd') return 'odd'; \
                if (input.path === '/leave') return { input: { ...input, operation: 'rm' } }; \
                if (input.path === '/no') return { allow: false, reason: 'not this one' }; \
                if (input.path.startsWith('/old/')) \
                return { input: { ...input, path: `/tmp/w-${input.path.slice(5)}` } }; \
                if (input.path === '/self') return { allow: typeof fetch === 'function' } }";
    let pre = json!([{ "script": hook, "name": "files.js", "timeout_ms": 2000 }]);
    let setup = bed.setup(json!({ "filesystem": { "pre": pre } }));
    let code = format!(
        "{TRY} await fs.writeFile('/old/a', 'moved'); \
         await say(() => fs.readFile('/tmp/w-a', 'utf8')); \
         for (const path of ['/no', '/odd', '/leave', '/self', '/forever']) \
         await say(() => fs.stat(path))"
    );
    let printed = bed.printed(&setup, &code);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..2], ["moved", "filesystem denied by pre hook (not this one)"]);
    assert!(lines[2].contains("answers something else"), "{printed}");
    assert!(lines[3].contains("`operation`"), "{printed}");
    assert_eq!(lines[4], "filesystem denied by pre hook", "it has no network of its own");
    assert!(lines[5].contains("it failed: it took longer than 2000 ms"), "{printed}");
}

#[test]
fn a_script_is_the_network() {
    let bed = Bed::start();
    let recorded = "function handle(input) { return { status: 201, headers: { 'x-source': \
                    'recording' }, body: Buffer.from(`${input.method} ${input.url}`)\
                    .toString('base64'), bodyEncoding: 'base64' } }";
    let allow = rego("package mcp.fetch\nallow if input.url_parsed.host == \"a.example\"");
    let execute = json!({ "execute": { "script": recorded, "name": "recorded.js" } });
    let setup = bed.setup(json!({ "fetch": { "stack": [execute], "policies": [allow] } }));
    let code = format!(
        "{TRY} await say(async () => {{ const answer = await fetch('http://a.example/x', {{ \
         method: 'POST', body: 'b' }}); \
         return [answer.status, answer.headers.get('x-source'), await answer.text()].join() }}); \
         await say(() => fetch('http://b.example/'))"
    );
    let printed = bed.printed(&setup, &code);
    let wanted = "201,recording,POST http://a.example/x\n\
                  fetch denied by policy: GET http://b.example/ is not allowed";
    assert_eq!(printed, wanted);
}

#[test]
fn imports_and_labels_ask_their_categories() {
    let bed = Bed::start();
    let none = rego("package mcp.modules\nallow if input.specifier_type == \"jsr\"");
    let setup = bed.setup(json!({ "modules": { "policies": [none] } }));
    let code = format!("{TRY} await say(() => import('npm:left-pad'))");
    let printed = bed.printed(&setup, &code);
    let wanted = "Module import denied by policy: 'https://esm.sh/left-pad' is not allowed by the \
                  module policy";
    assert!(printed.contains(wanted), "{printed}");
    let own = rego("package mcp.fs_snapshot\nallow if startswith(input.label, \"mine-\")");
    let setup = bed.setup(json!({ "fs_snapshot": { "policies": [own] } }));
    let push = |label: &str| FsPush {
        ca_id: "0".repeat(64),
        label: Some(label.to_owned()),
        expected: None,
        force: None,
        detach: None,
        message: None,
    };
    let said = |label: &str| {
        let permitted = bed.v8.permit_push(ACCOUNT, Some(&setup), &push(label));
        permitted.map_err(|error| error.message)
    };
    assert_eq!(said("mine-1"), Ok(()));
    assert_eq!(said("other"), Err("fs_push denied by policy: other is not allowed".into()));
    assert_eq!(bed.v8.permit_push(ACCOUNT, None, &push("other")).map_err(|e| e.message), Ok(()));
}
