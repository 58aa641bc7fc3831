//! `stasis mcp-v8` with WebAssembly modules, skills and texts of its own, and with tokens.
//!
//! Needs what dev/setup.sh prepares: `STASIS_TEST_MCP` has the clients of npm.

use crate::v8::{Place, STASIS, front, front_on, request};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// `next` counts up from 1, in a global of the instance.
const COUNTER: &[u8] = b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\x03\x02\x01\0\x05\x03\x01\0\x01\
    \x06\x06\x01\x7f\x01\x41\0\x0b\x07\x11\x02\x04next\0\0\x06memory\x02\0\x0a\x0d\x01\x0b\0\x23\0\
    \x41\x01\x6a\x24\0\x23\0\x0b";
const SKILL: &str = "---\nname: count\ndescription: Counts\n---\nCall counter.next() in run_js.\n";
/// Of `SKILL`.
const DIGEST: &str = "d42d7123c03b327f5a289494d2aba6b6fb7a30d428303b3241298f94cf947d71";
/// Of these tests and nothing else.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIIQt4yTY/QvJbAgocJKqRISTyskIoAd1XwUPus9kF+fN\n\
    -----END PRIVATE KEY-----\n";
const PUBLIC: &str = "qxIUxGQ_ul4-MFGMvKPmz9OONGHSN9K_PDA7Ti0j2h8";

/// Flags with files of their own, below the data directory of a place.
fn equipped(place: &Place) -> Vec<String> {
    let dir = place.data.path().join("own");
    let skill = dir.join("skills/count");
    std::fs::create_dir_all(&skill).expect("directories");
    std::fs::write(dir.join("counter.wasm"), COUNTER).expect("written");
    std::fs::write(dir.join("words"), "Count with care.").expect("written");
    std::fs::write(skill.join("SKILL.md"), SKILL).expect("written");
    let at = |name: &str| dir.join(name).display().to_string();
    [
        "--heap-store=dir".to_owned(),
        format!("--wasm-module=counter={}:64k", at("counter.wasm")),
        "--wasm-stub-prefix=do__".to_owned(),
        "--wasm-stub-description=counter=Counts up.".to_owned(),
        format!("--instructions=@{}", at("words")),
        "--run-js-description=@@runs".to_owned(),
        format!("--skills-dir={}", at("skills")),
    ]
    .to_vec()
}

#[test]
fn modules_skills_and_texts_by_flag() {
    let place = Place::new();
    let flags = equipped(&place);
    let words = json!(flags).to_string();
    place.typescript("v8_setup.mjs", &["stdio", "", &words, ""], &[("SKILL_DIGEST", DIGEST)]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let own = front(&place, &flags);
    let url = format!("http://{}/mcp", own.address);
    place.typescript("v8_setup.mjs", &["http", &url, "[]", ""], &[("SKILL_DIGEST", DIGEST)]);
    // REST has the modules, too, and clients cannot say what the process was started with
    let host = format!("host: {}", own.address);
    let head =
        format!("POST /api/exec?wait=60 HTTP/1.1\r\n{host}\r\ncontent-type: text/javascript");
    let answer = request(own.address, &head, "console.log(counter.next())");
    assert!(answer.contains("\"output\":\"1\""), "{answer}");
    let head = format!("POST /api/setup HTTP/1.1\r\n{host}\r\ncontent-type: application/json");
    assert!(request(own.address, &head, "{}").starts_with("HTTP/1.1 404 "));

    let refused = |flags: &[&str]| {
        let mut command = place.command(Path::new(STASIS));
        command.arg("mcp-v8").args(flags).stdin(Stdio::null());
        let done = command.output().expect("it runs");
        assert!(!done.status.success(), "{flags:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let module = place.data.path().join("own/counter.wasm").display().to_string();
    let small = refused(&["--wasm-module", &format!("c={module}"), "--wasm-default-max-memory=1k"]);
    assert!(small.contains("a memory of 65536 bytes"), "{small}");
    let twisted = refused(&["--wasm-module", &format!("c={}", file!())]);
    assert!(twisted.contains("error["), "{twisted}");
    assert!(refused(&["--wasm-module", "c=/nowhere"]).contains("/nowhere"));
    assert!(refused(&["--wasm-config", "{\"fs\": 1}"]).contains("--wasm-config"));
    let named = format!("{{\"fs\": \"{module}\"}}");
    assert!(
        refused(&["--wasm-config", &named]).contains("not a valid name for a WebAssembly module")
    );
    assert!(refused(&["--skills-dir", "/nowhere"]).contains("/nowhere"));
}

/// A server of a key set, which can change, and counts how often it is read.
struct KeyServer {
    address: SocketAddr,
    ids: Arc<Mutex<Vec<&'static str>>>,
    reads: Arc<AtomicUsize>,
}

impl KeyServer {
    fn start() -> KeyServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let ids = Arc::new(Mutex::new(vec!["one"]));
        let reads = Arc::new(AtomicUsize::new(0));
        let (own, count) = (ids.clone(), reads.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 4096]);
                count.fetch_add(1, Ordering::SeqCst);
                let key =
                    |id: &&str| json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": PUBLIC });
                let keys: Vec<_> = own.lock().expect("ids").iter().map(key).collect();
                let body = json!({ "keys": keys }).to_string();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            }
        });
        KeyServer { address, ids, reads }
    }
}

