//! Everything that can be measured, and what each must reach.

/// One measurement run yields the metrics of a group together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Restore,
    RestoreLarge,
    Pause,
    PauseLarge,
    Diff,
    Clones,
    Chain,
    Criu,
    Gvisor,
    Machine(Machines),
    Mcp(Mcp),
    Service(Services),
    Branch(Branches),
}

/// The groups of `bench branch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Branches {
    One,
    Hundred,
    Pause,
    PauseLarge,
    Back,
    History,
}

/// The groups of `bench mcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mcp {
    Http,
    Stdio,
}

/// The groups of `bench machine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machines {
    Exec,
    Wake,
    Cold,
    Burst,
    Live,
    Idle,
    Jupyter,
}

/// The groups of `bench service`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Services {
    Exec,
    Many,
    Life,
    Output,
    Files,
    Idle,
}

#[derive(Debug)]
pub struct Metric {
    pub key: &'static str,
    pub group: Group,
    /// The median may not exceed it; may not be below it where more is better.
    pub bar: Option<f64>,
    pub more_is_better: bool,
    pub is: &'static str,
}

/// What `bench machine` measures, likewise.
pub const MACHINE_METRICS: &[Metric] = &[
    barred("create_ms", Group::Machine(Machines::Exec), 10.0, "create to first result, embedded"),
    barred(
        "exec_ms",
        Group::Machine(Machines::Exec),
        1.2,
        "`1+1` on a live machine, checkpointing on",
    ),
    barred(
        "checkpoint_lag_ms",
        Group::Machine(Machines::Exec),
        60.0,
        "answer to durable checkpoint",
    ),
    barred(
        "wake_ms",
        Group::Machine(Machines::Wake),
        15.0,
        "first result of a swapped-out machine",
    ),
    extra(
        "wake_open_ms",
        Group::Machine(Machines::Wake),
        "wake_ms of a machine with an open network",
    ),
    barred(
        "swap_out_ms",
        Group::Machine(Machines::Wake),
        60.0,
        "to memory freed, after a pandas instruction",
    ),
    barred(
        "wake_cold_ms",
        Group::Machine(Machines::Cold),
        400.0,
        "wake_ms right after the start of a host",
    ),
    extra("open_ms", Group::Machine(Machines::Cold), "opening the data directory before that"),
    barred(
        "burst_100_ms",
        Group::Machine(Machines::Burst),
        500.0,
        "100 machines at once, each has answered",
    ),
    barred(
        "live_mib_per_machine",
        Group::Machine(Machines::Live),
        8.0,
        "host memory each, 200 live machines",
    ),
    barred(
        "idle_rss_mib_1000",
        Group::Machine(Machines::Idle),
        200.0,
        "host memory of 1,000 swapped out",
    ),
    barred(
        "disk_mib_per_idle_machine",
        Group::Machine(Machines::Idle),
        12.0,
        "store growth for each of them",
    ),
    extra(
        "jupyter_exec_ms",
        Group::Machine(Machines::Jupyter),
        "`1+1` through jupyter_client and ipykernel",
    ),
    extra(
        "jupyter_start_ms",
        Group::Machine(Machines::Jupyter),
        "a kernel's start to its first result",
    ),
];

/// What `bench branch` measures, likewise.
pub const BRANCH_METRICS: &[Metric] = &[
    barred("branch_ms", Group::Branch(Branches::One), 20.0, "call to first result in the branch"),
    barred(
        "branch_pause_ms",
        Group::Branch(Branches::Pause),
        4.0,
        "longest stall in the source, which keeps writing",
    ),
    extra(
        "branch_pause_baseline_ms",
        Group::Branch(Branches::Pause),
        "longest stall in 50 ms without a branch",
    ),
    barred(
        "branch_pause_1536mib_ms",
        Group::Branch(Branches::PauseLarge),
        40.0,
        "the same with a dirty 1.5 GiB array",
    ),
    barred(
        "branch_100_ms",
        Group::Branch(Branches::Hundred),
        500.0,
        "one call, 100 branches, each has answered",
    ),
    barred(
        "branch_private_kib",
        Group::Branch(Branches::Hundred),
        2048.0,
        "private memory of each of them after one instruction",
    ),
    barred("rollback_ms", Group::Branch(Branches::Back), 25.0, "call to first result after undo"),
    barred(
        "checkpoint_overhead_ms",
        Group::Branch(Branches::History),
        3.0,
        "what a checkpoint for each adds to an instruction",
    ),
    barred(
        "history_kib_per_instruction",
        Group::Branch(Branches::History),
        1024.0,
        "store growth for each small instruction",
    ),
];

/// What `bench mcp` measures, likewise.
pub const MCP_METRICS: &[Metric] = &[
    barred("call_ms", Group::Mcp(Mcp::Http), 3.0, "`1+1` over Streamable HTTP, one session"),
    at_least("calls_per_s", Group::Mcp(Mcp::Http), 800.0, "the same from many sessions at once"),
    barred("stdio_call_ms", Group::Mcp(Mcp::Stdio), 2.0, "`1+1` over standard streams"),
    barred("first_call_ms", Group::Mcp(Mcp::Stdio), 150.0, "start of `stasis mcp` to first result"),
    extra("first_call_warm_ms", Group::Mcp(Mcp::Stdio), "the same while a keeper runs"),
];

