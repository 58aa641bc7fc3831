//! Data too large for a result is kept whole beside it.

use crate::server::root;

#[test]
fn output_and_values_beyond_the_bounds_are_kept_whole() {
    let client = root();
    let name = client.machine();
    let of = |code: &str| {
        let seq = client.submit(&name, code);
        client.get(&format!("/v1/machine/{name}/exec/{seq}/wait")).good()["outcome"].clone()
    };
    let read = |artifact: &serde_json::Value| {
        let id = artifact["id"].as_str().expect("an id");
        client.get(&format!("/v1/machine/{name}/artifact/{id}"))
    };
    assert!(of("print('short')").get("artifacts").is_none());
    let long = of("for n in range(1_000_000): print('line', n)");
    let artifact = &long["artifacts"][0];
    assert_eq!(
        (artifact["name"].as_str(), artifact["cut"].as_bool()),
        (Some("output"), Some(false))
    );
    let whole: String = (0..1_000_000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(read(artifact).text(), whole);
    let id = artifact["id"].as_str().expect("an id").to_owned();
    let part = client.send(
        "GET",
        &format!("/v1/machine/{name}/artifact/{id}"),
        &["range: bytes=0-5"],
        b"",
    );
    assert_eq!((part.status, part.text().as_str()), (206, "line 0"));
    let value = of("'é' * (9 << 20)");
    assert!(value["cut"].as_str().expect("words").contains("value cut"), "{}", value["cut"]);
    let artifact = &value["artifacts"][0];
    assert_eq!(
        (artifact["name"].as_str(), artifact["kind"].as_str()),
        (Some("value"), Some("text/plain"))
    );
    assert_eq!(read(artifact).text(), format!("'{}'", "é".repeat(9 << 20)));
    let list = client.get(&format!("/v1/machine/{name}/artifact")).good();
    assert_eq!(list["artifacts"].as_array().map(Vec::len), Some(2));
    // only its own machine shows it, and it goes with its machine
    let other = client.machine();
    let elsewhere = client.get(&format!("/v1/machine/{other}/artifact/{id}"));
    assert_eq!(elsewhere.code(404), "artifact.not_found");
    let file = crate::server::shared().data.join("artifacts").join(&id);
    assert!(file.exists());
    client.delete(&format!("/v1/machine/{name}")).good();
    client.post("/v1/store/gc", &serde_json::json!({})).good();
    assert!(!file.exists());
    let tricks = client.get(&format!("/v1/machine/{other}/artifact/..%2f..%2frecords.db"));
    assert_eq!(tricks.code(404), "artifact.not_found");
}
