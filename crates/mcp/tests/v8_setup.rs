//! mcp-v8's tools with what a process in front was started with, and calls that go on as tasks.

use crate::common::{Client, Service};
use serde_json::{Value, json};
use stasis_mcpv8::{SkillFile, V8, V8Setup, V8Skill, WasmModule};
use std::time::Duration;

/// `next` counts up from 1, in a global of the instance.
const COUNTER: &[u8] = b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\x03\x02\x01\0\x05\x03\x01\0\x01\
    \x06\x06\x01\x7f\x01\x41\0\x0b\x07\x11\x02\x04next\0\0\x06memory\x02\0\x0a\x0d\x01\x0b\0\x23\0\
    \x41\x01\x6a\x24\0\x23\0\x0b";
/// Needs a function `e.f`.
const NEEDY: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x07\x01\x01e\x01f\0\0";
const SKILL: &[u8] = b"---\nname: count\ndescription: Counts things\n---\nCall counter.next().\n";

fn said(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().expect("a text");
    serde_json::from_str(text).expect("JSON")
}

/// A setup of the account `root`, in the form of a header.
fn setup(service: &Service) -> &'static str {
    let v8 = V8::new(service.bed.host.clone());
    let put = |bytes: &[u8]| v8.put_setup_file("root", bytes).expect("kept");
    let module = |name: &str, bytes: &[u8]| WasmModule {
        name: name.into(),
        file: put(bytes),
        max_memory_bytes: 64 << 10,
        description: Some(format!("The {name} module.")),
        size: 0,
        exports: Vec::new(),
        imports: Vec::new(),
    };
    let file = |path: &str, bytes: &[u8]| SkillFile {
        path: path.into(),
        file: put(bytes),
        digest: String::new(),
        size: 0,
    };
    let files = vec![file("SKILL.md", SKILL), file("data/raw.bin", &[0, 159, 146, 150])];
    let skill = V8Skill { path: "count".into(), files, frontmatter: Default::default() };
    let setup = V8Setup {
        instructions: Some("Count.".into()),
        run_js_description: Some("Runs our code.".into()),
        wasm: vec![module("counter", COUNTER), module("needy", NEEDY)],
        stub_prefix: Some("runjs__".into()),
        skills: vec![skill],
        ..V8Setup::default()
    };
    let (id, kept) = v8.put_setup("root", setup.clone()).expect("a setup");
    assert_eq!(
        (&*kept.wasm[0].exports.join(" "), &*kept.wasm[1].imports[0]),
        ("next() memory", "e.f")
    );
    assert_eq!(v8.put_setup("root", setup.clone()).expect("again").0, id, "named by its content");
    let small = |module: &WasmModule| WasmModule { max_memory_bytes: 1, ..module.clone() };
    let small = V8Setup { wasm: setup.wasm.iter().map(small).collect(), ..setup.clone() };
    let refused = v8.put_setup("root", small).expect_err("too small a limit");
    assert!(refused.message.contains("a memory of 65536 bytes"), "{refused}");
    let strange = v8.put_setup("other", setup).expect_err("files of another account");
    assert_eq!(strange.status, 404);
    Box::leak(id.into_boxed_str())
}

