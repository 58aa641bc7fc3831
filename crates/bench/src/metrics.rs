//! All metrics, and the bar of each.

mod machine;
mod v8;

pub use machine::{JAVASCRIPT_METRICS, MACHINE_METRICS};
pub use v8::V8_METRICS;

/// One measurement run yields the metrics of a group together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricGroup {
    Restore,
    RestoreLarge,
    Pause,
    PauseLarge,
    Diff,
    Clones,
    Chain,
    /// Measured by the program for yardsticks alone.
    Yardstick,
    Machine(MachineGroup),
    Mcp(Mcp),
    V8(V8Group),
    Service(ServiceGroup),
    Branch(BranchGroup),
    Egress(EgressGroup),
}

/// The groups of `bench egress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressGroup {
    Rules,
    Rego,
    ToolCall,
    Connect,
    Bytes,
    Many,
}

/// The groups of `bench branch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchGroup {
    One,
    Hundred,
    Pause,
    PauseLarge,
    Back,
    Steps,
    History,
    Exact,
    BranchLarge,
    TravelLarge,
    SaveLarge,
}

/// The groups of `bench mcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mcp {
    Http,
    Stdio,
}

/// The groups of `bench mcp-v8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum V8Group {
    Session,
    Resumed,
    Fresh,
}

/// The groups of `bench machine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineGroup {
    Exec,
    Wake,
    Cold,
    Burst,
    Live,
    Idle,
}

/// The groups of `bench service`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceGroup {
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
    pub group: MetricGroup,
    /// The median may not exceed it; may not be below it where more is better.
    pub bar: Option<f64>,
    pub more_is_better: bool,
    /// Another key that it is reported as a multiple of.
    pub multiple_of: Option<&'static str>,
    pub is: &'static str,
}

/// The metrics of `bench branch`, likewise.
pub const BRANCH_METRICS: &[Metric] = &[
    barred(
        "branch_ms",
        MetricGroup::Branch(BranchGroup::One),
        10.0,
        "call to first result in the branch",
    ),
    barred(
        "branch_pause_ms",
        MetricGroup::Branch(BranchGroup::Pause),
        4.0,
        "longest stall in the source, which keeps writing",
    ),
    extra(
        "branch_pause_baseline_ms",
        MetricGroup::Branch(BranchGroup::Pause),
        "longest stall in 50 ms without a branch",
    ),
    barred(
        "branch_pause_1536mib_ms",
        MetricGroup::Branch(BranchGroup::PauseLarge),
        40.0,
        "the same with a dirty 1.5 GiB array",
    ),
    barred(
        "branch_100_ms",
        MetricGroup::Branch(BranchGroup::Hundred),
        300.0,
        "one call, 100 branches, each has answered",
    ),
    barred(
        "branch_private_kib",
        MetricGroup::Branch(BranchGroup::Hundred),
        2048.0,
        "private memory of each of them after one instruction",
    ),
    barred(
        "rollback_ms",
        MetricGroup::Branch(BranchGroup::Back),
        20.0,
        "call to first result after undo to a state on disk",
    ),
    barred(
        "undo_ms",
        MetricGroup::Branch(BranchGroup::Steps),
        6.0,
        "one instruction back, the machine is in memory again",
    ),
    barred("redo_ms", MetricGroup::Branch(BranchGroup::Steps), 6.0, "and forward again"),
    at_least(
        "exec_exact_per_s",
        MetricGroup::Branch(BranchGroup::Exact),
        700.0,
        "a state for each, 64 machines, embedded",
    ),
    barred(
        "branch_1024mib_ms",
        MetricGroup::Branch(BranchGroup::BranchLarge),
        40.0,
        "branch_ms, a dirty 1 GiB array, one page touched",
    ),
    extra(
        "branch_1024mib_read_ms",
        MetricGroup::Branch(BranchGroup::BranchLarge),
        "the same, to the sum of all of it",
    ),
    extra(
        "branch_1024mib_source_ms",
        MetricGroup::Branch(BranchGroup::BranchLarge),
        "the same sum in the source",
    ),
    barred(
        "branch_1024mib_read_ratio",
        MetricGroup::Branch(BranchGroup::BranchLarge),
        1.5,
        "the one over the other",
    ),
    barred(
        "branch_1024mib_private_mib",
        MetricGroup::Branch(BranchGroup::BranchLarge),
        8.0,
        "private memory of the branch after that",
    ),
    barred(
        "undo_1024mib_ms",
        MetricGroup::Branch(BranchGroup::TravelLarge),
        15.0,
        "undo_ms with a 1 GiB array",
    ),
    barred(
        "wake_1024mib_ms",
        MetricGroup::Branch(BranchGroup::TravelLarge),
        20.0,
        "wake with a 1 GiB array, one page touched",
    ),
    extra(
        "save_mib_per_s",
        MetricGroup::Branch(BranchGroup::SaveLarge),
        "a 1 GiB array, from the answer until it is on disk",
    ),
    extra(
        "dd_mib_per_s",
        MetricGroup::Branch(BranchGroup::SaveLarge),
        "1 GiB by dd with direct I/O, in turn with it",
    ),
    at_least(
        "save_dd_ratio",
        MetricGroup::Branch(BranchGroup::SaveLarge),
        0.7,
        "the one over the other",
    ),
    barred(
        "checkpoint_overhead_ms",
        MetricGroup::Branch(BranchGroup::History),
        3.0,
        "time a checkpoint each adds to an instruction",
    ),
    barred(
        "history_kib_per_instruction",
        MetricGroup::Branch(BranchGroup::History),
        96.0,
        "store growth for each, stored as differences",
    ),
    extra(
        "history_written_kib_per_instruction",
        MetricGroup::Branch(BranchGroup::History),
        "the same right after the instructions",
    ),
];

