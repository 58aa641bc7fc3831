//! A look at machines by hand: builds the default template and runs a few instructions.

use stasis_api::Exec;
use stasis_machine::{Host, Settings};
use std::time::Instant;

struct Talk;

impl stasis_template::Progress for Talk {
    fn step(&self, name: &str, done: u64, total: Option<u64>) {
        eprintln!("{name} {done} {total:?}");
    }
    fn say(&self, line: &str) {
        eprintln!("  {line}");
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("a data directory");
    let spawner = std::env::current_exe().unwrap().parent().unwrap().join("../stasis-spawner");
    let start = Instant::now();
    let host = Host::open(Settings::new(dir.into(), spawner.canonicalize().unwrap())).unwrap();
    eprintln!("open {:?}", start.elapsed());
    let recipe = stasis_template::Recipe::default_python();
    let template = host.build_template(&recipe, &Talk).unwrap();
    eprintln!("template {} after {:?}", template.name, start.elapsed());
    let machine = host.create("me", Default::default()).unwrap();
    for code in std::env::args().skip(2) {
        let start = Instant::now();
        if code == ":swap" {
            eprintln!("swap {:?} in {:?}", host.swap(&machine), start.elapsed());
            continue;
        }
        if code == ":settle" {
            machine.settle().unwrap();
            eprintln!("settled in {:?}", start.elapsed());
            continue;
        }
        let seq = machine.submit(Exec { code: code.clone(), ..Default::default() }).unwrap();
        let end = machine.wait(seq).unwrap();
        eprintln!("{code:?}: {:?} in {:?}", end.status, start.elapsed());
        for chunk in machine.outputs(seq, 0).unwrap() {
            println!("{:?}: {}", chunk.stream, chunk.data);
        }
        println!("{:?} {:?}", end.outcome, end.receipt);
    }
    eprintln!("{:?}", machine.describe());
    eprintln!("close: {:?}", host.close());
}
