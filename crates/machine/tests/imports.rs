//! Imports that the host fetches: packages of a registry that this test serves, files of web
//! servers out of the cache, and TypeScript files.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256, Sha512};
use stasis_api::{Exec, Instruction, NewMachine, Status, Timeout};
use stasis_machine::{Host, ImportRule, Machine, Settings};
use stasis_template::Registries;
use stasis_testbed::{data_dir_of, exec, run, settings, value};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const LANGUAGE: &str = "javascript";

/// An npm registry on this host; it records its requests.
struct Registry {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Name, version and files.
type Package = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Imported as `npm:alpha` and so on.
const PACKAGES: &[Package] = &[
    (
        "alpha",
        "1.0.0",
        &[
            (
                "package.json",
                r#"{"name": "alpha", "version": "1.0.0", "type": "module",
                "dependencies": {"beta": "^1.0.0"},
                "exports": {".": "./index.js", "./sub": "./lib/sub.js"}}"#,
            ),
            (
                "index.js",
                "import { twice } from 'beta'; export const name = 'alpha'; \
                 export default (n) => twice(n) + 1",
            ),
            ("lib/sub.js", "export const sub = import.meta.url.startsWith('file:')"),
        ],
    ),
    (
        "beta",
        "1.1.0",
        &[
            (
                "package.json",
                r#"{"name": "beta", "version": "1.1.0", "dependencies": {"alpha": "^1"}}"#,
            ),
            ("index.js", "exports.twice = (n) => 2 * n; exports.data = require('./data.json').a"),
            ("data.json", r#"{"a": [1, 2]}"#),
        ],
    ),
    (
        "@jsr/std__text",
        "1.0.0",
        &[
            ("package.json", r#"{"name": "@jsr/std__text", "version": "1.0.0", "type": "module"}"#),
            ("index.js", "export const upper = (text) => text.toUpperCase()"),
        ],
    ),
];

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        let path = format!("package/{path}");
        tar.append_data(&mut header, path, text.as_bytes()).expect("added");
    }
    tar.into_inner().and_then(|gzip| gzip.finish()).expect("an archive")
}

/// The registry's answers, by path.
fn contents(address: &str) -> HashMap<String, Vec<u8>> {
    let mut all = HashMap::new();
    for (name, version, files) in PACKAGES {
        let archive = archive(files);
        let about: serde_json::Value = serde_json::from_str(files[0].1).expect("JSON");
        let hash = format!("sha512-{}", BASE64_STANDARD.encode(Sha512::digest(&archive)));
        let path = format!("/{name}/-/{version}.tgz");
        let dist = serde_json::json!({"tarball": format!("{address}{path}"), "integrity": hash});
        let version_of = serde_json::json!({
            "dependencies": about["dependencies"].as_object().cloned().unwrap_or_default(),
            "dist": dist,
        });
        let list = serde_json::json!({"dist-tags": {"latest": version},
            "versions": {*version: version_of}});
        all.insert(format!("/{}", name.replace('/', "%2f")), list.to_string().into_bytes());
        all.insert(path, archive);
    }
    // its archive is another one than its hash says
    let mut bad: serde_json::Value = serde_json::from_slice(&all["/beta"]).expect("JSON");
    bad["versions"]["1.1.0"]["dist"]["tarball"] = format!("{address}/alpha/-/1.0.0.tgz").into();
    bad["versions"]["1.1.0"]["dependencies"] = serde_json::json!({});
    all.insert("/wrong".into(), bad.to_string().into_bytes());
    all
}

impl Registry {
    fn start() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let (contents, asked) = (contents(&address), Arc::new(Mutex::new(Vec::new())));
        let noted = asked.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                answer(client, &contents, &noted);
            }
        });
        Registry { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("a lock").len()
    }
}

