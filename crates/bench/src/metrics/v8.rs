//! The metrics of `bench mcp-v8`.

use super::{Metric, MetricGroup, V8Group, at_least, extra};

pub const V8_METRICS: &[Metric] = &[
    at_least(
        "session_runs_per_s",
        MetricGroup::V8(V8Group::Session),
        800.0,
        "runs with a heap key each, all sessions at once",
    ),
    extra("session_loaded_ms", MetricGroup::V8(V8Group::Session), "each of those runs"),
    extra("session_run_ms", MetricGroup::V8(V8Group::Session), "a run while there is no other"),
    extra(
        "resumed_run_ms",
        MetricGroup::V8(V8Group::Resumed),
        "a run of a session whose machine was swapped out",
    ),
    at_least(
        "fresh_runs_per_s",
        MetricGroup::V8(V8Group::Fresh),
        400.0,
        "stateless runs, as many clients at once",
    ),
    extra("fresh_loaded_ms", MetricGroup::V8(V8Group::Fresh), "each of those runs"),
    extra("fresh_run_ms", MetricGroup::V8(V8Group::Fresh), "a run while there is no other"),
];
