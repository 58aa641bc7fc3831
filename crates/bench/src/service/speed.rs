//! The time of one request, and the number per second.

use super::ServiceBench;
use super::clients::MachineSocket;
use crate::report::Results;
use crate::samples::Samples;
use serde_json::json;
use stasis_api::Checkpoints;
use stasis_command::failure::Result;
use std::time::{Duration, Instant};

/// Machines that are kept busy at once.
const MACHINES: usize = 64;

pub fn exec(bed: &ServiceBench, results: &mut Results) -> Result<()> {
    let (mut socket_ms, mut http_ms, mut first_ms) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut http = bed.http()?;
    let name = bed.machine(&mut http)?;
    let mut socket = MachineSocket::open(bed.address, &name)?;
    for _ in 0..bed.runs * 10 {
        socket_ms.push_ms(socket.run("1+1", "2")?.1);
        http_ms.push_ms(http.run(&name, "1+1", "2")?);
    }
    let slow = "import time; print('first', flush=True); time.sleep(0.005); 3";
    for _ in 0..bed.runs * 5 {
        let (first, _) = socket.run(slow, "3")?;
        first_ms.push_ms(first.unwrap_or(Duration::MAX));
    }
    results.add("exec_ms", socket_ms);
    results.add("exec_http_ms", http_ms);
    results.add("stream_first_ms", first_ms);
    bed.remove(&mut http, &name)?;
    results.add("exec_exact_ms", exact(bed)?);
    Ok(())
}

/// One instruction right after the other, each with a state of its own.
fn exact(bed: &ServiceBench) -> Result<Samples> {
    let mut http = bed.http()?;
    let name = bed.machine_with(&mut http, Checkpoints::Exact)?;
    let mut socket = MachineSocket::open(bed.address, &name)?;
    let mut exact_ms = Samples::default();
    for _ in 0..bed.runs * 5 {
        exact_ms.push_ms(socket.run("1+1", "2")?.1);
    }
    bed.remove(&mut http, &name)?;
    Ok(exact_ms)
}

pub fn many(bed: &ServiceBench, results: &mut Results) -> Result<()> {
    let count = if bed.quick { 16 } else { MACHINES };
    results.add("exec_per_s", rates(bed, count, Checkpoints::Grouped)?);
    results.add("exec_exact_per_s", rates(bed, count, Checkpoints::Exact)?);
    Ok(())
}

fn rates(bed: &ServiceBench, count: usize, checkpoints: Checkpoints) -> Result<Samples> {
    let mut http = bed.http()?;
    let make = |_| bed.machine_with(&mut http, checkpoints);
    let names = (0..count).map(make).collect::<Result<Vec<String>>>()?;
    let mut rates = Samples::default();
    for _ in 0..bed.runs.min(5) {
        rates.push(round(bed, &names)?);
    }
    // the service has closed the connection that did nothing meanwhile
    let mut http = bed.http()?;
    names.iter().try_for_each(|name| bed.remove(&mut http, name))?;
    Ok(rates)
}

/// Instructions per second over all machines.
fn round(bed: &ServiceBench, names: &[String]) -> Result<f64> {
    let time = Duration::from_secs(if bed.quick { 1 } else { 3 });
    let mut sockets = names
        .iter()
        .map(|name| MachineSocket::open(bed.address, name))
        .collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let counts: Vec<Result<u64>> = std::thread::scope(|scope| {
        let ask = |socket: &mut MachineSocket| {
            let mut count = 0;
            while start.elapsed() < time {
                socket.run("1+1", "2")?;
                count += 1;
            }
            Ok(count)
        };
        let threads: Vec<_> =
            sockets.iter_mut().map(|socket| scope.spawn(move || ask(socket))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let took = start.elapsed().as_secs_f64();
    let sum: u64 = counts.into_iter().collect::<Result<Vec<u64>>>()?.into_iter().sum();
    Ok(sum as f64 / took)
}

pub fn life(bed: &ServiceBench, results: &mut Results) -> Result<()> {
    let (mut create, mut wake) = (Samples::default(), Samples::default());
    let mut http = bed.http()?;
    let warm = bed.machine(&mut http)?;
    bed.remove(&mut http, &warm)?;
    for _ in 0..bed.runs {
        let start = Instant::now();
        let name = bed.machine(&mut http)?;
        create.push_ms(start.elapsed());
        http.run(&name, "x = 41; x", "41")?;
        http.post(&format!("/v1/machine/{name}/swap"), &json!({}))?;
        wake.push_ms(http.run(&name, "x + 1", "42")?);
        bed.remove(&mut http, &name)?;
    }
    results.add("create_ms", create);
    results.add("wake_ms", wake);
    Ok(())
}
