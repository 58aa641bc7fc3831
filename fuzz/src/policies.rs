//! Policies: any text is one, or is refused with a reason; a parsed one can be written and parsed
//! again, and its tests run.

use stasis_api::Name;
use stasis_policy::document::{self, Policy};
use stasis_policy::request;

pub fn seeds() -> Vec<Vec<u8>> {
    let toml = r#"
        description = "x"
        [network]
        allow = ["a.example", "*.b.example:443,8000-9000", "10.1.0.0/16:5432/tcp"]
        ask = ["c.example"]
        deny = ["*:25"]
        [http]
        allow = ["GET,HEAD d.example/v1/*/x", "e.example:8443"]
        deny = ["DELETE *"]
        [secrets]
        allow = ["KEY@d.example", "*"]
        [tools]
        allow = ["a.*", "b.c d=e* f.g=1"]
        [modules]
        allow = ["npm:*", "https://esm.sh/*"]
        [[test]]
        fetch = "https://a.example/x"
        expect = "allow"
        [[test]]
        fetch = "https://d.example/v1/a/x?y"
        method = "HEAD"
        expect = "allow"
        [[test]]
        import = "npm:a@1"
        expect = "deny"
        [[test]]
        secret = "KEY@d.example:443"
        expect = "allow"
        [[test]]
        tool = "b.c"
        arguments = '{"d": "e"}'
        expect = "deny"
    "#;
    let json = r#"{"network": {"allow": ["a.example"]}, "test": [
        {"fetch": "udp://1.2.3.4:53", "expect": "deny"}]}"#;
    vec![toml.as_bytes().to_vec(), json.as_bytes().to_vec()]
}

pub fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(policy) = document::parse(text) else { return };
    let name: Name = "fuzzed".parse().expect("a name");
    if Policy::compile(name, &policy).is_err() {
        return;
    }
    let written = serde_json::to_string(&policy).expect("JSON");
    assert_eq!(document::parse(&written).as_ref(), Ok(&policy));
    request::test(&policy).expect("its tests can be read");
}
