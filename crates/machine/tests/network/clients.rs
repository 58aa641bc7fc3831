//! HTTP clients in real machines against a real server outside: a table of clients and cases.
//!
//!   Python: urllib, requests, httpx, aiohttp, curl, pip, git
//!   Node: fetch, https, undici, axios, npm
//!
//! Every client has one function `go(url, most)` inside: the status and the first bytes of the
//! answer, or `failed`. Nothing is configured for it: trust comes with the machine.

use crate::{World, slow, web};
use stasis_api::{Exec, Network, NewMachine, Timeout, Update};
use stasis_machine::{Host, Machine};
use stasis_policy::document;
use stasis_testbed::{data_dir_of, exec, settings};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;
use web::{PLAIN, TLS, Web};

/// A host with machines of both languages, and the server outside.
pub struct Bench {
    pub host: Host,
    pub web: Arc<Web>,
    _dirs: [TempDir; 2],
}

const NAMES: [&str; 4] = ["api.example", "pass.example", "denied.example", "rebind.example"];

/// One for all checks: each needs the same packages in its machines.
pub fn bench(world: &World) -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let (dir, other) = (data_dir_of("javascript"), tempfile::tempdir().expect("a directory"));
        let roots = other.path().join("roots.pem");
        let web = Web::start(&world.outside, &NAMES, &roots);
        let names = NAMES
            .iter()
            .chain(&["packages.example"])
            .map(|name| ((*name).to_owned(), world.outside.public));
        world.outside.names.lock().expect("no panic").extend(names);
        let mut own = settings(dir.path());
        own.resolv_conf = world.resolv_conf.clone();
        own.trusted_roots = Some(roots);
        let host = Host::open(own).expect("a host");
        let text = format!(
            "[network]\nallow = [\"pass.example:{TLS}\", \"rebind.example:{TLS}\", \
             \"packages.example\"]\n[http]\nallow = [\"GET,HEAD,POST api.example:{TLS}/v1/*\", \
             \"GET api.example:{PLAIN}/v1/*\"]"
        );
        let policy = document::parse(&text).expect("a policy");
        host.set_policy("web".parse().expect("a name"), policy).expect("set");
        packages(world);
        pages(&web);
        Bench { host, web, _dirs: [dir, other] }
    })
}

impl Bench {
    pub fn machine(&self, template: &str) -> Arc<Machine> {
        let network = Some(Network::Policy("web".parse().expect("a name")));
        let template = Some(template.to_owned());
        let new = NewMachine { network, template, ..NewMachine::default() };
        self.host.create("test", new).expect("a machine")
    }
}

/// The installed clients, as archives that machines fetch.
fn packages(world: &World) {
    let dir = std::env::var_os("STASIS_TEST_WEB").map(PathBuf::from);
    let dir = dir
        .unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.dev/web")));
    for part in ["python", "node_modules"] {
        let at = dir.join(part);
        assert!(at.is_dir(), "{} is missing: run dev/setup.sh", at.display());
        let mut archive = tar::Builder::new(Vec::new());
        archive.follow_symlinks(false);
        archive.append_dir_all(part, at).expect("an archive");
        let bytes = archive.into_inner().expect("an archive");
        world.outside.pages.lock().expect("no panic").insert(format!("/{part}.tar"), bytes);
    }
}

