//! Files of machines: in, out, over every event of a machine's life, and against machines that
//! set traps.

use crate::client::{Client, PATIENCE};
use crate::server::{fresh_data, root, start};
use serde_json::{Value, json};
use stasis_server::{Listen, Options};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn put(client: &Client, machine: &str, path: &str, bytes: &[u8]) -> Value {
    client.send("PUT", &format!("/v1/machine/{machine}/file?path={path}"), &[], bytes).good()
}

fn get(client: &Client, machine: &str, path: &str) -> crate::client::Reply {
    client.get(&format!("/v1/machine/{machine}/file?path={path}"))
}

fn act(client: &Client, machine: &str, what: &str) -> Value {
    client.post(&format!("/v1/machine/{machine}/{what}"), &json!({})).good()
}

#[test]
fn a_file_goes_in_and_out_and_the_machine_sees_it() {
    let client = root();
    let name = client.machine();
    let info = put(&client, &name, "deep/er/data.bin", b"\x00\xff some bytes");
    assert_eq!(info["path"], "/home/user/deep/er/data.bin");
    assert_eq!(
        (&info["kind"], &info["size"], &info["mode"]),
        (&json!("file"), &json!(13), &json!("644"))
    );
    let seen = "import os; s = os.stat('/home/user/deep/er/data.bin')\n\
                (open('/home/user/deep/er/data.bin','rb').read(), s.st_uid == os.getuid())";
    assert_eq!(client.run(&name, seen)["value"], "(b'\\x00\\xff some bytes', True)");
    client.run(&name, "open('/tmp/out','w').write('made inside')");
    assert_eq!(get(&client, &name, "/tmp/out").text(), "made inside");
    put(&client, &name, "/tmp/out", b"replaced");
    assert_eq!(client.run(&name, "open('/tmp/out').read()")["value"], "'replaced'");
    let empty = put(&client, &name, "empty", b"");
    assert_eq!(empty["size"], 0);
    assert_eq!(get(&client, &name, "empty").text(), "");
}

#[test]
fn parts_of_a_file_are_read() {
    let client = root();
    let name = client.machine();
    put(&client, &name, "ten", b"0123456789");
    let path = format!("/v1/machine/{name}/file?path=ten");
    let part = client.send("GET", &path, &["range: bytes=2-4"], b"");
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert!(part.head.contains("content-range: bytes 2-4/10"), "{}", part.head);
    let tail = client.send("GET", &path, &["range: bytes=-3"], b"");
    assert_eq!(tail.text(), "789");
    assert_eq!(client.send("GET", &path, &["range: bytes=10-"], b"").code(416), "request.range");
}

#[test]
fn files_are_listed_looked_at_and_removed() {
    let client = root();
    let name = client.machine();
    for file in ["c", "a", "b", "sub/x"] {
        put(&client, &name, &format!("/tmp/listed/{file}"), b"1");
    }
    client.run(&name, "import os; os.symlink('a', '/tmp/listed/link')");
    let list = |rest: &str| {
        let page = client.get(&format!("/v1/machine/{name}/files?path=/tmp/listed{rest}")).good();
        let files = page["files"].as_array().expect("files").clone();
        let names: Vec<String> = files
            .iter()
            .map(|file| format!("{} {}", file["path"], file["kind"]).replace('"', ""))
            .collect();
        (names, page["next"].clone())
    };
    let (names, next) = list("&limit=3");
    assert_eq!(names, ["/tmp/listed/a file", "/tmp/listed/b file", "/tmp/listed/c file"]);
    assert_eq!(next, "c");
    let (names, next) = list("&limit=3&cursor=c");
    assert_eq!(names, ["/tmp/listed/link symlink", "/tmp/listed/sub directory"]);
    assert_eq!(next, Value::Null);
    let stat = client.get(&format!("/v1/machine/{name}/file/stat?path=/tmp/listed/link")).good();
    assert_eq!((&stat["kind"], &stat["target"]), (&json!("symlink"), &json!("a")));
    let remove =
        |rest: &str| client.delete(&format!("/v1/machine/{name}/file?path=/tmp/listed{rest}"));
    assert_eq!(remove("").code(409), "file.not_empty");
    assert_eq!(remove("/a").good(), json!({ "removed": "/tmp/listed/a" }));
    assert_eq!(remove("/a").code(404), "file.not_found");
    remove("&recursive=true").good();
    assert_eq!(client.run(&name, "os.path.exists('/tmp/listed')")["value"], "False");
}

