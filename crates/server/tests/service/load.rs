//! Many at once: nothing fails, nothing is lost, nothing grows.
//!
//! The short form is part of every run; `STASIS_SOAK=1` makes it the long one.

use crate::server::fresh_data;
use crate::socket;
use crate::worker::{ALLOCATOR_MIB, Worker};
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};

struct Load {
    machines: usize,
    connections: usize,
    time: Duration,
    creates: usize,
}

fn load() -> Load {
    match std::env::var_os("STASIS_SOAK") {
        Some(_) => {
            let time = Duration::from_secs(120);
            Load { machines: 64, connections: 500, time, creates: 2000 }
        }
        None => {
            let time = Duration::from_secs(5);
            Load { machines: 64, connections: 500, time, creates: 200 }
        }
    }
}

#[test]
fn many_connections_on_many_machines() {
    let load = load();
    let data = fresh_data("load");
    let worker = Worker::start(&data);
    let client = &worker.client;
    let names: Vec<String> = (0..load.machines).map(|_| client.machine()).collect();
    let before = worker.warmed_up(|| {
        round(&worker, &names, load.connections, Duration::from_secs(1));
    });
    let count = round(&worker, &names, load.connections, load.time);
    assert!(count >= load.connections as u64, "{count} instructions");
    // machines may leave or enter memory meanwhile, each with a few descriptors and a thread
    let slack = 2 * load.machines + 16;
    // walls and trees that stand ready for the next, of which there are at most 160
    let ready = 160 * 12;
    worker.comes_down_to(before, (4 * slack + ready, slack, ALLOCATOR_MIB));
}

/// Every connection asks again and again; how many answers there were, all of them right.
fn round(worker: &Worker, names: &[String], connections: usize, time: Duration) -> u64 {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        let ask = |index: usize| {
            let mut socket = socket::of(&worker.client, &names[index % names.len()]);
            socket.connected();
            let mut count = 0;
            while count == 0 || Instant::now() < end {
                let (chunks, result) = socket.run(count, &format!("print({count}); {index}"));
                assert_eq!(chunks.len(), 1);
                assert_eq!(result["value"], index.to_string());
                count += 1;
            }
            count
        };
        let threads: Vec<_> =
            (0..connections).map(|index| scope.spawn(move || ask(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no failure")).sum()
    })
}

#[test]
fn many_creates_at_once() {
    let count = load().creates;
    let data = fresh_data("creates");
    let worker = Worker::start(&data);
    let client = &worker.client;
    let made: Vec<String> = std::thread::scope(|scope| {
        let make = |index: usize| {
            let tags = json!({ "tags": { "index": index.to_string() } });
            loop {
                let reply = client.post("/v1/machine/new", &tags);
                match reply.status {
                    // told to come again, which loses nothing
                    503 => std::thread::sleep(Duration::from_millis(100)),
                    _ => {
                        let made = reply.good();
                        return made["machine_name"].as_str().expect("a name").to_owned();
                    }
                }
            }
        };
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || make(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no failure")).collect()
    });
    let mut listed = Vec::new();
    let mut cursor = serde_json::Value::Null;
    loop {
        let page =
            client.post("/v1/machine/list", &json!({ "limit": 150, "cursor": cursor })).good();
        listed.extend(page["machines"].as_array().expect("machines").iter().cloned());
        cursor = page["next"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let names: HashSet<&str> = listed.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!((names.len(), listed.len()), (count, count));
    assert!(made.iter().all(|name| names.contains(name.as_str())));
    let times: Vec<&str> = listed.iter().filter_map(|one| one["created_at"].as_str()).collect();
    let tenth = |index: usize| times[index].to_owned();
    assert!(tenth(0) >= tenth(count - 1), "newest first");
}