/// A Python package, an npm package and a git repository, to be installed and cloned.
fn pages(web: &Web) {
    let dir = tempfile::tempdir().expect("a directory");
    let script = r#"
set -e
cd "$1"
export HOME="$1" GIT_CONFIG_NOSYSTEM=1
git init -q -b main work
echo 'good day' >work/text
git -C work add text
git -C work -c user.name=a -c user.email=a@example commit -q -m first
git clone -q --bare work repo.git
git -C repo.git update-server-info
mkdir package
echo '{"name": "probe", "version": "1.0.0", "main": "i.js"}' >package/package.json
echo 'module.exports = "good day"' >package/i.js
tar -czf probe-1.0.0.tgz package
mkdir wheel wheel/probe-1.0.dist-info
echo 'answer = "good day"' >wheel/probe.py
cd wheel
printf 'Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n' >probe-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >probe-1.0.dist-info/WHEEL
printf 'probe.py,,\n' >probe-1.0.dist-info/RECORD
python3 -m zipfile -c ../probe-1.0-py3-none-any.whl probe.py probe-1.0.dist-info
"#;
    let made = Command::new("bash").args(["-c", script, "-"]).arg(dir.path()).output();
    let made = made.expect("bash");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |name: &str| std::fs::read(dir.path().join(name)).expect("a file");
    let mut pages = web.pages.lock().expect("no panic");
    let mut put = |path: String, bytes: Vec<u8>| drop(pages.insert(path, bytes));
    let (wheel, archive) = ("probe-1.0-py3-none-any.whl", "probe-1.0.0.tgz");
    put(format!("/v1/ok/simple/{wheel}"), read(wheel));
    let page = format!("<a href=\"/v1/ok/simple/{wheel}\">{wheel}</a>");
    put("/v1/ok/simple/probe/".into(), page.into_bytes());
    put(format!("/v1/ok/npm/{archive}"), read(archive));
    let about = format!(
        "{{\"name\": \"probe\", \"dist-tags\": {{\"latest\": \"1.0.0\"}}, \"versions\": \
         {{\"1.0.0\": {{\"name\": \"probe\", \"version\": \"1.0.0\", \"dist\": \
         {{\"tarball\": \"https://api.example:{TLS}/v1/ok/npm/{archive}\"}}}}}}}}"
    );
    put("/v1/ok/npm/probe".into(), about.into_bytes());
    let mut dirs = vec![dir.path().join("repo.git")];
    while let Some(at) = dirs.pop() {
        for entry in std::fs::read_dir(&at).expect("a directory").flatten() {
            let below = entry.path();
            if below.is_dir() {
                dirs.push(below);
                continue;
            }
            let inside = below.strip_prefix(dir.path()).expect("below").display().to_string();
            put(format!("/v1/ok/{inside}"), std::fs::read(&below).expect("a file"));
        }
    }
}

const PYTHON: &str = r#"
import asyncio, io, os, subprocess, sys, tarfile, urllib.error, urllib.request
archive = urllib.request.urlopen('http://packages.example/python.tar', timeout=120).read()
tarfile.open(fileobj=io.BytesIO(archive)).extractall('/tmp/site')
sys.path.insert(0, '/tmp/site/python')
import aiohttp, httpx, requests
PATIENCE = 120
def by_urllib(url, most, **headers):
    request = urllib.request.Request(url, headers=headers)
    try: answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error: answer = error
    with answer: return answer.status, answer.read(most)
def by_requests(url, most, **headers):
    with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as answer:
        got = b''
        for piece in answer.iter_content(65536):
            got += piece
            if len(got) >= most: break
        return answer.status_code, got[:most]
def by_httpx(url, most, http2=False, sni=None, **headers):
    extensions = {'sni_hostname': sni} if sni else {}
    with httpx.Client(http2=http2, timeout=PATIENCE, follow_redirects=True) as client:
        with client.stream('GET', url, headers=headers, extensions=extensions) as answer:
            assert answer.http_version == ('HTTP/2' if http2 else 'HTTP/1.1'), answer.http_version
            got = b''
            for piece in answer.iter_bytes():
                got += piece
                if len(got) >= most: break
            return answer.status_code, got[:most]
def by_httpx2(url, most, **more): return by_httpx(url, most, http2=True, **more)
def by_aiohttp(url, most, **headers):
    async def get():
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            async with session.get(url, headers=headers) as answer:
                got = b''
                while len(got) < most:
                    piece = await answer.content.read(most - len(got))
                    if not piece: break
                    got += piece
                return answer.status, got
    return asyncio.run(get())
def by_curl(url, most, *words, **headers):
    words += tuple(word for name, value in headers.items() for word in ('-H', f'{name}: {value}'))
    usual = ['curl', '-sS', '-L', '--max-time', str(PATIENCE), '-w', '\n%{http_code}']
    command = [*usual, *words, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        got = b''
        while len(got) < most + 4:
            piece = running.stdout.read1(65536)
            if not piece: break
            got += piece
        else:
            running.kill()
            return 200, got[:most]
        if running.wait(PATIENCE) != 0: raise OSError(running.stderr.read().decode())
    body, _, status = got.rpartition(b'\n')
    return int(status), body
def tool(*words, env={}):
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, cwd='/tmp',
        env={**os.environ, **env})
    if done.returncode != 0: raise OSError(done.stdout[-2000:] + done.stderr[-2000:])
def by_pip(url, most):
    tool('rm', '-rf', '/tmp/installed')
    tool(sys.executable, '-m', 'pip', 'install', '--target', '/tmp/installed', '--no-cache-dir',
        '--retries', '0', '--disable-pip-version-check', '--index-url', url + '/simple/', 'probe')
    with open('/tmp/installed/probe.py') as file: return 200, file.read().split('"')[1].encode()