#[test]
fn files_are_part_of_the_state() {
    let client = root();
    let name = client.machine();
    // before any instruction, and while it is swapped out
    put(&client, &name, "first", b"before");
    assert_eq!(act(&client, &name, "swap")["state"], "swapped");
    assert_eq!(get(&client, &name, "first").text(), "before");
    client.run(&name, "x = 1");
    put(&client, &name, "second", b"after");
    let branch = client.post(&format!("/v1/machine/{name}/branch"), &json!({})).good();
    let branch = branch["machines"][0]["name"].as_str().expect("a name").to_owned();
    let both = "(open('/home/user/first').read(), open('/home/user/second').read())";
    assert_eq!(client.run(&branch, both)["value"], "('before', 'after')");
    act(&client, &name, "swap");
    client.delete(&format!("/v1/machine/{name}/file?path=first")).good();
    act(&client, &name, "swap");
    assert_eq!(get(&client, &name, "first").code(404), "file.not_found");
    assert_eq!(client.run(&branch, both)["value"], "('before', 'after')");
    let start = json!({ "seq": null });
    client.post(&format!("/v1/machine/{name}/rollback"), &start).good();
    assert_eq!(get(&client, &name, "second").code(404), "file.not_found");
}

/// A service in a process of its own would be killed; here its machines lose their memory instead,
/// and only what is on disk is found again.
#[test]
fn a_file_that_was_put_durably_survives_the_service() {
    let data = fresh_data("files");
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = || Options { listen: vec![Listen::Tcp(loopback)], ..Options::default() };
    let (bound, running) = start(&data, options());
    let token = std::fs::read_to_string(data.join("token")).expect("a token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    let name = client.machine();
    let path = format!("/v1/machine/{name}/file?path=kept&durability=local");
    client.send("PUT", &path, &[], b"durable").good();
    // an instruction that ends the machine's process: it falls back to what was saved
    client.run(&name, "import os; os._exit(1)");
    assert_eq!(client.run(&name, "open('/home/user/kept').read()")["value"], "'durable'");
    put(&client, &name, "late", b"saved at the end");
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
    let (bound, running) = start(&data, options());
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    assert_eq!(get(&client, &name, "late").text(), "saved at the end");
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
}

#[test]
fn an_upload_goes_on_while_its_machine_swaps() {
    let client = root();
    let name = client.machine();
    client.run(&name, "x = 5");
    let body = vec![b'z'; 3 << 20];
    let head = format!(
        "PUT /v1/machine/{name}/file?path=/tmp/slow HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
         authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        client.address,
        client.token,
        body.len()
    );
    let mut stream = TcpStream::connect(client.address).expect("a connection");
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&body[..2 << 20]).expect("sent");
    std::thread::sleep(Duration::from_millis(200));
    act(&client, &name, "swap");
    let reply = crate::client::exchange(&mut stream, &body[2 << 20..]);
    assert_eq!(reply.good()["size"], body.len());
    let seen = "d = open('/tmp/slow').read(); (len(d), set(d), x)";
    assert_eq!(client.run(&name, seen)["value"], format!("({}, {{'z'}}, 5)", body.len()));
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let client = root();
    let name = client.machine();
    let head = format!(
        "PUT /v1/machine/{name}/file?path=/tmp/broken HTTP/1.1\r\nhost: {}\r\n\
         authorization: Bearer {}\r\ncontent-length: 1000000\r\n\r\nonly this",
        client.address, client.token
    );
    let mut stream = TcpStream::connect(client.address).expect("a connection");
    stream.write_all(head.as_bytes()).expect("sent");
    drop(stream);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.run(&name, "import os; os.listdir('/tmp')")["value"], "[]");
}