fn answer(mut client: TcpStream, contents: &HashMap<String, Vec<u8>>, asked: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(client.try_clone().expect("a stream")).lines();
    let first = lines.next().and_then(|line| line.ok()).unwrap_or_default();
    lines.map_while(|line| line.ok()).take_while(|line| !line.is_empty()).for_each(drop);
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    asked.lock().expect("a lock").push(path.clone());
    if path == "/silent" {
        // the waiter of this one is interrupted
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(30));
            drop(client);
        });
        return;
    }
    let (status, body) = match contents.get(&path) {
        Some(body) => ("200 OK", body.as_slice()),
        None => ("404 Not Found", b"{}".as_slice()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    let _ = client.write_all(format!("{head}connection: close\r\n\r\n").as_bytes());
    let _ = client.write_all(body);
}

struct Bed {
    host: Host,
    registry: Registry,
    dir: TempDir,
}

fn with_rule(dir: &Path, imports: ImportRule, address: &str) -> Settings {
    let registries = Registries { npm: address.to_owned(), jsr: address.to_owned() };
    Settings { imports, registries, ..settings(dir) }
}

fn bed(imports: ImportRule) -> Bed {
    let (dir, registry) = (data_dir_of(LANGUAGE), Registry::start());
    let host = Host::open(with_rule(dir.path(), imports, &registry.address)).expect("a host");
    Bed { host, registry, dir }
}

fn machine(host: &Host) -> Arc<Machine> {
    let new = NewMachine { template: Some(LANGUAGE.into()), ..NewMachine::default() };
    host.create("test", new).expect("make a machine")
}

/// The text of an instruction's error.
fn refusal(machine: &Arc<Machine>, code: &str) -> String {
    let end = run(machine, code);
    assert_eq!(end.status, Status::Failed, "{code}: {:?}", end.outcome);
    end.outcome.and_then(|outcome| outcome.error).expect("an error").message
}

fn modules(end: &Instruction) -> Vec<String> {
    let receipt = end.receipt.as_ref().expect("a receipt");
    receipt.modules.iter().map(|one| one.name.clone()).collect()
}

#[test]
fn packages_are_imported_without_a_network() {
    let Bed { host, registry, dir } = bed(ImportRule::Packages);
    let machine = machine(&host);
    let end = run(&machine, "import alpha, { name } from 'npm:alpha@^1'; [alpha(3), name]");
    let outcome = end.outcome.clone().expect("an outcome");
    assert_eq!(outcome.value.as_deref(), Some("[ 7, 'alpha' ]"), "{:?}", outcome.error);
    assert_eq!(modules(&end), ["npm:alpha@1.0.0", "npm:beta@1.1.0"]);
    let first = end.receipt.expect("a receipt").modules.remove(0);
    assert!(first.integrity.starts_with("sha512-"), "{first:?}");
    let asked = registry.asked();
    for (code, shown) in [
        ("(await import('npm:alpha/sub')).sub", "true"),
        (
            "const load = (name: string) => import(name); (await load('npm:alpha@1.0.0')).name",
            "'alpha'",
        ),
        ("require('npm:beta').data", "[ 1, 2 ]"),
        ("(await import('npm:beta')).default === require('npm:beta')", "true"),
        ("import { upper } from 'jsr:@std/text@1'; upper('a')", "'A'"),
    ] {
        assert_eq!(value(&machine, code), shown, "{code}");
    }
    // only JSR's list and archive were requested: the others are known
    assert_eq!(registry.asked(), asked + 2, "{:?}", registry.asked.lock());
    // what was imported is the machine's, whatever happens to the registry, and in its branches
    let name = machine.name().to_string();
    machine.settle().expect("settle");
    drop((machine, host, registry));
    let gone = with_rule(dir.path(), ImportRule::Network, "http://127.0.0.1:9");
    let host = Host::open(gone).expect("a host");
    let machine = host.machine(&name).expect("it is there");
    assert_eq!(value(&machine, "alpha(1)"), "3");
    assert_eq!(value(&machine, "(await import('npm:alpha@^1')).default === alpha"), "true");
    // the cache serves a new machine, where the policy lets it
    let gone = with_rule(dir.path(), ImportRule::Packages, "http://127.0.0.1:9");
    drop((machine, host));
    let host = Host::open(gone).expect("a host");
    let refused = refusal(&self::machine(&host), "await import('npm:alpha@1.0.0')");
    assert!(refused.contains("npm:alpha@1.0.0"), "another registry, another package: {refused}");
}

#[test]
fn imports_follow_the_policy_and_hashes() {
    let bed = bed(ImportRule::Network);
    let machine = machine(&bed.host);
    for name in ["npm:alpha", "jsr:@std/text", "https://example.com/a.js"] {
        let refused = refusal(&machine, &format!("await import('{name}')"));
        assert!(refused.contains("need a network"), "{refused}");
    }
    assert_eq!(bed.registry.asked(), 0);
    let Bed { registry, dir, host } = bed;
    drop((machine, host));
    let host = Host::open(with_rule(dir.path(), ImportRule::All, &registry.address));
    let host = host.expect("a host");
    let machine = self::machine(&host);
    for (name, why) in [
        ("npm:wrong", "hash differs"),
        ("npm:nowhere", "the registry has no package nowhere"),
        ("npm:alpha@^9", "has no version"),
        ("npm:../alpha", "does not name a package"),
        ("https://127.0.0.1/a.js", "the host's loopback"),
        ("https://localhost/a.js", "the host's loopback"),
        ("https://169.254.169.254/latest/meta-data", "a link-local address"),
        ("https://[::1]/a.js", "an IPv6 address"),
        ("https://user:word@example.com/a.js", "a password"),
    ] {
        let refused = refusal(&machine, &format!("await import('{name}')"));
        assert!(refused.contains(why), "{name}: {refused}");
    }
    // without a listener, an import reports it
    let code = "let late; setTimeout(() => import('npm:alpha').catch((error) => { late = error }), \
                50); 1";
    run(&machine, code);
    let wait = "while (late === undefined) await new Promise((done) => setTimeout(done, 10)); \
                late.message";
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(value(&machine, wait).contains("while an instruction runs"));
    assert_eq!(value(&machine, "(await import('npm:alpha')).name"), "'alpha'");
}

#[test]
fn a_machine_cannot_get_more_by_writing_requests_itself() {
    let bed = bed(ImportRule::Packages);
    let one = machine(&bed.host);
    assert_eq!(value(&one, "(await import('npm:alpha')).name"), "'alpha'");
    let blobs = bed.dir.path().join("cache/modules/blobs");
    let names = std::fs::read_dir(blobs).expect("blobs").flatten();
    let hash = names.map(|one| one.file_name().into_string().expect("a hash")).next();
    let hash = hash.expect("a blob");
    // another machine knows the hash, but was not told of it by the host
    let other = machine(&bed.host);
    let code = format!(
        "const request = (id, what) => require('node:fs').writeSync(3, JSON.stringify({{ type: \
         'fetch', seq: 0, id, what }}) + '\\n'); \
         request(1, {{ kind: 'piece', hash: '{hash}', offset: 0 }}); \
         for (let id = 2; id < 5000; id++) request(id, {{ kind: 'source', text: 'x' }}); \
         request(5000, {{ kind: 'module', specifier: 'npm:' + 'a'.repeat(1e6) }}); 'sent'"
    );
    let end = run(&other, &code);
    assert_ne!(end.status, Status::Lost, "{:?}", end.outcome);
    assert_eq!(value(&other, "1 + 1"), "2");
    assert_eq!(value(&other, "(await import('npm:alpha')).name"), "'alpha'");
    assert_eq!(value(&one, "2 + 2"), "4");
}

#[test]
fn an_interrupt_ends_an_import() {
    let bed = bed(ImportRule::Packages);
    let machine = machine(&bed.host);
    let code = "globalThis.before = 1; await import('npm:silent')".to_owned();
    let timeout = Timeout::Seconds(2.0);
    let end = exec(&machine, Exec { code, timeout, ..Exec::default() });
    assert_eq!(end.status, Status::Interrupted, "{:?}", end.outcome);
    assert_eq!(value(&machine, "before"), "1");
    assert_eq!(value(&machine, "(await import('npm:alpha')).name"), "'alpha'");
}

/// Puts a text into the cache, as if it had been fetched from an address.
fn keep(dir: &Path, address: &str, form: &str, text: &str) {
    let modules = dir.join("cache/modules");
    let hash = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (below, name, bytes) in [
        ("blobs", hash.clone(), text.to_owned()),
        (
            "pins",
            blake3::hash(address.as_bytes()).to_hex().to_string(),
            serde_json::json!({"url": address, "form": form,
                "blob": {"hash": hash, "size": text.len()}})
            .to_string(),
        ),
    ] {
        std::fs::create_dir_all(modules.join(below)).expect("a directory");
        std::fs::write(modules.join(below).join(name), bytes).expect("written");
    }
}

#[test]
fn files_of_web_servers_are_modules() {
    let bed = bed(ImportRule::All);
    let at = |path: &str| format!("https://example.com/{path}");
    let dir = bed.dir.path();
    let main = "import { half } from './typed.ts'; import data from '/data.json' with { type: \
                'json' }; import alpha from 'npm:alpha'; import { sep } from 'node:path'; \
                export const all = [half(4), data.a, alpha(1), sep, import.meta.url]";
    keep(dir, &at("lib/main.js"), "script", main);
    let typed = "enum E { Two = 2 } export const half = (n: number): number => n / E.Two";
    keep(dir, &at("lib/typed.ts"), "typed", typed);
    keep(dir, &at("data.json"), "json", r#"{"a": 1}"#);
    let machine = machine(&bed.host);
    let code = format!("import {{ all }} from '{}'; all", at("lib/main.js"));
    let end = run(&machine, &code);
    let outcome = end.outcome.clone().expect("an outcome");
    let shown = "[ 2, 1, 3, '/', 'https://example.com/lib/main.js' ]";
    assert_eq!(outcome.value.as_deref(), Some(shown), "{:?}", outcome.error);
    assert!(modules(&end).contains(&at("data.json")), "{:?}", modules(&end));
    bed.host.swap(&machine).expect("swap out");
    let again = format!("(await import('{}')).all === all", at("lib/main.js"));
    assert_eq!(value(&machine, &again), "true");
}

#[test]
fn typed_files_have_enums_and_the_like() {
    let bed = bed(ImportRule::Network);
    let machine = machine(&bed.host);
    let files = "const fs = require('node:fs'); fs.writeFileSync('kinds.ts', `\
                 import { sep, type ParsedPath } from 'node:path';\n\
                 import type { X } from './no.ts';\n\
                 export enum Size { S = 1, M }\n\
                 export enum Size { L = 9 }\n\
                 export namespace Space { export const here = sep }\n\
                 export class Point { constructor(readonly x: number, private y = 2) {} \
                 get sum(): number { return this.x + this.y } }\n\
                 export type { X }; export default interface Y {}`);\n\
                 fs.writeFileSync('old.cts', 'enum A { B = 3 } export = { b: A.B }');\n\
                 fs.writeFileSync('bad.ts', 'let x: = 1');\n\
                 fs.writeFileSync('plain.ts', 'exports.one = (1 as number)'); 0";
    assert_eq!(value(&machine, files), "0");
    for (code, shown) in [
        (
            "import { Size, Point, Space } from './kinds.ts'; [Size.M, Size[9], new Point(1).sum, \
          Space.here]",
            "[ 2, 'L', 3, '/' ]",
        ),
        ("require('./old.cts').b", "3"),
        ("require('./plain.ts').one", "1"),
    ] {
        assert_eq!(value(&machine, code), shown, "{code}");
    }
    let refused = refusal(&machine, "await import('./bad.ts')");
    assert!(refused.contains("bad.ts:1:"), "{refused}");
}
