//! Section 3: flags, environment and configuration file. Those of policies and upstream servers
//! are not here.

use super::{Bed, McpClient, Row, differs, send, words, works};
use crate::v8::{Front, front};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A module whose export `f` gives 42; it has no memory.
pub const ANSWER: &[u8] =
    b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\x03\x02\x01\0\x07\x05\x01\x01f\
    \0\0\x0a\x06\x01\x04\0\x41\x2a\x0b";

pub const ROWS: &[Row] = &[
    works("3.1", "--config: TOML and JSON, unknown and forbidden keys are fatal", |bed| {
        for (name, text, fine) in [
            ("a.toml", "execution_timeout = 2\nheap-store = 'dir'", true),
            ("b.json", r#"{"execution-timeout": 2, "allowed_hosts": ["a", "b"]}"#, true),
            ("c.toml", "other = 1", false),
            ("d.toml", "config = 'x'", false),
            ("e.toml", "print_openapi = true", false),
            ("f.json", "[]", false),
        ] {
            let path = file(bed, name, text.as_bytes());
            let (done, ..) = bed.program(&["--config", &path, "--print-openapi"], &[]);
            assert_eq!(done, fine, "{name}");
        }
    }),
    works("3.1", "the line wins over the environment, and that over the file", |bed| {
        let path = file(bed, "limits.toml", b"execution_timeout = 0");
        let run = |flags: &[&str], environment: &[(&str, &str)]| {
            bed.program(&[&["--config", &path], flags].concat(), environment).0
        };
        assert!(!run(&[], &[]), "0 of the file is refused");
        assert!(run(&[], &[("MCP_V8_EXECUTION_TIMEOUT", "3")]));
        assert!(!run(&["--execution-timeout=0"], &[("MCP_V8_EXECUTION_TIMEOUT", "3")]));
    }),
    works("3.1", "--print-openapi", |bed| {
        let (fine, printed, _) = bed.program(&["--print-openapi"], &[]);
        let document: Value = serde_json::from_str(&printed).expect("JSON");
        assert!(fine && document["openapi"] == "3.0.3");
    }),
    works("3.1", "--jwks-url, JWKS_URL: tokens on ports", |bed| {
        let keys = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "one",
            "x": "qxIUxGQ_ul4-MFGMvKPmz9OONGHSN9K_PDA7Ti0j2h8" }] });
        let path = file(bed, "keys.json", keys.to_string().as_bytes());
        let own = front(&bed.place, &[&format!("--jwks-url={path}")]);
        assert_eq!(send(own.address, "GET /api/executions", &[], "").status, 401);
        assert_eq!(send(own.address, "GET /api-doc/openapi.json", &[], "").status, 200);
        let odd = [("JWKS_URL", "/nowhere"), ("MCP_V8_HTTP_PORT", "1")];
        assert!(!bed.program(&[], &odd).0, "keys that cannot be read end the start");
    }),
    works("3.1", "--http-port, --sse-port exclude each other; PORT comes last", |bed| {
        assert!(!bed.program(&["--http-port=1", "--sse-port=2"], &[]).0);
        assert!(!bed.program(&["--http-port=70000"], &[]).0);
        let (_, _, said) = bed.program(&["--bind-host=x"], &[("PORT", "1")]);
        assert!(said.contains("--bind-host is an IP address"), "PORT has it listen: {said}");
    }),
    differs(
        "3.1",
        "--bind-host is 0.0.0.0 by default",
        "127.0.0.1, so that nobody else reaches a port without a token",
        |bed| assert!(bed.stateless().ip().is_loopback()),
    ),
    works("3.1", "--heap-memory-max bounds a run", |bed| {
        let own = front(&bed.place, &["--heap-memory-max=32"]);
        let code = "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))";
        let info = bed.run(own.address, &json!({ "code": code }));
        assert!(words(&info["error"]).starts_with("Out of memory"), "{info}");
        assert_eq!(bed.run(own.address, &json!({ "code": "console.log(1)" }))["output"], "1");
    }),
    works("3.1", "--execution-timeout: 1 to 300", |bed| {
        let own = front(&bed.place, &["--execution-timeout=1"]);
        assert_eq!(bed.run(own.address, &json!({ "code": "for (;;);" }))["status"], "timed_out");
        for odd in ["0", "301", "x"] {
            assert!(!bed.program(&["--execution-timeout", odd], &[]).0, "{odd}");
        }
    }),
    works("3.1", "--max-concurrent-executions", |bed| {
        let own = front(&bed.place, &["--max-concurrent-executions=1"]);
        let submit = |code: &str| {
            let json = ["content-type: application/json"];
            let body = json!({ "code": code }).to_string();
            let answer = send(own.address, "POST /api/exec", &json, &body);
            words(&answer.json()["execution_id"]).to_owned()
        };
        let status = |id: &str| {
            send(own.address, &format!("GET /api/executions/{id}"), &[], "").json()["status"]
                .clone()
        };
        let endless = submit("await new Promise(() => {})");
        let next = submit("1");
        // runs of another process are not held up
        assert_eq!(bed.run(bed.stateless(), &json!({ "code": "console.log(3)" }))["output"], "3");
        assert_eq!((status(&endless), status(&next)), (json!("running"), json!("running")));
        send(own.address, &format!("POST /api/executions/{endless}/cancel"), &[], "");
        let since = Instant::now();
        while status(&next) != "completed" {
            assert!(since.elapsed() < Duration::from_secs(60), "{}", status(&next));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!bed.program(&["--max-concurrent-executions=0"], &[]).0);
    }),
    works("3.1", "--heap-store, --fs-store: none, dir, s3", |bed| {
        for (flags, count) in [
            (&["--heap-store=none"][..], 3),
            (&["--heap-store=s3"], 13),
            (&["--fs-store=dir"], 16),
            (&["--fs-store=s3", "--heap-store=dir"], 20),
        ] {
            let own = front(&bed.place, flags);
            assert_eq!(McpClient::open(own.address).tools().len(), count, "{flags:?}");
        }
        assert!(!bed.program(&["--heap-store=disk"], &[]).0);
    }),
    differs(
        "3.1",
        "--session-db-path, --heap-dir, --fs-dir, --fs-labels-db, --s3-bucket, --cache-dir",
        "the data directory holds everything",
        |bed| {
            instead(
                bed,
                &[
                    "--session-db-path=/x",
                    "--heap-dir=/x",
                    "--fs-dir=/x",
                    "--fs-labels-db=/x",
                    "--s3-bucket=x",
                    "--cache-dir=/x",
                    "--fs-store-dir=/x",
                ],
            );
        },
    ),
    differs("3.1", "--fs-passthrough", "refused: machines never see files of the host", |bed| {
        assert!(!bed.program(&["--fs-passthrough"], &[]).0)
    }),
    differs(
        "3.1",
        "--harden-*, --sandbox-manifest",
        "every machine is sandboxed by namespaces, a seccomp filter and cgroups",
        |bed| {
            instead(
                bed,
                &[
                    "--harden-freeze-ops",
                    "--harden-neutralize-proxy-details",
                    "--harden-neutralize-introspection",
                    "--harden-remove-bootstrap",
                    "--harden-remove-shared-memory",
                    "--sandbox-manifest={}",
                ],
            );
        },
    ),
    works("3.1", "--instructions, --run-js-description: text, @file, @@text", |bed| {
        let path = file(bed, "words.txt", b"From a file.");
        for (given, shown) in
            [("Plain.", "Plain."), (&*format!("@{path}"), "From a file."), ("@@at", "@at")]
        {
            let flags =
                [format!("--instructions={given}"), format!("--run-js-description={given}")];
            let own = front(&bed.place, &flags.each_ref().map(String::as_str));
            let client = McpClient::open(own.address);
            assert_eq!(client.greeting["instructions"], shown);
            let tools = client.tools();
            let run_js = tools.iter().find(|tool| tool["name"] == "run_js").expect("run_js");
            assert_eq!(run_js["description"], shown);
        }
    }),
    differs(
        "3.1",
        "--cluster-port and the other flags of a cluster",
        "there is no cluster: one service owns the data directory",
        |bed| {
            instead(
                bed,
                &[
                    "--cluster-port=4000",
                    "--node-id=a",
                    "--peers=b@c:1",
                    "--join=c:1",
                    "--join-as-learner",
                    "--advertise-addr=a:1",
                    "--heartbeat-interval=1",
                    "--election-timeout-min=1",
                    "--election-timeout-max=2",
                    "--metadata-only",
                ],
            );
        },
    ),
    works("3.1", "--wasm-module, --wasm-stubs, -prefix and -description", |bed| {
        let path = file(bed, "flag.wasm", ANSWER);
        let module = format!("--wasm-module=answer={path}:64k");
        let plain = with_module(bed, &[&module]);
        let stub = "--wasm-stub-description=answer=Gives 42.";
        let own = with_module(bed, &[&module, "--wasm-stub-prefix=do__", stub]);
        let none = with_module(bed, &[&module, "--wasm-stubs=false"]);
        let last = |own: &Front| McpClient::open(own.address).tools().pop().expect("a tool");
        assert_eq!(last(&plain)["name"], "runjs__wasm__answer");
        assert_eq!(last(&own)["name"], "do__wasm__answer");
        assert!(words(&last(&own)["description"]).contains("Gives 42."));
        assert_eq!(last(&none)["name"], "run_js");
        assert!(!bed.program(&["--wasm-stubs=maybe"], &[]).0);
    }),
    works("3.1", "--wasm-config, --wasm-default-max-memory", |bed| {
        let path = file(bed, "config.wasm", ANSWER);
        for config in [
            json!({ "answer": path }),
            json!({ "answer": { "path": path, "max_memory_bytes": 65536, "description": "d" } }),
        ] {
            with_module(bed, &[&format!("--wasm-config={config}"), "--wasm-default-max-memory=1m"]);
        }
        // a memory of one page
        let memory = b"\0asm\x01\0\0\0\x05\x03\x01\0\x01";
        let large = file(bed, "large.wasm", memory);
        let module = format!("--wasm-module=large={large}");
        assert!(!bed.program(&[&module, "--wasm-default-max-memory=1k"], &[]).0);
    }),
    works("3.1", "--skills-dir", |bed| {
        let dir = bed.place.data.path().join("skills/count");
        std::fs::create_dir_all(&dir).expect("a directory");
        let text = "---\nname: count\ndescription: Counts\n---\nCount.\n";
        std::fs::write(dir.join("SKILL.md"), text).expect("written");
        let flag = format!("--skills-dir={}", dir.parent().expect("skills").display());
        let own = front(&bed.place, &[&flag]);
        let client = McpClient::open(own.address);
        let list = client.request("skills/list", &json!({}))["result"]["skills"].clone();
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    }),
    differs(
        "3.1",
        "--allow-external-modules",
        "the setting `imports` of the service allows them",
        |bed| instead(bed, &["--allow-external-modules"]),
    ),
    works("3.1", "--allow-run-js-file", |bed| {
        let own = front(&bed.place, &["--allow-run-js-file"]);
        let path = file(bed, "own.js", b"console.log('own')");
        let said = McpClient::open(own.address).call("run_js", &json!({ "file": path }));
        assert_eq!(said["output"], "own", "{said}");
    }),
    works(
        "3.1",
        "--stateless, --directory-path, --enable-fs-snapshots: taught, and removed",
        |bed| {
            for (flags, count) in [
                (&["--stateless"][..], 3),
                (&["--directory-path=/x"], 13),
                (&["--enable-fs-snapshots"], 16),
            ] {
                let own = front(&bed.place, flags);
                assert_eq!(McpClient::open(own.address).tools().len(), count, "{flags:?}");
            }
        },
    ),
    works("3.1", "a flag there is not is refused", |bed| {
        for odd in ["--nothing", "word", "--http-port"] {
            let (fine, _, said) = bed.program(&[odd], &[]);
            assert!(!fine && said.starts_with("error["), "{odd}: {said}");
        }
    }),
    differs(
        "3.2",
        "mcp-v8-cli",
        "its own client program speaks the routes of section 2; none is provided",
        |bed| assert_eq!(send(bed.heap(), "GET /api/cli/linux-x86_64", &[], "").status, 404),
    ),
];

/// Flags that are accepted, and say in one line each what applies instead.
fn instead(bed: &Bed, flags: &[&str]) {
    let (fine, _, said) = bed.program(flags, &[]);
    assert!(fine, "{said}");
    for flag in flags {
        let name = flag.split('=').next().unwrap_or(flag);
        let lines = said.lines().filter(|line| line.starts_with(&format!("{name}: "))).count();
        assert_eq!(lines, 1, "{name}: {said}");
    }
}

fn file(bed: &Bed, name: &str, content: &[u8]) -> String {
    let path = bed.place.data.path().join(name);
    std::fs::write(&path, content).expect("written");
    path.display().to_string()
}

/// A port whose code has the module `answer`.
fn with_module(bed: &Bed, flags: &[&str]) -> Front {
    let own = front(&bed.place, flags);
    let code = "console.log(answer.f(), __wasm_answer instanceof WebAssembly.Module)";
    assert_eq!(bed.run(own.address, &json!({ "code": code }))["output"], "42 true");
    own
}