#[test]
fn traps_of_a_machine_block_no_request() {
    let client = root();
    let name = client.machine();
    let traps = "import os, socket\nos.makedirs('/tmp/t'); os.chdir('/tmp/t')\n\
        os.mkfifo('fifo')\ns = socket.socket(socket.AF_UNIX); s.bind('sock')\n\
        os.symlink('loop', 'loop')\nos.symlink('/etc/passwd', 'abs')\n\
        os.symlink('../../../../../../etc/shadow', 'up')\n\
        os.symlink('/proc/1/root/etc', 'magic')\nos.symlink('/proc/self/fd/0', 'fd')\n\
        os.symlink('/dev/zero', 'zero')\nos.symlink('fifo', 'tofifo')\nos.mkdir('d', 0o000)";
    assert!(client.run(&name, traps).get("error").is_none());
    let code = |path: &str, status| get(&client, &name, &format!("/tmp/t/{path}")).code(status);
    assert_eq!(code("fifo", 409), "file.not_a_file");
    assert_eq!(code("tofifo", 409), "file.not_a_file");
    assert_eq!(code("sock", 409), "file.not_a_file");
    assert_eq!(code("loop", 409), "file.loop");
    assert_eq!(code("zero", 409), "file.elsewhere");
    for path in ["magic/shadow", "fd"] {
        let reply = get(&client, &name, &format!("/tmp/t/{path}"));
        assert!((400..500).contains(&reply.status), "{path}: {}", reply.text());
    }
    // a link upwards ends in the machine's own /etc, where its user reads no secrets either
    let up = get(&client, &name, "/tmp/t/up");
    assert!([403, 404].contains(&up.status), "{}", up.text());
    assert_eq!(get(&client, &name, "/proc/self/environ").code(409), "file.elsewhere");
    assert_eq!(get(&client, &name, "/dev/zero").code(409), "file.elsewhere");
    assert_eq!(code("", 409), "file.not_a_file");
    let put =
        |path: &str| client.send("PUT", &format!("/v1/machine/{name}/file?path={path}"), &[], b"x");
    assert_eq!(put("/tmp/t/d/x").code(403), "file.denied");
    assert_eq!(put("/etc/passwd").code(403), "file.denied");
    assert_eq!(put("/dev/x").code(409), "file.elsewhere");
    assert_eq!(put("/").code(422), "file.bad_path");
    assert_eq!(put("a/../b").code(422), "file.bad_path");
    assert_eq!(put("/tmp/t/abs/x").code(409), "file.not_a_directory");
    assert_eq!(put("a%00b").code(422), "file.bad_path");
    // what is put on a pipe's name takes its place instead of waiting for a reader
    put("/tmp/t/fifo").good();
    assert_eq!(client.run(&name, "open('/tmp/t/fifo').read()")["value"], "'x'");
}

#[test]
fn a_file_past_the_limit_of_its_machine_is_refused_and_the_machine_lives() {
    let client = root();
    let made = client.post("/v1/machine/new", &json!({ "limits": { "disk_mb": 2 } })).good();
    let name = made["machine_name"].as_str().expect("a name").to_owned();
    client.run(&name, "kept = 1");
    let path = format!("/v1/machine/{name}/file?path=big");
    let refused = client.send("PUT", &path, &[], &vec![b'x'; 3 << 20]);
    assert_eq!(refused.code(413), "machine.disk_full");
    put(&client, &name, "small", &vec![b'x'; 1 << 20]);
    assert_eq!(client.run(&name, "kept")["value"], "1");
}

#[test]
fn changes_are_watched_over_a_swap() {
    let client = root();
    let name = client.machine();
    client.run(&name, "import os; os.mkdir('/tmp/w')");
    let mut until = watching(&client, &name, "path=/tmp/w");
    until(json!({ "kind": "watching" }));
    client.run(&name, "open('/tmp/w/a','w').write('x')");
    until(json!({ "kind": "created", "name": "a" }));
    until(json!({ "kind": "written", "name": "a" }));
    put(&client, &name, "/tmp/w/b", b"from outside");
    until(json!({ "kind": "created", "name": "b" }));
    act(&client, &name, "swap");
    until(json!({ "kind": "swapped" }));
    client.run(&name, "1");
    until(json!({ "kind": "watching" }));
    client.run(&name, "os.remove('/tmp/w/a')");
    until(json!({ "kind": "removed", "name": "a" }));
}