/// What is measured together and has something that is wanted, each once, by its first key. Says
/// so when it is asked for the next.
pub fn groups(
    metrics: &'static [Metric],
    wanted: &[&str],
) -> impl Iterator<Item = (Group, &'static str)> {
    let mut firsts: Vec<&Metric> = Vec::new();
    for metric in metrics.iter().filter(|metric| wanted.contains(&metric.key)) {
        if firsts.iter().all(|first| first.group != metric.group) {
            firsts.push(metric);
        }
    }
    firsts.into_iter().map(|first| {
        eprintln!("measuring {} ...", first.key);
        (first.group, first.key)
    })
}

const fn barred(key: &'static str, group: Group, bar: f64, is: &'static str) -> Metric {
    Metric { key, group, bar: Some(bar), more_is_better: false, is }
}

const fn at_least(key: &'static str, group: Group, bar: f64, is: &'static str) -> Metric {
    Metric { key, group, bar: Some(bar), more_is_better: true, is }
}

const fn extra(key: &'static str, group: Group, is: &'static str) -> Metric {
    Metric { key, group, bar: None, more_is_better: false, is }
}

/// What `bench service` measures, likewise.
pub const SERVICE_METRICS: &[Metric] = &[
    // first: later, connections would find memory that others let go of
    barred("idle_conn_kib", Group::Service(Services::Idle), 64.0, "memory per idle WebSocket"),
    barred("exec_ms", Group::Service(Services::Exec), 1.5, "`1+1` over one WebSocket"),
    barred("exec_http_ms", Group::Service(Services::Exec), 3.0, "through HTTP exec + result"),
    barred(
        "stream_first_ms",
        Group::Service(Services::Exec),
        1.5,
        "exec to first output chunk over WebSocket",
    ),
    at_least(
        "exec_per_s",
        Group::Service(Services::Many),
        1500.0,
        "instructions per second over 64 machines",
    ),
    barred("create_ms", Group::Service(Services::Life), 15.0, "create to first result over HTTP"),
    barred(
        "wake_ms",
        Group::Service(Services::Life),
        20.0,
        "first result of a swapped-out machine over HTTP",
    ),
    at_least(
        "output_mib_per_s",
        Group::Service(Services::Output),
        60.0,
        "streamed stdout through the API, lines of 1 KiB",
    ),
    at_least(
        "file_mib_per_s",
        Group::Service(Services::Files),
        300.0,
        "upload and download of a 1 GiB file",
    ),
    extra("file_put_mib_per_s", Group::Service(Services::Files), "the upload alone"),
    extra("file_get_mib_per_s", Group::Service(Services::Files), "the download right after it"),
];

/// In the order they are measured and printed.
pub const METRICS: &[Metric] = &[
    barred("restore_ms", Group::Restore, 5.0, "restore to first reply, template parked"),
    extra("restore_cold_ms", Group::Restore, "the same with no template, page cache warm"),
    extra("restore_call_ms", Group::Restore, "the part of restore_ms inside the engine's call"),
    extra("park_ms", Group::Restore, "building the template from its image"),
    extra("kill_ms", Group::Restore, "ending a restored tree, until nothing of it is left"),
    barred("pause_ms", Group::Diff, 4.0, "longest stall in a capture of a clone, seen from inside"),
    extra("pause_engine_ms", Group::Diff, "the pause as the engine saw it"),
    extra("pause_first_ms", Group::Pause, "longest stall in the first capture of a new program"),
    extra("pause_first_baseline_ms", Group::Pause, "in as much time without a capture"),
    extra("pause_first_engine_ms", Group::Pause, "the pause as the engine saw it"),
    extra("capture_full_ms", Group::Pause, "that first capture, to fsync"),
    extra("image_mib", Group::Pause, "what it left on disk"),
    barred("diff_ms", Group::Diff, 40.0, "capture of a clone after a small change, to fsync"),
    barred("diff_kib", Group::Diff, 2048.0, "what that left on disk"),
    extra("diff_pages_kib", Group::Diff, "memory pages in diff_kib; the rest describes the tree"),
    barred("spawn_100_ms", Group::Clones, 300.0, "100 clones, each has replied"),
    barred("private_kib_per_clone", Group::Clones, 1536.0, "Private_Clean + Private_Dirty, mean"),
    extra("pss_kib_per_clone", Group::Clones, "Pss, mean"),
    extra("page_tables_kib_per_clone", Group::Clones, "VmPTE, mean; in no other key"),
    barred("chain_32_ratio", Group::Chain, 1.5, "restore at depth 32 over restore at depth 0"),
    extra("chain_0_ms", Group::Chain, "restore at depth 0, base template parked"),
    extra("chain_32_ms", Group::Chain, "restore at depth 32, base template parked"),
    barred("restore_1536mib_ms", Group::RestoreLarge, 25.0, "with a 1.5 GiB array, no template"),
    extra("sum_1536mib_ms", Group::RestoreLarge, "summing that array right after the first reply"),
    barred("pause_1536mib_ms", Group::PauseLarge, 35.0, "longest stall with 1.5 GiB rewritten"),
    extra("pause_1536mib_baseline_ms", Group::PauseLarge, "the same time without a capture"),
    extra("pause_1536mib_engine_ms", Group::PauseLarge, "the pause as the engine saw it"),
    extra("capture_1536mib_ms", Group::PauseLarge, "that capture, to fsync"),
    extra("criu_restore_ms", Group::Criu, "criu restore of the same program to first reply"),
    extra("gvisor_restore_ms", Group::Gvisor, "runsc restore of the same program to first reply"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_descriptions_fit_a_terminal() {
        for metrics in [METRICS, MACHINE_METRICS, BRANCH_METRICS] {
            for (index, metric) in metrics.iter().enumerate() {
                assert!(metrics[..index].iter().all(|other| other.key != metric.key));
                assert!(metric.is.len() <= 60, "{}", metric.key);
            }
        }
    }
}