def by_git(url, most):
    tool('rm', '-rf', '/tmp/cloned')
    tool('git', 'clone', '-q', url + '/repo.git', '/tmp/cloned', env={'HOME': '/tmp'})
    with open('/tmp/cloned/text') as file: return 200, file.read().strip().encode()
why = None
def go(client, url, most=1000, **more):
    global why
    try: status, body = globals()['by_' + client](url, most, **more)
    except Exception as error:
        why = error
        return 'failed'
    if most > 1000: return f'{status} {len(body)}'
    return f'{status} {body.decode()}' if status == 200 else str(status)
"#;

const NODE: &str = r#"
const { execFileSync } = require('node:child_process');
const fs = require('node:fs'), https = require('node:https'), http2 = require('node:http2');
const archive = await (await fetch('http://packages.example/node_modules.tar')).arrayBuffer();
fs.mkdirSync('/tmp/packages', { recursive: true });
fs.writeFileSync('/tmp/packages/all.tar', Buffer.from(archive));
execFileSync('tar', ['-xf', 'all.tar'], { cwd: '/tmp/packages' });
const axios = require('/tmp/packages/node_modules/axios');
const undici = require('/tmp/packages/node_modules/undici');
async function some(stream, most) {
  let got = Buffer.alloc(0);
  for await (const piece of stream) {
    got = Buffer.concat([got, piece]);
    if (got.length >= most) break;
  }
  return got.subarray(0, most);
}
const by = {
  async fetch(url, most) {
    const answer = await fetch(url);
    return [answer.status, await some(answer.body, most)];
  },
  async https(url, most, more = {}) {
    const answer = await new Promise((done, fail) => https.get(url, more, done).on('error', fail));
    if (answer.statusCode === 302) return by.https(answer.headers.location, most);
    return [answer.statusCode, await some(answer, most)];
  },
  async undici(url, most, more = {}) {
    const agent = new undici.Agent().compose(undici.interceptors.redirect({ maxRedirections: 3 }));
    const answer = await undici.request(url, { dispatcher: agent, ...more });
    const got = await some(answer.body, most);
    agent.destroy().catch(() => {});
    return [answer.statusCode, got];
  },
  async axios(url, most, more = {}) {
    const always = () => true;
    const options = { responseType: 'stream', validateStatus: always, ...more };
    const answer = await axios.get(url, options);
    return [answer.status, await some(answer.data, most)];
  },
  async npm(url) {
    fs.rmSync('/tmp/project', { recursive: true, force: true });
    fs.mkdirSync('/tmp/project');
    const words = ['install', '--registry', url + '/npm/', '--fetch-retries', '0', 'probe'];
    execFileSync('npm', words, { cwd: '/tmp/project', timeout: 120000, stdio: 'pipe' });
    return [200, Buffer.from(require('/tmp/project/node_modules/probe'))];
  },
};
var why;
async function go(client, url, most = 1000, more = undefined) {
  try {
    const [status, body] = await by[client](url, most, more);
    if (most > 1000) return `${status} ${body.length}`;
    return status === 200 ? `200 ${body}` : String(status);
  } catch (error) {
    why = error;
    return 'failed';
  }
}
"#;

/// Clients of a language: those that make requests, and those that use a base address.
const PYTHON_CLIENTS: [&str; 6] = ["urllib", "requests", "httpx", "httpx2", "aiohttp", "curl"];
const PYTHON_TOOLS: [&str; 2] = ["pip", "git"];
const NODE_CLIENTS: [&str; 4] = ["fetch", "https", "undici", "axios"];
const NODE_TOOLS: [&str; 1] = ["npm"];
const MUCH: usize = 3 << 20;

/// What every client gets: the name of the case, host and path, how much is read, the answer.
const CASES: [(&str, &str, usize, &str); 9] = [
    ("allowed", "api.example/v1/ok", 1000, "200 good day"),
    ("passed through", "pass.example/v1/ok", 1000, "200 good day"),
    ("denied host", "denied.example/v1/ok", 1000, "failed"),
    ("denied path", "api.example/v2/ok", 1000, "403"),
    ("redirect to a denied host", "api.example/v1/away", 1000, "failed"),
    ("raw address", "ADDRESS/v1/ok", 1000, "failed"),
    ("slow peer", "api.example/v1/slow", 1000, "200 slowslowslowslowslowslowslowslowslowslow"),
    ("endless body", "api.example/v1/endless", MUCH, "200 3145728"),
    ("endless body, passed through", "pass.example/v1/endless", MUCH, "200 3145728"),
];