async fn run(client: &Client, arguments: Value) -> (Value, String) {
    let id = said(&client.call("run_js", arguments).await)["execution_id"].clone();
    let asked = json!({ "execution_id": id });
    loop {
        let info = said(&client.call("get_execution", asked.clone()).await);
        if info["status"] != "running" {
            let page = said(&client.call("get_execution_output", asked).await);
            return (info, page["data"].as_str().expect("data").to_owned());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_by_flag_work_with_heaps_and_have_stubs() {
    let service = Service::of("javascript").await;
    let id = tokio::task::block_in_place(|| setup(&service));
    let extra = vec![("x-mcp-v8-setup", id), ("x-mcp-session-id", "wasm")];
    let client = Client { path: "/mcp/v8-heap-fs", extra: extra.clone(), ..service.client() };
    let code = "console.log(counter.next(), __wasm_counter instanceof WebAssembly.Module)";
    let (first, printed) = run(&client, json!({ "code": code })).await;
    assert_eq!(printed, "1 true", "{first}");
    // the instance goes on in the session, and from the heap
    assert_eq!(run(&client, json!({ "code": code })).await.1, "2 true");
    assert_eq!(run(&client, json!({ "code": code, "heap": first["heap"] })).await.1, "2 true");
    let (repl, _) = run(&client, json!({ "code": "counter.next()", "repl": true })).await;
    assert_eq!((&repl["status"], &repl["result"]), (&json!("completed"), &json!("3")), "{repl}");
    let code = "let n = 0; new WebAssembly.Instance(__wasm_needy, { e: { f() {} } }); \
                console.log(typeof needy)";
    assert_eq!(run(&client, json!({ "code": code })).await.1, "undefined");
    // a session that begins at the prompt has them, too
    let at_prompt = vec![("x-mcp-v8-setup", id), ("x-mcp-session-id", "prompt")];
    let at_prompt = Client { extra: at_prompt, ..client.clone() };
    let (repl, _) = run(&at_prompt, json!({ "code": "counter.next()", "repl": true })).await;
    assert_eq!(repl["result"], "1", "{repl}");

    let stateless = Client { path: "/mcp/v8-stateless", ..client.clone() };
    for _ in 0..2 {
        let code = json!({ "code": "console.log(counter.next())" });
        assert_eq!(said(&stateless.call("run_js", code).await)["output"], "1", "each is fresh");
    }
    let list = client.request("tools/list", json!({})).await.result().clone();
    let tools = list["tools"].as_array().expect("tools");
    assert_eq!((tools.len(), &tools[20]["name"]), (22, &json!("runjs__wasm__counter")));
    assert_eq!(tools[20]["inputSchema"], json!({ "type": "object", "properties": {} }));
    let about = tools[20]["description"].as_str().expect("words");
    assert!(about.contains("The counter module.") && about.contains("next()"), "{about}");
    assert!(tools[21]["description"].as_str().expect("words").contains("e.f"));
    let stub = client.call("runjs__wasm__counter", json!({})).await;
    let text = stub["content"][0]["text"].as_str().expect("words");
    assert!(text.contains("run_js") && text.contains("counter"), "{stub}");
    // processes started without them have none
    let plain = Client { path: "/mcp/v8-heap-fs", ..service.client() };
    assert_eq!(
        plain.request("tools/list", json!({})).await.result()["tools"]
            .as_array()
            .expect("tools")
            .len(),
        20
    );
    for account in ["root", "other"] {
        let id = if account == "root" { "0" } else { id };
        let odd = Client { account, extra: vec![("x-mcp-v8-setup", id)], ..plain.clone() };
        let reply = odd.post(odd.message(1, "tools/list", json!({}))).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
    }
}

/// mcp-v8's own configuration decides about imports, and only for the service's own account.
#[tokio::test(flavor = "multi_thread")]
async fn policies_of_a_setup_decide() {
    let service = Service::of("javascript").await;
    let text = "package mcp.modules\nallow if startswith(input.url_parsed.path, \"/lodash\")";
    let policies = json!({ "modules": { "policies": [
        { "modules": [{ "name": "modules.rego", "text": text }] }
    ] } });
    let setup = V8Setup { policies: Some(policies), ..V8Setup::default() };
    let id = tokio::task::block_in_place(|| {
        let v8 = V8::new(service.bed.host.clone());
        let strange = v8.put_setup("other", setup.clone()).expect_err("another account");
        assert_eq!(strange.status, 403);
        let odd = json!({ "printing": { "policies": [] } });
        let odd = v8.put_setup("root", V8Setup { policies: Some(odd), ..V8Setup::default() });
        assert_eq!(odd.expect_err("no such category").status, 400);
        v8.put_setup("root", setup).expect("a setup").0
    });
    let extra = vec![("x-mcp-v8-setup", &*Box::leak(id.into_boxed_str()))];
    let client = Client { path: "/mcp/v8-stateless", extra, ..service.client() };
    let code = "await import('npm:left-pad').catch((error) => console.log(error.message)); \
                console.log(typeof fetch)";
    let output = said(&client.call("run_js", json!({ "code": code })).await)["output"].clone();
    let output = output.as_str().expect("output");
    assert!(
        output.contains("Module import denied by policy: 'https://esm.sh/left-pad'"),
        "{output}"
    );
    // no policy mentions requests
    assert!(output.ends_with("undefined"), "{output}");
}

/// Policies see the headers that opened the connection. Later ones, and those that code names, they
/// do not; and code sees none.
#[tokio::test(flavor = "multi_thread")]
async fn policies_see_the_headers_of_a_connection() {
    let service = Service::of("javascript").await;
    let text = "package mcp.filesystem\nallow if input.mcp_headers == {\"tenant\": \"a\"}";
    let policies = json!({ "filesystem": { "policies": [
        { "modules": [{ "name": "files.rego", "text": text }] }
    ] } });
    let setup = V8Setup { policies: Some(policies), ..V8Setup::default() };
    let id = tokio::task::block_in_place(|| {
        let v8 = V8::new(service.bed.host.clone());
        v8.put_setup("root", setup).expect("a setup").0
    });
    let id = &*Box::leak(id.into_boxed_str());
    let code = "const said = await fs.writeFile('/tmp/a', '1').then(() => 'written', \
                (error) => error.message); \
                const ask = globalThis[Symbol.for('stasis.effects')]; let seen; \
                try { seen = ask.begin('filesystem', { operation: 'stat', path: '/', \
                mcp_headers: { tenant: 'a' } }).input } catch (error) { seen = error.message } \
                console.log(said, JSON.stringify(seen))";
    let allowed = "written {\"operation\":\"stat\",\"path\":\"/\"}";
    let denied = "fs.writeFile denied by policy: /tmp/a is not allowed \
                  \"fs.stat denied by policy: / is not allowed\"";
    let of = |tenant: &[&'static str], path| {
        let tenants = tenant.iter().map(|name| ("x-mcp-tenant", *name));
        let extra = [("x-mcp-v8-setup", id)].into_iter().chain(tenants).collect();
        Client { path, extra, ..service.client() }
    };
    // each request of the revision without sessions is its own connection
    let stateless = "/mcp/v8-stateless";
    for (tenant, wanted) in [(&["a"][..], allowed), (&["b"], denied), (&[], denied)] {
        let answer = of(tenant, stateless).call("run_js", json!({ "code": code })).await;
        assert_eq!(said(&answer)["output"], wanted, "{tenant:?}");
    }
    let mut first = service.open(of(&["a"], "/mcp/v8")).await;
    first.extra = of(&["b"], "/mcp/v8").extra;
    assert_eq!(run(&first, json!({ "code": code })).await.1, allowed);
    let mut second = service.open(of(&["b"], "/mcp/v8")).await;
    second.extra = of(&["a"], "/mcp/v8").extra;
    assert_eq!(run(&second, json!({ "code": code })).await.1, denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn skills_and_texts_of_a_setup() {
    let service = Service::of("javascript").await;
    let id = tokio::task::block_in_place(|| setup(&service));
    let extra = vec![("x-mcp-v8-setup", id)];
    let modern = Client { path: "/mcp/v8", extra, ..service.client() };
    let hello = modern.request("server/discover", json!({})).await.result().clone();
    assert_eq!(hello["instructions"], "Count.", "{hello}");
    assert_eq!(hello["capabilities"]["extensions"]["io.modelcontextprotocol/skills"], json!({}));
    let session = service.open(modern.clone()).await;
    for client in [&modern, &session] {
        let tools = client.request("tools/list", json!({})).await.result()["tools"].clone();
        let tools = tools.as_array().expect("tools").clone();
        let run_js = tools.iter().find(|tool| tool["name"] == "run_js").expect("run_js");
        assert_eq!(run_js["description"], "Runs our code.");
        let list = client.request("skills/list", json!({})).await.result().clone();
        let entry = list["skills"][0].clone();
        assert_eq!((&list["resultType"], &list["skills"][1]), (&json!("complete"), &Value::Null));
        assert_eq!(
            entry["frontmatter"],
            json!({ "name": "count", "description": "Counts things" })
        );
        let uri = json!({ "uri": entry["uri"] });
        let got = client.request("skills/get", uri.clone()).await.result().clone();
        assert_eq!((&got["skill"], &got["cacheScope"]), (&entry, &json!("private")));
        let read = client.request("resources/read", uri).await.result()["contents"][0].clone();
        assert_eq!(read["text"].as_str().map(str::as_bytes), Some(SKILL));
        assert_eq!(entry["resources"][0]["size"], SKILL.len());
        let raw = json!({ "uri": entry["resources"][1]["uri"] });
        let read = client.request("resources/read", raw).await.result()["contents"][0].clone();
        assert_eq!(read["blob"], "AJ+Slg==");
        let list = client.request("resources/list", json!({})).await.result().clone();
        assert_eq!(list["resources"].as_array().map(Vec::len), Some(6));
        let odd = client.request("skills/get", json!({ "uri": "skill://no/SKILL.md" })).await;
        assert_eq!(odd.last()["error"]["code"], -32602);
    }
    let plain = Client { path: "/mcp/v8", ..service.client() };
    let odd = plain.request("skills/list", json!({})).await;
    assert_eq!(odd.last()["error"]["code"], -32601, "there are no skills without a setup");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_last_are_tasks_and_a_cancelled_task_stops_its_run() {
    let service = Service::of("javascript").await;
    let knows = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let of = |path| Client { path, ..service.able(knows.clone()) };
    let later = "await new Promise((done) => setTimeout(done, 2500)); console.log(7)";

    let stateless = of("/mcp/v8-stateless");
    let made = stateless.call("run_js", json!({ "code": later })).await;
    assert_eq!(made["resultType"], "task", "{made}");
    let end = stateless.over(made["taskId"].as_str().expect("an id")).await;
    assert_eq!(
        (&end["status"], said(&end["result"])),
        (&json!("completed"), json!({ "output": "7" }))
    );
    let quick = stateless.call("run_js", json!({ "code": "console.log(8)" })).await;
    if quick["resultType"] != "task" {
        assert_eq!(said(&quick)["output"], "8", "over before there was a task: {quick}");
    }

    let heaps = of("/mcp/v8");
    let made = heaps.call("run_js", json!({ "code": "while (true) {}" })).await;
    assert_eq!(made["resultType"], "task", "{made}");
    let id = made["taskId"].as_str().expect("an id");
    let run = json!({ "execution_id": id.strip_prefix("run_js:") });
    heaps.request("tasks/cancel", json!({ "taskId": id })).await.result();
    assert_eq!(heaps.over(id).await["status"], "cancelled");
    let info = said(&heaps.call("get_execution", run).await);
    assert_eq!(info["status"], "cancelled", "{info}");
    // tasks belong to an account, and clients that know none are not given any
    let stranger = Client { account: "other", ..heaps.clone() };
    for (client, id) in [(&stranger, id), (&heaps, "run_js:x"), (&heaps, "x")] {
        let reply = client.request("tasks/get", json!({ "taskId": id })).await;
        assert_eq!(reply.last()["error"]["code"], -32602, "{id}");
    }
    let plain = Client { path: "/mcp/v8-stateless", ..service.client() };
    assert_eq!(said(&plain.call("run_js", json!({ "code": later })).await)["output"], "7");

    // the same in a session of the earlier revision, which asks for a task itself
    let session = service.session("/mcp/v8", "root").await;
    let tools = session.request("tools/list", json!({})).await.result()["tools"].clone();
    let run_js = tools.as_array().expect("tools").iter().find(|tool| tool["name"] == "run_js");
    assert_eq!(run_js.expect("run_js")["execution"]["taskSupport"], "optional");
    let start = async |code: &str| {
        let params = json!({ "name": "run_js", "arguments": { "code": code }, "task": {} });
        session.request("tools/call", params).await.result()["task"].clone()
    };
    let task = start(later).await;
    let id = json!({ "taskId": task["taskId"] });
    let listed = session.request("tasks/list", json!({})).await.result().clone();
    assert_eq!(listed["tasks"][0]["taskId"], task["taskId"], "{listed}");
    let result = session.request("tasks/result", id.clone()).await.result().clone();
    assert!(said(&result)["execution_id"].is_string(), "{result}");
    assert_eq!(session.request("tasks/get", id).await.result()["status"], "completed");
    let id = json!({ "taskId": start("while (true) {}").await["taskId"] });
    let cancelled = session.request("tasks/cancel", id.clone()).await;
    assert_eq!(cancelled.result()["status"], "cancelled");
    assert_eq!(session.request("tasks/cancel", id).await.last()["error"]["code"], -32602);
}