/// The metrics of `bench mcp`, likewise.
pub const MCP_METRICS: &[Metric] = &[
    barred("call_ms", MetricGroup::Mcp(Mcp::Http), 3.0, "`1+1` over Streamable HTTP, one session"),
    at_least(
        "calls_per_s",
        MetricGroup::Mcp(Mcp::Http),
        800.0,
        "the same from many sessions at once",
    ),
    barred("stdio_call_ms", MetricGroup::Mcp(Mcp::Stdio), 2.0, "`1+1` over standard streams"),
    barred(
        "first_call_ms",
        MetricGroup::Mcp(Mcp::Stdio),
        150.0,
        "start of `stasis mcp` to first result",
    ),
    extra("first_call_warm_ms", MetricGroup::Mcp(Mcp::Stdio), "the same while a daemon runs"),
];

/// The metrics of `bench egress`, likewise.
pub const EGRESS_METRICS: &[Metric] = &[
    barred(
        "decide_us",
        MetricGroup::Egress(EgressGroup::Rules),
        20.0,
        "a request judged by four policies of 100 rules",
    ),
    barred(
        "decide_rego_us",
        MetricGroup::Egress(EgressGroup::Rego),
        200.0,
        "the same with Rego at one level",
    ),
    barred(
        "tool_call_ms",
        MetricGroup::Egress(EgressGroup::ToolCall),
        3.0,
        "a call of an echo tool over standard streams, as code waits for it",
    ),
    barred(
        "connect_overhead_ms",
        MetricGroup::Egress(EgressGroup::Connect),
        1.0,
        "a connection of a machine under a policy, beyond one of the host",
    ),
    at_least(
        "passthrough_mib_per_s",
        MetricGroup::Egress(EgressGroup::Bytes),
        400.0,
        "256 MiB to a machine, untouched",
    ),
    at_least(
        "intercept_mib_per_s",
        MetricGroup::Egress(EgressGroup::Bytes),
        150.0,
        "256 MiB to a machine, TLS, requests read",
    ),
    barred(
        "connection_errors",
        MetricGroup::Egress(EgressGroup::Many),
        0.0,
        "failures of 1,000 connections from 100 machines",
    ),
    barred(
        "idle_conn_kib",
        MetricGroup::Egress(EgressGroup::Many),
        32.0,
        "memory of the service for each of them, idle",
    ),
];