fn url(world: &World, place: &str) -> String {
    let (host, path) = place.split_once('/').expect("a path");
    let host = host.replace("ADDRESS", &world.outside.unnamed.to_string());
    format!("https://{host}:{TLS}/{path}")
}

/// Runs code that defines something.
pub fn define(machine: &Arc<Machine>, code: &str) {
    let end = exec(machine, Exec { code: code.into(), timeout: Timeout::Never, ..Exec::default() });
    let error = end.outcome.and_then(|outcome| outcome.error);
    assert!(error.is_none(), "{error:?}");
}

fn check(machine: &Arc<Machine>, call: &str, why: &str, expected: &str, about: &str) {
    let said = slow(machine, call);
    if said.trim_matches('\'') != expected {
        panic!("{about}: {said} instead of {expected}: {}", slow(machine, why));
    }
}

pub fn python_clients_get_what_is_allowed(world: &World) {
    let bench = bench(world);
    let machine = bench.machine("python");
    define(&machine, PYTHON);
    for client in PYTHON_CLIENTS {
        for (case, place, most, expected) in CASES {
            let call = format!("go('{client}', '{}', {most})", url(world, place));
            check(&machine, &call, "repr(why)", expected, &format!("{client}, {case}"));
        }
        let call = format!("go('{client}', '{}').split()[0]", url(world, "api.example/v1/bomb"));
        let said = slow(&machine, &call);
        assert!(said == "'failed'" || said == "'502'", "{client}, header bomb: {said}");
        // the client lives on
        let call = format!("go('{client}', '{}')", url(world, "api.example/v1/ok"));
        check(&machine, &call, "repr(why)", "200 good day", client);
    }
    for client in PYTHON_TOOLS {
        tools(world, &machine, client, "repr(why)", |client, url| {
            format!("go('{client}', '{url}')")
        });
    }
    fronts(world, &machine);
    rebinds(world, &machine, "rebind.example", |url| format!("go('requests', '{url}')"));
}

/// Programs that install and clone: from an allowed base address, and from no other.
fn tools(
    world: &World,
    machine: &Arc<Machine>,
    client: &str,
    why: &str,
    call: impl Fn(&str, &str) -> String,
) {
    for (place, expected) in [
        ("api.example/v1/ok", "200 good day"),
        ("denied.example/v1/ok", "failed"),
        ("api.example/v2/ok", "failed"),
        ("api.example/v1/away", "failed"),
        ("ADDRESS/v1/ok", "failed"),
    ] {
        let call = call(client, &url(world, place));
        check(machine, &call, why, expected, &format!("{client}, {place}"));
    }
}

/// Another name in the hello, in the head, and a tunnel to another host.
fn fronts(world: &World, machine: &Arc<Machine>) {
    let ok = url(world, "api.example/v1/ok");
    let denied = url(world, "denied.example/v1/ok");
    for client in PYTHON_CLIENTS {
        let call = format!("go('{client}', '{ok}', Host='denied.example:{TLS}')");
        check(machine, &call, "repr(why)", "421", &format!("{client}, domain fronting"));
    }
    for (call, expected) in [
        (format!("go('httpx', '{ok}', sni='denied.example')"), "failed"),
        (format!("go('httpx2', '{ok}', sni='denied.example')"), "failed"),
        (
            format!(
                "by = by_curl; by_curl = lambda url, most: by(url, most, '--connect-to', \
                 'denied.example:{TLS}:api.example:{TLS}'); go('curl', '{denied}')"
            ),
            "failed",
        ),
        (
            format!(
                "by_curl = lambda url, most: by(url, most, '-x', \
                 'http://api.example:{PLAIN}'); go('curl', '{denied}')"
            ),
            "failed",
        ),
        (
            format!("by_curl = lambda url, most: by(url, most, '--http2'); go('curl', '{ok}')"),
            "200 good day",
        ),
        (
            "by_curl = lambda url, most: by(url, most, '--http1.1'); go('curl', URL)"
                .replace("URL", &format!("'{ok}'")),
            "200 good day",
        ),
    ] {
        check(machine, &call, "repr(why)", expected, &call);
    }
    let socket = "
async def talk(url):
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as socket:
            await socket.send_str('good day')
            return (await socket.receive()).data
";
    define(machine, socket);
    let call = format!("asyncio.run(talk('wss://api.example:{TLS}/v1/socket'))");
    assert_eq!(slow(machine, &call), "'good day'");
}

