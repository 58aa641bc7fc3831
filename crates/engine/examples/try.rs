use stasis_engine::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Instant;

fn pair() -> (UnixStream, UnixStream) { UnixStream::pair().unwrap() }
fn ask(s: &UnixStream, line: &str) -> String {
    let mut w = s.try_clone().unwrap();
    w.write_all(format!("{line}\n").as_bytes()).unwrap();
    read(s)
}
fn read(s: &UnixStream) -> String {
    s.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let mut one = [0u8; 1]; let mut out = Vec::new();
    use std::io::Read;
    let mut r = s;
    loop { match r.read(&mut one) { Ok(1) if one[0]==b'\n' => break, Ok(1) => out.push(one[0]), other => { out.extend(format!("<{other:?}>").bytes()); break } } }
    String::from_utf8_lossy(&out).into_owned()
}
fn fd(s: &UnixStream) -> std::os::fd::OwnedFd { s.try_clone().unwrap().into() }
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = std::path::PathBuf::from("/tmp/stasis-try");
    let _ = std::fs::remove_dir_all(&dir);
    let engine = Engine::start(Config { dir: dir.clone(), run_dir: "/tmp/stasis-try/run".into(), root: "/work/main/.dev/rootfs".into(), spawner: "/work/main/target/debug/stasis-spawner".replace("debug", if cfg!(debug_assertions) {"debug"} else {"release"}).into(), lazy: if std::env::var("LAZY").is_ok() { Lazy { total: 0, mapping: 0 } } else { Lazy::default() } }).unwrap();
    let (a, b) = pair();
    let t = Instant::now();
    let tree = engine.launch(LaunchSpec { path: args[0].clone(), argv: args.clone(), env: vec!["PATH=/usr/bin:/bin".into(), "HOME=/tmp".into()], cwd: "/tmp".into() }, Outside { fds: vec![fd(&b), fd(&b), std::io::stderr().try_clone_fd()], numbers: vec![0,1,2] }).unwrap();
    println!("launch {:?} pid {}", t.elapsed(), tree.pid());
    println!("<- {}", read(&a));
    println!("check <- {}", ask(&a, "check"));
    let c = engine.capture(&tree);
    let c = match c { Ok(c) => c, Err(e) => { println!("capture: {e}"); println!("after: {}", ask(&a, "check")); return } };
    println!("capture pause {:?} total {:?} new {} shared {}", c.pause, c.total, c.new_pages, c.shared_pages);
    println!("after capture <- {}", ask(&a, "check"));
    tree.kill().unwrap();
    let park = std::env::var("PARK").is_ok();
    if park { let t = Instant::now(); engine.park(&c.image).unwrap(); println!("park {:?}", t.elapsed()); }
    for i in 0..3 {
        let (a, b) = pair();
        let t = Instant::now();
        let tree = match engine.restore(&c.image, vec![fd(&b), fd(&b), std::io::stderr().try_clone_fd()]) { Ok(t) => t, Err(e) => { println!("restore: {e}"); return } };
        let t1 = t.elapsed();
        if std::env::var("HOLD").is_ok() { std::thread::sleep(std::time::Duration::from_secs(3)); }
        println!("restore {i} {:?} check <- {} ({:?}) mem {:?}", t1, ask(&a, "check"), t.elapsed(), tree.memory_kib().unwrap());
        println!("step <- {}", ask(&a, "step"));
        let c2 = engine.capture(&tree).unwrap();
        println!("  diff pause {:?} total {:?} new {} shared {}", c2.pause, c2.total, c2.new_pages, c2.shared_pages);
        println!("  check <- {}", ask(&a, "check"));
        tree.kill().unwrap();
        let (a, b) = pair();
        let t = Instant::now();
        let tree = engine.restore(&c2.image, vec![fd(&b), fd(&b), std::io::stderr().try_clone_fd()]).unwrap();
        println!("  restore2 {:?} check <- {}", t.elapsed(), ask(&a, "check"));
        drop(tree);
    }
}
trait T { fn try_clone_fd(&self) -> std::os::fd::OwnedFd; }
impl T for std::io::Stderr { fn try_clone_fd(&self) -> std::os::fd::OwnedFd { use std::os::fd::AsFd; self.as_fd().try_clone_to_owned().unwrap() } }
