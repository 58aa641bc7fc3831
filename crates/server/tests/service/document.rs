//! The committed document is the one that the code makes.

use crate::server::root;
use std::path::Path;

#[test]
fn the_committed_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let made = serde_json::to_string_pretty(&stasis_server::openapi()).expect("JSON") + "\n";
    if std::env::var_os("STASIS_WRITE_DOCUMENT").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let committed = std::fs::read_to_string(&path).expect("docs/reference/openapi.json");
    let advice = "STASIS_WRITE_DOCUMENT=1 cargo test -p stasis-server document writes it anew";
    assert!(committed == made, "docs/reference/openapi.json is not what the code says: {advice}");
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let document = stasis_server::openapi();
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().expect("a name");
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    assert!(document["openapi"].as_str().expect("a version").starts_with("3.1"));
}

#[test]
fn it_is_served_and_readable_without_anything_from_elsewhere() {
    let client = root();
    assert_eq!(client.get("/openapi.json").good(), stasis_server::openapi());
    let page = client.get("/docs");
    assert!(page.head.contains("content-type: text/html"), "{}", page.head);
    let text = page.text();
    assert!(text.contains("/v1/machine/{name}/exec") && text.contains("ExecRequest"));
    assert!(text.contains("<code>durability</code> (query)") && text.contains("<code>host</code>"));
    for outside in ["<script", "src=", "http://", "https://", "@import", "url("] {
        assert!(!text.contains(outside), "{outside}");
    }
}
