//! Throughput: output, files, and idle connections.

use super::ServiceBench;
use super::clients::MachineSocket;
use crate::report::Results;
use crate::samples::Samples;
use stasis_command::failure::{CliFailure, PathContext, Result};
use std::path::Path;
use std::time::Duration;

const MIB: f64 = (1 << 20) as f64;
/// Output of one instruction, below the limit.
const LINES: u64 = 3800;
const ROUNDS: usize = 8;
const SOCKETS: usize = 500;

pub fn output(bed: &ServiceBench, results: &mut Results) -> Result<()> {
    let mut http = bed.http()?;
    let name = bed.machine(&mut http)?;
    let mut socket = MachineSocket::open(bed.address, &name)?;
    let mut rates = Samples::default();
    let code = format!("for _ in range({LINES}): print('x' * 1023)\n7");
    for _ in 0..bed.runs {
        let (mut bytes, mut took) = (0, Duration::ZERO);
        for _ in 0..ROUNDS {
            let (some, time) = socket.drain(&code, "7")?;
            bytes += some;
            took += time;
        }
        if bytes < LINES * 1000 * ROUNDS as u64 {
            let message = format!("only {bytes} bytes of output came");
            return Err(CliFailure::new("bench.wrong_answer", message));
        }
        rates.push(bytes as f64 / MIB / took.as_secs_f64());
    }
    results.add("output_mib_per_s", rates);
    bed.remove(&mut http, &name)
}

pub fn files(bed: &ServiceBench, results: &mut Results) -> Result<()> {
    let size: u64 = if bed.quick { 64 << 20 } else { 1 << 30 };
    let (mut both, mut put, mut get) = (Samples::default(), Samples::default(), Samples::default());
    let piece: Vec<u8> =
        (0..1 << 20).map(|n: u32| (n.wrapping_mul(2654435761) >> 13) as u8).collect();
    let mut http = bed.http()?;
    for _ in 0..bed.runs.min(5) {
        let name = bed.machine(&mut http)?;
        let path = format!("/v1/machine/{name}/file?path=big");
        let up = http.upload(&path, &piece, size)?;
        let down = http.download(&path, size)?;
        let rate = |bytes: u64, time: Duration| bytes as f64 / MIB / time.as_secs_f64();
        put.push(rate(size, up));
        get.push(rate(size, down));
        both.push(rate(2 * size, up + down));
        bed.remove(&mut http, &name)?;
    }
    results.add("file_mib_per_s", both);
    results.add("file_put_mib_per_s", put);
    results.add("file_get_mib_per_s", get);
    Ok(())
}

pub fn idle(bed: &ServiceBench, results: &mut Results) -> Result<()> {
    let mut http = bed.http()?;
    let name = bed.machine(&mut http)?;
    let open = |count: usize| {
        (0..count)
            .map(|_| MachineSocket::open(bed.address, &name))
            .collect::<Result<Vec<MachineSocket>>>()
    };
    // some first, for one-time allocations; they stay, so that nothing of theirs is reused
    let first = open(SOCKETS / 10)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = resident_kib(bed.service.id())?;
    let sockets = open(SOCKETS)?;
    std::thread::sleep(Duration::from_secs(1));
    let after = resident_kib(bed.service.id())?;
    drop((first, sockets));
    results.add("idle_conn_kib", after.saturating_sub(before) as f64 / SOCKETS as f64);
    bed.remove(&mut http, &name)
}

fn resident_kib(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/statm");
    let text = std::fs::read_to_string(&path).at("read", Path::new(&path))?;
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * 4)
}