/// A name whose next answer is an address of the host.
fn rebinds(world: &World, machine: &Arc<Machine>, name: &str, call: impl Fn(&str) -> String) {
    let set = |address| {
        let mut names = world.outside.names.lock().expect("no panic");
        names.insert(name.to_owned(), address);
    };
    let url = url(world, &format!("{name}/v1/ok"));
    assert_eq!(slow(machine, &call(&url)), "'200 good day'");
    for address in [std::net::Ipv4Addr::LOCALHOST, world.outside.here, world.outside.there] {
        set(address);
        assert_eq!(slow(machine, &call(&url)), "'failed'", "{address}");
    }
    set(world.outside.public);
    assert_eq!(slow(machine, &call(&url)), "'200 good day'");
}

pub fn node_clients_get_what_is_allowed(world: &World) {
    let bench = bench(world);
    let machine = bench.machine("javascript");
    define(&machine, NODE);
    for client in NODE_CLIENTS {
        for (case, place, most, expected) in CASES {
            let call = format!("await go('{client}', '{}', {most})", url(world, place));
            check(
                &machine,
                &call,
                "String(why?.cause ?? why)",
                expected,
                &format!("{client}, {case}"),
            );
        }
        let call = format!("await go('{client}', '{}')", url(world, "api.example/v1/bomb"));
        let said = slow(&machine, &call);
        assert!(said == "'failed'" || said == "'502'", "{client}, header bomb: {said}");
    }
    for client in NODE_TOOLS {
        let call = |client: &str, url: &str| format!("await go('{client}', '{url}')");
        tools(world, &machine, client, "String(why.stderr ?? why)", call);
    }
    let ok = url(world, "api.example/v1/ok");
    // some of them put the name of the head into the hello too, which is refused earlier
    for client in ["https", "axios", "undici"] {
        let more = format!("{{ headers: {{ host: 'denied.example:{TLS}' }} }}");
        let said = slow(&machine, &format!("await go('{client}', '{ok}', 1000, {more})"));
        assert!(said == "'421'" || said == "'failed'", "{client}, domain fronting: {said}");
    }
    let call = format!("await go('https', '{ok}', 1000, {{ servername: 'denied.example' }})");
    check(&machine, &call, "String(why)", "failed", "a forged name in the hello");
    coalesces(world, &machine);
    let socket = format!(
        "await new Promise((done, fail) => {{\n\
         const socket = new WebSocket('wss://api.example:{TLS}/v1/socket');\n\
         socket.onopen = () => socket.send('good day');\n\
         socket.onmessage = (event) => done(event.data);\n\
         socket.onerror = (event) => fail(event.error ?? event);\n\
         }})"
    );
    assert_eq!(slow(&machine, &socket), "'good day'");
    // a connection that is kept would ask for no name
    rebinds(world, &machine, "rebind.example", |url| {
        format!("await go('https', '{url}', 1000, {{ agent: false }})")
    });
}

/// Two hosts of one certificate on one connection of HTTP/2.
fn coalesces(world: &World, machine: &Arc<Machine>) {
    let code = format!(
        "const session = http2.connect('{}');\n\
         const ask = (host) => new Promise((done, fail) => {{\n\
         const path = {{ ':path': '/v1/ok', ':authority': host + ':{TLS}' }};\n\
         session.request(path).on('response', (head) => done(head[':status'])).on('error', fail);\n\
         }});\n\
         const both = [await ask('api.example'), await ask('denied.example')].join();\n\
         session.destroy();\n\
         both",
        url(world, "api.example/")
    );
    assert_eq!(slow(machine, &code), "'200,421'");
}

/// A machine that gets its policy later, and a branch of it.
pub fn trust_comes_with_a_policy(world: &World) {
    let bench = bench(world);
    for (template, call) in [
        ("python", "import urllib.request; urllib.request.urlopen('URL').read().decode()"),
        ("javascript", "await fetch('URL').then(r => r.text(), e => String(e.cause))"),
    ] {
        let new = NewMachine { template: Some(template.into()), ..NewMachine::default() };
        let machine = bench.host.create("test", new).expect("a machine");
        let network = Network::Policy("web".parse().expect("a name"));
        let update = Update { network: Some(network), ..Update::default() };
        bench.host.update(&machine, update).expect("changed");
        bench.host.swap(&machine).expect("swapped");
        let call = call.replace("URL", &url(world, "api.example/v1/ok"));
        assert_eq!(slow(&machine, &call), "'good day'", "{template}");
    }
}
