//! Metrics for Prometheus.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use stasis_api::State as MachineState;
use stasis_machine::ObservedEvent;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Duration;

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::failure::{HttpFailure, Result};

const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    latency: HistogramVec,
    instructions: IntCounter,
    runtime: Histogram,
    pub connections: IntGauge,
    pub sockets: IntGauge,
    machines: IntGaugeVec,
    pending: IntGauge,
    events: IntGaugeVec,
    refusals: IntGaugeVec,
    resident: IntGauge,
    ending: IntGauge,
    prepared: IntGaugeVec,
    prepared_bytes: IntGaugeVec,
    prepared_budget: IntGauge,
    pub spans_sent: IntCounter,
    pub spans_dropped: IntCounter,
}

/// Gauges that differ by label.
fn gauges(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    IntGaugeVec::new(Opts::new(name, help), labels)
}

impl Metrics {
    pub fn new() -> prometheus::Result<Metrics> {
        let _ = statm();
        let timing =
            |name: &str, help: &str| HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        let metrics = Metrics {
            registry: Registry::new_custom(Some("stasis".into()), None)?,
            requests: IntCounterVec::new(
                Opts::new("http_requests_total", "Requests answered"),
                &["method", "route", "status"],
            )?,
            latency: HistogramVec::new(
                timing("http_request_seconds", "Time from a request to the head of its response"),
                &["method", "route"],
            )?,
            instructions: IntCounter::new("instructions_total", "Instructions accepted")?,
            runtime: Histogram::with_opts(timing(
                "instruction_seconds",
                "Run times of instructions, each counted once when it has finished",
            ))?,
            connections: IntGauge::new("connections", "Open connections")?,
            sockets: IntGauge::new("websockets", "Open WebSockets")?,
            machines: gauges("machines", "Machines by state", &["state"])?,
            pending: IntGauge::new("instructions_pending", "Instructions that run or wait")?,
            events: gauges("events_total", "Events since the start: swaps, saves, ...", &["kind"])?,
            refusals: gauges(
                "refusals_total",
                "Reported refusals since the start, by policy and rule",
                &["policy", "rule"],
            )?,
            resident: IntGauge::new("resident_memory_bytes", "Memory of the service itself")?,
            ending: IntGauge::new(
                "machines_ending",
                "Killed machines that the kernel has not ended after 10 s",
            )?,
            prepared: gauges(
                "prepared",
                "Sandboxes, processes and machines prepared in advance, by kind",
                &["kind"],
            )?,
            prepared_bytes: gauges(
                "prepared_bytes",
                "Memory counted for what is prepared in advance, by kind; templates only if they \
                 are held for a burst of branches",
                &["kind"],
            )?,
            prepared_budget: IntGauge::new(
                "prepared_budget_bytes",
                "Memory that may be used for what is prepared in advance",
            )?,
            spans_sent: IntCounter::new("trace_spans_sent_total", "Spans accepted by a collector")?,
            spans_dropped: IntCounter::new(
                "trace_spans_dropped_total",
                "Spans dropped because no collector accepted them in time",
            )?,
        };
        metrics.register()?;
        Ok(metrics)
    }

    fn register(&self) -> prometheus::Result<()> {
        let all: [Box<dyn prometheus::core::Collector>; 17] = [
            Box::new(self.requests.clone()),
            Box::new(self.latency.clone()),
            Box::new(self.instructions.clone()),
            Box::new(self.runtime.clone()),
            Box::new(self.connections.clone()),
            Box::new(self.sockets.clone()),
            Box::new(self.machines.clone()),
            Box::new(self.pending.clone()),
            Box::new(self.events.clone()),
            Box::new(self.refusals.clone()),
            Box::new(self.resident.clone()),
            Box::new(self.ending.clone()),
            Box::new(self.prepared.clone()),
            Box::new(self.prepared_bytes.clone()),
            Box::new(self.prepared_budget.clone()),
            Box::new(self.spans_sent.clone()),
            Box::new(self.spans_dropped.clone()),
        ];
        all.into_iter().try_for_each(|one| self.registry.register(one))
    }

    pub fn answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        self.requests.with_label_values(&[method, route, &status.to_string()]).inc();
        self.latency.with_label_values(&[method, route]).observe(took.as_secs_f64());
    }

    pub fn see(&self, moment: &ObservedEvent<'_>) {
        match moment {
            ObservedEvent::Queued { .. } => self.instructions.inc(),
            ObservedEvent::Ended { runtime: Some(runtime), .. } => {
                self.runtime.observe(runtime.as_secs_f64());
            }
            _ => {}
        }
    }

    fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn count(app: &App) {
    let metrics = app.instruments.metrics();
    let (mut ready, mut running, mut swapped, mut pending) = (0, 0, 0, 0);
    for machine in app.host.machines() {
        pending += machine.pending() as i64;
        match machine.state() {
            MachineState::Ready => ready += 1,
            MachineState::Running => running += 1,
            MachineState::Swapped => swapped += 1,
        }
    }
    for (state, count) in [("ready", ready), ("running", running), ("swapped", swapped)] {
        metrics.machines.with_label_values(&[state]).set(count);
    }
    metrics.pending.set(pending);
    for (kind, count) in app.host.event_counts() {
        metrics.events.with_label_values(&[kind.word().as_str()]).set(count as i64);
    }
    for ((policy, rule), count) in app.host.refusal_counts() {
        metrics.refusals.with_label_values(&[policy.as_str(), rule.as_str()]).set(count as i64);
    }
    metrics.resident.set(resident().unwrap_or(0));
    metrics.ending.set(stasis_machine::remains() as i64);
    for (kind, count) in app.host.prepared() {
        metrics.prepared.with_label_values(&[kind]).set(count as i64);
    }
    let (used, most) = app.host.prepared_memory();
    for (kind, bytes) in used {
        metrics.prepared_bytes.with_label_values(&[kind]).set(bytes as i64);
    }
    metrics.prepared_budget.set(most as i64);
}

/// Opened when the service starts, because its threads may open nothing outside the data directory.
fn statm() -> Option<&'static File> {
    static STATM: OnceLock<Option<File>> = OnceLock::new();
    STATM.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()
}

/// Memory of this process, in bytes.
fn resident() -> Option<i64> {
    const PAGE: i64 = 4096;
    let mut text = [0; 128];
    let len = statm()?.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    text.split_whitespace().nth(1)?.parse::<i64>().ok().map(|pages| pages * PAGE)
}

/// Get metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "service",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn show(State(app): State<App>, caller: Caller) -> Result<impl IntoResponse> {
    caller.need(Scope::Host)?;
    count(&app);
    let broke =
        |error: prometheus::Error| HttpFailure::internal("service.metrics", error.to_string());
    let text = app.instruments.metrics().text().map_err(broke)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}