/// Opens a watch; waits for one event after the other.
fn watching(client: &Client, name: &str, query: &str) -> impl FnMut(Value) + use<> {
    let mut stream = TcpStream::connect(client.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let head = format!(
        "GET /v1/machine/{name}/file/watch?{query} HTTP/1.1\r\nhost: {}\r\n\
         authorization: Bearer {}\r\n\r\n",
        client.address, client.token
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let mut lines = BufReader::new(stream).lines();
    move |wanted| {
        let (wanted, end) = (format!("data: {wanted}"), Instant::now() + PATIENCE);
        // the service says something now and then, so that reading alone would never give up
        while lines.next().expect("a line").expect("text") != wanted {
            assert!(Instant::now() < end, "not told: {wanted}");
        }
    }
}

#[test]
fn all_below_a_directory_is_watched() {
    let client = root();
    let name = client.machine();
    client.run(&name, "import os; os.makedirs('/tmp/w/old/older')");
    let mut until = watching(&client, &name, "path=/tmp/w&recursive=true");
    until(json!({ "kind": "watching" }));
    let mut told = |kind: &str, name: &str| until(json!({ "kind": kind, "name": name }));
    let run = |code: &str| assert!(client.run(&name, code)["error"].is_null(), "{code}");
    // what is there, and what comes with its directories
    run("open('/tmp/w/old/older/a', 'w').write('x')");
    told("created", "old/older/a");
    told("written", "old/older/a");
    run("os.makedirs('/tmp/w/x/y/z'); open('/tmp/w/x/y/z/b', 'w').close()");
    told("created", "x/y/z/b");
    // a directory that is moved is known by its new name only
    run("os.rename('/tmp/w/x/y', '/tmp/w/v'); open('/tmp/w/v/z/c', 'w').close()");
    told("removed", "x/y");
    told("created", "v/z/c");
    // one that leaves is not watched any more, and one that comes back is
    run("os.rename('/tmp/w/v', '/tmp/v'); open('/tmp/v/new', 'w').close(); \
         os.rename('/tmp/v', '/tmp/w/u')");
    told("created", "u/new");
    run("os.remove('/tmp/w/u/z/b')");
    told("removed", "u/z/b");
    run("import shutil; shutil.rmtree('/tmp/w/u'); os.symlink('/tmp', '/tmp/w/link')");
    told("removed", "u");
    told("created", "link");
    act(&client, &name, "swap");
    run("1");
    until(json!({ "kind": "watching" }));
    run("open('/tmp/w/old/older/d', 'w').close(); shutil.rmtree('/tmp/w')");
    until(json!({ "kind": "created", "name": "old/older/d" }));
    until(json!({ "kind": "gone" }));
}

#[test]
fn too_many_directories_are_refused_and_reported() {
    let client = root();
    let name = client.machine();
    client.run(&name, "import os\nfor i in range(1023): os.makedirs(f'/tmp/w/{i}')");
    let mut until = watching(&client, &name, "path=/tmp/w&recursive=true");
    until(json!({ "kind": "watching" }));
    client.run(&name, "os.mkdir('/tmp/w/more')");
    until(json!({ "kind": "unwatched", "name": "more" }));
    // one that goes makes room
    client.run(&name, "os.rmdir('/tmp/w/7'); os.mkdir('/tmp/w/again')");
    client.run(&name, "open('/tmp/w/again/a', 'w').close()");
    until(json!({ "kind": "created", "name": "again/a" }));
    let path = format!("/v1/machine/{name}/file/watch?path=/tmp/w&recursive=true");
    assert_eq!(client.get(&path).code(413), "file.too_many");
}