fn token(id: &str, expires_in: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let key = EncodingKey::from_ed_pem(KEY.as_bytes()).expect("a key");
    let header = Header { kid: Some(id.into()), ..Header::new(Algorithm::EdDSA) };
    let claims = json!({ "sub": "anybody", "exp": now.as_secs() as i64 + expires_in });
    encode(&header, &claims, &key).expect("a token")
}

#[test]
fn tokens_are_checked_with_a_key_set() {
    let place = Place::new();
    let keys = KeyServer::start();
    let url = format!("--jwks-url=http://{}/jwks", keys.address);
    let own = front_on(&place, "--http-port", &[&url]);
    let get = |path: &str, more: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}{more}", own.address);
        request(own.address, &head, "")
    };
    let status = |path: &str, more: &str| get(path, more)[9..12].to_owned();
    let with = |token: &str| format!("\r\nauthorization: Bearer {token}");
    let good = token("one", 600);
    let refused = get("/api/executions", "");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(refused.contains("www-authenticate: Bearer"), "{refused}");
    let body = r#"{"error":"unauthorized","message":"a valid Bearer token is required"}"#;
    assert!(refused.ends_with(body), "{refused}");
    for path in ["/", "/llms.txt", "/docs", "/mcp", "/sse", "/api/version", "/nothing"] {
        assert_eq!(status(path, ""), "401", "{path}");
    }
    assert_eq!(status("/api-doc/openapi.json", ""), "200");
    assert_eq!(status("/api/executions", &with(&good)), "200");
    assert_eq!(status("/api/executions", &format!("\r\nagent-session: {good}")), "200");
    // the words of one token with the signature of another
    let other = token("one", 700);
    let (words, signature) = (other.rsplit_once('.'), good.rsplit_once('.'));
    let forged = format!("{}.{}", words.expect("parts").0, signature.expect("parts").1);
    for bad in [token("one", -600), forged, "x.y.z".to_owned(), String::new()] {
        assert_eq!(status("/api/executions", &with(&bad)), "401", "{bad}");
    }
    // a key that was added is found, and tokens with unknown ones do not have it read each time
    keys.ids.lock().expect("ids").push("two");
    assert_eq!(status("/api/executions", &with(&token("two", 600))), "200");
    let reads = keys.reads.load(Ordering::SeqCst);
    for _ in 0..50 {
        assert_eq!(status("/api/executions", &with(&token("three", 600))), "401");
    }
    assert!(keys.reads.load(Ordering::SeqCst) <= reads + 1, "the key set is read seldom");

    let mut command = place.command(Path::new(STASIS));
    command.args(["mcp-v8", "--http-port=1", "--jwks-url=http://127.0.0.1:9/"]);
    let done = command.stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("cannot read the keys"), "{said}");
}
