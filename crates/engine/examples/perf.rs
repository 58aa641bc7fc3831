use stasis_engine::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
fn read(s: &UnixStream) -> String {
    s.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut one = [0u8; 1]; let mut out = Vec::new(); let mut r = s;
    loop { match r.read(&mut one) { Ok(1) if one[0]==b'\n' => break, Ok(1) => out.push(one[0]), other => { out.extend(format!("<{other:?}>").bytes()); break } } }
    String::from_utf8_lossy(&out).into_owned()
}
fn ask(s: &UnixStream, line: &str) -> String { let mut w = s; w.write_all(format!("{line}\n").as_bytes()).unwrap(); read(s) }
fn fd(s: &UnixStream) -> std::os::fd::OwnedFd { s.try_clone().unwrap().into() }
fn err() -> std::os::fd::OwnedFd { use std::os::fd::AsFd; std::io::stderr().as_fd().try_clone_to_owned().unwrap() }
fn med(v: &mut Vec<f64>) -> (f64,f64) { v.sort_by(|a,b| a.total_cmp(b)); (v[v.len()/2], v[0]) }
fn main() {
    let dir = std::path::PathBuf::from("/tmp/stasis-perf"); let _ = std::fs::remove_dir_all(&dir);
    let engine = Engine::start(Config { dir: dir.clone(), run_dir: "/tmp/stasis-perf/run".into(), root: "/work/main/.dev/rootfs".into(), spawner: "/work/main/target/release/stasis-spawner".into(), lazy: Default::default() }).unwrap();
    let (a, b) = UnixStream::pair().unwrap();
    let tree = engine.launch(LaunchSpec { path: "/tmp/venv-programs/bin/python".into(), argv: vec!["/tmp/venv-programs/bin/python".into(), "/tmp/server.py".into()], env: vec!["PATH=/usr/bin:/bin".into(), "HOME=/tmp".into(), "OPENBLAS_NUM_THREADS=2".into()], cwd: "/tmp".into() }, Outside { fds: vec![fd(&b), fd(&b), err()], numbers: vec![0,1,2] }).unwrap();
    println!("{}", read(&a));
    let c = engine.capture(&tree).unwrap();
    println!("capture pause {:?} total {:?} pages {}", c.pause, c.total, c.new_pages);
    tree.kill().unwrap();
    let big = std::env::args().nth(1).is_some();
    let t = Instant::now(); engine.park(&c.image).unwrap(); println!("park {:?}", t.elapsed());
    let (mut call, mut reply, mut diffs, mut pauses) = (vec![], vec![], vec![], vec![]);
    let mut last = c.image.clone();
    for i in 0..30 {
        let (a, b) = UnixStream::pair().unwrap();
        let t = Instant::now();
        let tree = engine.restore(&c.image, vec![fd(&b), fd(&b), err()]).unwrap();
        call.push(t.elapsed().as_secs_f64()*1e3);
        assert_eq!(ask(&a, "1+1"), "2");
        reply.push(t.elapsed().as_secs_f64()*1e3);
        ask(&a, "x = 5");
        let d = engine.capture(&tree).unwrap();
        diffs.push(d.total.as_secs_f64()*1e3); pauses.push(d.pause.as_secs_f64()*1e3);
        if i == 0 { println!("diff new {} mem {:?}", d.new_pages, tree.memory_kib()); }
        last = d.image;
        tree.kill().unwrap();
    }
    println!("restore call {:?} reply {:?} diff {:?} pause {:?}", med(&mut call), med(&mut reply), med(&mut diffs), med(&mut pauses));
    let t = Instant::now();
    let hs: Vec<_> = std::thread::scope(|s| { let js: Vec<_> = (0..2).map(|_| s.spawn(|| (0..50).map(|_| { let (a, b) = UnixStream::pair().unwrap(); let tr = engine.restore(&c.image, vec![fd(&b), fd(&b), err()]).unwrap(); assert_eq!(ask(&a, "2*3"), "6"); (tr, a) }).collect::<Vec<_>>())).collect(); js.into_iter().flat_map(|j| j.join().unwrap()).collect() });
    println!("spawn 100: {:?}", t.elapsed());
    let m: Vec<_> = hs.iter().map(|(t,_)| t.memory_kib().unwrap()).collect();
    println!("mean pss {} private {}", m.iter().map(|x| x.0).sum::<u64>()/100, m.iter().map(|x| x.1).sum::<u64>()/100);
    drop(hs);
    if big {
        let (a, b) = UnixStream::pair().unwrap();
        let tree = engine.restore(&last, vec![fd(&b), fd(&b), err()]).unwrap();
        println!("{}", ask(&a, "x = numpy.arange(1536*131072, dtype='int64')"));
        let d = engine.capture(&tree).unwrap(); println!("big capture pause {:?} total {:?} pages {}", d.pause, d.total, d.new_pages);
        ask(&a, "x += 1");
        let d = engine.capture(&tree).unwrap(); println!("big diff all dirty pause {:?} total {:?} pages {}", d.pause, d.total, d.new_pages);
        ask(&a, "y = 1");
        let d = engine.capture(&tree).unwrap(); println!("big diff small pause {:?} total {:?} pages {}", d.pause, d.total, d.new_pages);
        tree.kill().unwrap(); engine.evict_all();
        let mut v = vec![];
        for _ in 0..10 { let (a, b) = UnixStream::pair().unwrap(); let t = Instant::now(); let tree = engine.restore(&d.image, vec![fd(&b), fd(&b), err()]).unwrap(); let t1 = t.elapsed(); assert_eq!(ask(&a, "1+1"), "2"); v.push(t.elapsed().as_secs_f64()*1e3); println!(" big restore {:?} {:?}", t1, t.elapsed()); if v.len() < 3 { let t = Instant::now(); println!("{} {:?}", ask(&a, "int(x.sum())"), t.elapsed()); } tree.kill().unwrap(); }
    }
}
