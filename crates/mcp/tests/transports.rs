//! The older transport, sets of tools by header, questions to the user, and news.

use crate::common::{Client, Events, OLD, Service};
use hyper::StatusCode;
use serde_json::{Value, json};

/// A client of the transport with two addresses.
struct Sse {
    client: Client,
    events: Events,
}

impl Sse {
    async fn open(service: &Service, path: &str, version: &str) -> Sse {
        let mut client = service.client();
        let mut events = client.listen(path).await;
        client.path = events.next().await.leak();
        client.version = OLD;
        let mut sse = Sse { client, events };
        let hello = json!({ "protocolVersion": version, "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } });
        let greeted = sse.ask("initialize", hello).await;
        assert_eq!(greeted["result"]["protocolVersion"], version);
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(sse.client.post(ready).await.status, StatusCode::ACCEPTED);
        sse
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let message = self.client.message(7, method, params);
        assert_eq!(self.client.post(message).await.status, StatusCode::ACCEPTED);
        self.events.until(|message| message["id"] == 7).await
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": name, "arguments": arguments })).await["result"]
            .clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_down_and_posts_up() {
    let service = Service::start().await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut sse = Sse::open(&service, "/sse", version).await;
        let ran = sse.call("run_code", json!({ "code": "6 * 7" })).await;
        assert_eq!(ran["structuredContent"]["value"], "42", "{version}: {ran}");
    }
    let mut sse = Sse::open(&service, "/sse/forevervm", "2024-11-05").await;
    let made = sse.call("create-python-repl", json!({})).await;
    let name = made["content"][0]["text"].as_str().expect("a name").to_owned();
    let ran = sse.call("run-python-in-repl", json!({ "pythonCode": "1+1", "replId": name })).await;
    assert!(
        ran["content"][0]["text"].as_str().expect("text").contains("\"result\":\"2\""),
        "{ran}"
    );

    let stranger = Client { account: "other", ..sse.client.clone() };
    let message = stranger.message(1, "ping", json!({}));
    assert_eq!(stranger.post(message.clone()).await.status, StatusCode::NOT_FOUND);
    let forged = Client { path: "/sse/messages?session_id=x", ..sse.client.clone() };
    assert_eq!(forged.post(message).await.status, StatusCode::NOT_FOUND);
    for odd in [json!([]), json!(7), json!({ "jsonrpc": "2.0" })] {
        assert_eq!(sse.client.post(odd.clone()).await.status, StatusCode::BAD_REQUEST, "{odd}");
    }
    let foreign = Client { extra: vec![("origin", "http://evil.example")], ..sse.client.clone() };
    assert_eq!(foreign.post(json!({})).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_cancels_the_call() {
    let service = Service::start().await;
    let mut sse = Sse::open(&service, "/sse", "2024-11-05").await;
    sse.call("create_machine", json!({ "name": "left" })).await;
    let arguments = json!({ "machine": "left", "code": "x = 1\nprint('on')\nwhile True: pass",
        "timeout_seconds": 600 });
    let params = json!({ "name": "run_code", "arguments": arguments,
        "_meta": { "progressToken": "p" } });
    let message = sse.client.message(8, "tools/call", params);
    assert_eq!(sse.client.post(message).await.status, StatusCode::ACCEPTED);
    sse.events.until(|message| message["method"] == "notifications/progress").await;
    drop(sse);
    let machine = service.bed.host.machine("left").expect("the machine");
    let waiting = tokio::task::spawn_blocking(move || machine.wait(0).expect("an end"));
    let end = tokio::time::timeout(crate::common::PATIENCE, waiting).await.expect("in time");
    assert_eq!(end.expect("no panic").status, stasis_api::Status::Interrupted);
    assert_eq!(service.client().run("left", "x").await["structuredContent"]["value"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_chooses_the_tools() {
    let service = Service::start().await;
    let with = |set| Client { extra: vec![("x-stasis-tools", set)], ..service.client() };
    let count = async |client: Client| {
        let listed = client.request("tools/list", json!({})).await.result().clone();
        listed["tools"].as_array().expect("tools").len()
    };
    assert_eq!(count(with("forevervm")).await, 2);
    assert_eq!(count(with("stasis")).await, 10);
    assert!(count(with("all")).await > 10);
    let refused = with("conformance").request("tools/list", json!({})).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "that set is for tests");
    let named = Client { path: "/mcp/conformance", ..service.client() };
    assert_eq!(named.request("tools/list", json!({})).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_confirms_before_a_machine_is_deleted() {
    let service = Service::start().await;
    let client = service.able(json!({ "elicitation": {} }));
    client.call("create_machine", json!({ "name": "lab" })).await;
    let delete = async |responses: Value| {
        let params = json!({ "name": "delete_machine", "arguments": { "machine": "lab" },
            "inputResponses": responses });
        client.request("tools/call", params).await.result().clone()
    };
    let asked = client.call("delete_machine", json!({ "machine": "lab" })).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let message = asked["inputRequests"]["confirm"]["params"]["message"].as_str().expect("text");
    assert!(message.contains("Delete the machine lab?"), "{message}");
    for no in [
        json!({ "confirm": { "action": "decline" } }),
        json!({ "confirm": { "action": "accept", "content": { "confirm": false } } }),
        json!({ "confirm": 7 }),
    ] {
        assert_eq!(delete(no.clone()).await["isError"], true, "{no}");
    }
    assert!(service.bed.host.machine("lab").is_ok(), "it is still there");
    let yes = json!({ "confirm": { "action": "accept", "content": { "confirm": true } } });
    assert_eq!(delete(yes).await["structuredContent"]["done"], true);
    assert!(service.bed.host.machine("lab").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn news_of_machines() {
    let service = Service::start().await;
    let client = service.session("/mcp", "root").await;
    let mut news = client.listen("/mcp").await;
    let is = |method: &'static str| move |message: &Value| message["method"] == method;
    client.call("create_machine", json!({ "name": "lab" })).await;
    news.until(is("notifications/resources/list_changed")).await;
    let uri = json!({ "uri": "stasis://machine/lab/transcript" });
    client.request("resources/subscribe", uri.clone()).await.result();
    client.run("lab", "1").await;
    let updated = news.until(is("notifications/resources/updated")).await;
    assert_eq!(updated["params"]["uri"], uri["uri"]);

    let new = service.client();
    let filter = json!({ "notifications": { "resourcesListChanged": true,
        "resourceSubscriptions": ["stasis://machine/lab"] } });
    let stream = new.send(&new.message(5, "subscriptions/listen", filter)).await;
    let mut stream = Events::of(stream);
    stream.until(is("notifications/subscriptions/acknowledged")).await;
    new.run("lab", "2").await;
    let updated = stream.until(is("notifications/resources/updated")).await;
    assert_eq!(updated["params"]["uri"], "stasis://machine/lab");
    let other = Client { account: "other", ..new.clone() };
    other.call("create_machine", json!({ "name": "theirs" })).await;
    new.call("create_machine", json!({ "name": "ours" })).await;
    stream.until(is("notifications/resources/list_changed")).await;

    let params = json!({ "ref": { "type": "ref/resource", "uri": "stasis://machine/{name}" },
        "argument": { "name": "name", "value": "l" } });
    let names = new.request("completion/complete", params).await;
    assert_eq!(names.result()["completion"]["values"], json!(["lab"]));
}
