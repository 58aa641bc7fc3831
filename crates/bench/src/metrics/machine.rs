//! The metrics of `bench machine`: the same keys for each language, with bars of its own.

use super::{MachineGroup, Metric, MetricGroup, extra};

/// The bars of a language; a key without one is measured all the same.
struct MachineBars {
    create: f64,
    exec: f64,
    lag: Option<f64>,
    wake: f64,
    swap_out: Option<f64>,
    cold: Option<f64>,
    burst: f64,
    live: f64,
    idle: Option<f64>,
    disk: Option<f64>,
}

/// For the default language.
pub const MACHINE_METRICS: &[Metric] = &metrics(&MachineBars {
    create: 10.0,
    exec: 1.2,
    lag: Some(60.0),
    wake: 15.0,
    swap_out: Some(60.0),
    cold: Some(400.0),
    burst: 500.0,
    live: 8.0,
    idle: Some(200.0),
    disk: Some(12.0),
});

pub const JAVASCRIPT_METRICS: &[Metric] = &metrics(&MachineBars {
    create: 6.0,
    exec: 0.8,
    lag: None,
    wake: 12.0,
    swap_out: None,
    cold: None,
    burst: 300.0,
    live: 6.0,
    idle: None,
    disk: None,
});

const fn one(key: &'static str, group: MachineGroup, bar: Option<f64>, is: &'static str) -> Metric {
    Metric { bar, ..extra(key, MetricGroup::Machine(group), is) }
}

const fn metrics(bars: &MachineBars) -> [Metric; 13] {
    use MachineGroup::{Burst, Cold, Exec, Idle, Live, Wake};
    [
        one("create_ms", Exec, Some(bars.create), "create to first result, embedded"),
        one("exec_ms", Exec, Some(bars.exec), "`1+1` on a live machine, grouped, checkpointing on"),
        one("exec_exact_ms", Exec, None, "`1+1` right after another, each with a state of its own"),
        one("checkpoint_lag_ms", Exec, bars.lag, "answer to durable checkpoint"),
        one("wake_ms", Wake, Some(bars.wake), "first result of a swapped-out machine"),
        one("wake_open_ms", Wake, None, "wake_ms of a machine with an open network"),
        one("swap_out_ms", Wake, bars.swap_out, "to memory freed, after some work with data"),
        one("wake_cold_ms", Cold, bars.cold, "wake_ms right after the start of a host"),
        one("open_ms", Cold, None, "opening the data directory before that"),
        one("burst_100_ms", Burst, Some(bars.burst), "100 machines at once, each has answered"),
        one("live_mib_per_machine", Live, Some(bars.live), "host memory each, 200 live machines"),
        one("idle_rss_mib_1000", Idle, bars.idle, "host memory of 1,000 swapped out"),
        one("disk_mib_per_idle_machine", Idle, bars.disk, "store growth for each of them"),
    ]
}