/// The groups with a requested metric, each once, by its first key. Reports progress when the next
/// is requested.
pub fn groups(
    metrics: &'static [Metric],
    wanted: &[&str],
) -> impl Iterator<Item = (MetricGroup, &'static str)> {
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

const fn barred(key: &'static str, group: MetricGroup, bar: f64, is: &'static str) -> Metric {
    Metric { bar: Some(bar), ..extra(key, group, is) }
}

const fn at_least(key: &'static str, group: MetricGroup, bar: f64, is: &'static str) -> Metric {
    Metric { more_is_better: true, ..barred(key, group, bar, is) }
}

/// Without a bar.
pub const fn extra(key: &'static str, group: MetricGroup, is: &'static str) -> Metric {
    Metric { key, group, bar: None, more_is_better: false, multiple_of: None, is }
}

/// The metrics of `bench service`, likewise.
pub const SERVICE_METRICS: &[Metric] = &[
    // first: later, connections would reuse freed memory
    barred(
        "idle_conn_kib",
        MetricGroup::Service(ServiceGroup::Idle),
        64.0,
        "memory per idle WebSocket",
    ),
    barred(
        "exec_ms",
        MetricGroup::Service(ServiceGroup::Exec),
        1.5,
        "`1+1` over one WebSocket, grouped",
    ),
    barred(
        "exec_http_ms",
        MetricGroup::Service(ServiceGroup::Exec),
        3.0,
        "through HTTP exec + result",
    ),
    barred(
        "stream_first_ms",
        MetricGroup::Service(ServiceGroup::Exec),
        1.5,
        "exec to first output chunk over WebSocket",
    ),
    extra(
        "exec_exact_ms",
        MetricGroup::Service(ServiceGroup::Exec),
        "`1+1` right after another, each with a state of its own",
    ),
    extra(
        "exec_exact_per_s",
        MetricGroup::Service(ServiceGroup::Many),
        "the same as `exec_per_s`, each with a state of its own",
    ),
    at_least(
        "exec_per_s",
        MetricGroup::Service(ServiceGroup::Many),
        1500.0,
        "instructions per second over 64 machines, grouped",
    ),
    barred(
        "create_ms",
        MetricGroup::Service(ServiceGroup::Life),
        15.0,
        "create to first result over HTTP",
    ),
    barred(
        "wake_ms",
        MetricGroup::Service(ServiceGroup::Life),
        20.0,
        "first result of a swapped-out machine over HTTP",
    ),
    at_least(
        "output_mib_per_s",
        MetricGroup::Service(ServiceGroup::Output),
        60.0,
        "streamed stdout through the API, lines of 1 KiB",
    ),
    at_least(
        "file_mib_per_s",
        MetricGroup::Service(ServiceGroup::Files),
        300.0,
        "upload and download of a 1 GiB file",
    ),
    extra("file_put_mib_per_s", MetricGroup::Service(ServiceGroup::Files), "the upload alone"),
    extra(
        "file_get_mib_per_s",
        MetricGroup::Service(ServiceGroup::Files),
        "the download right after it",
    ),
];

/// In the order they are measured and printed.
pub const METRICS: &[Metric] = &[
    barred("restore_ms", MetricGroup::Restore, 5.0, "restore to first reply, template parked"),
    extra("restore_cold_ms", MetricGroup::Restore, "the same with no template, page cache warm"),
    extra(
        "restore_call_ms",
        MetricGroup::Restore,
        "the part of restore_ms inside the engine's call",
    ),
    extra("park_ms", MetricGroup::Restore, "building the template from its image"),
    extra("kill_ms", MetricGroup::Restore, "ending a restored tree, until nothing of it is left"),
    barred(
        "pause_ms",
        MetricGroup::Diff,
        4.0,
        "longest stall in a capture of a clone, seen from inside",
    ),
    extra("pause_engine_ms", MetricGroup::Diff, "the pause as the engine saw it"),
    extra(
        "pause_first_ms",
        MetricGroup::Pause,
        "longest stall in the first capture of a new program",
    ),
    extra("pause_first_baseline_ms", MetricGroup::Pause, "in as much time without a capture"),
    extra("pause_first_engine_ms", MetricGroup::Pause, "the pause as the engine saw it"),
    extra("capture_full_ms", MetricGroup::Pause, "that first capture, to fsync"),
    extra("image_mib", MetricGroup::Pause, "disk space it used"),
    barred("diff_ms", MetricGroup::Diff, 40.0, "capture of a clone after a small change, to fsync"),
    barred("diff_kib", MetricGroup::Diff, 2048.0, "disk space that capture used"),
    extra(
        "diff_pages_kib",
        MetricGroup::Diff,
        "memory pages in diff_kib; the rest describes the tree",
    ),
    barred("spawn_100_ms", MetricGroup::Clones, 300.0, "100 clones, each has replied"),
    barred(
        "private_kib_per_clone",
        MetricGroup::Clones,
        1536.0,
        "Private_Clean + Private_Dirty, mean",
    ),
    extra("pss_kib_per_clone", MetricGroup::Clones, "Pss, mean"),
    extra("page_tables_kib_per_clone", MetricGroup::Clones, "VmPTE, mean; in no other key"),
    barred(
        "chain_32_ratio",
        MetricGroup::Chain,
        1.5,
        "restore at depth 32 over restore at depth 0",
    ),
    extra("chain_0_ms", MetricGroup::Chain, "restore at depth 0, base template parked"),
    extra("chain_32_ms", MetricGroup::Chain, "restore at depth 32, base template parked"),
    barred(
        "restore_1536mib_ms",
        MetricGroup::RestoreLarge,
        25.0,
        "with a 1.5 GiB array, no template",
    ),
    extra(
        "sum_1536mib_ms",
        MetricGroup::RestoreLarge,
        "summing that array right after the first reply",
    ),
    barred(
        "pause_1536mib_ms",
        MetricGroup::PauseLarge,
        35.0,
        "longest stall with 1.5 GiB rewritten",
    ),
    extra("pause_1536mib_baseline_ms", MetricGroup::PauseLarge, "the same time without a capture"),
    extra("pause_1536mib_engine_ms", MetricGroup::PauseLarge, "the pause as the engine saw it"),
    extra("capture_1536mib_ms", MetricGroup::PauseLarge, "that capture, to fsync"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_descriptions_fit_a_terminal() {
        for metrics in [METRICS, MACHINE_METRICS, JAVASCRIPT_METRICS, BRANCH_METRICS, V8_METRICS] {
            for (index, metric) in metrics.iter().enumerate() {
                assert!(metrics[..index].iter().all(|other| other.key != metric.key));
                assert!(metric.is.len() <= 60, "{}", metric.key);
            }
        }
    }
}
