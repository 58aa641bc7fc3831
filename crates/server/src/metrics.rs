//! Numbers for those who watch the service, in the form Prometheus reads.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use stasis_api::{Instruction, State as MachineState};
use std::time::Duration;

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::failure::{Failure, Result};

const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    latency: HistogramVec,
    pub instructions: IntCounter,
    pub runtime: Histogram,
    pub connections: IntGauge,
    pub sockets: IntGauge,
    machines: IntGaugeVec,
    pending: IntGauge,
    events: IntGaugeVec,
    resident: IntGauge,
}

impl Metrics {
    pub fn new() -> prometheus::Result<Metrics> {
        let timing =
            |name: &str, help: &str| HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        let metrics = Metrics {
            registry: Registry::new_custom(Some("stasis".into()), None)?,
            requests: IntCounterVec::new(
                Opts::new("http_requests_total", "Requests answered"),
                &["method", "route", "status"],
            )?,
            latency: HistogramVec::new(
                timing("http_request_seconds", "From a request to the head of its answer"),
                &["method", "route"],
            )?,
            instructions: IntCounter::new("instructions_total", "Instructions accepted")?,
            runtime: Histogram::with_opts(timing(
                "instruction_seconds",
                "Run times of instructions whose results were sent",
            ))?,
            connections: IntGauge::new("connections", "Open connections")?,
            sockets: IntGauge::new("websockets", "Open WebSockets")?,
            machines: IntGaugeVec::new(Opts::new("machines", "Machines by state"), &["state"])?,
            pending: IntGauge::new("instructions_pending", "Instructions that run or wait")?,
            events: IntGaugeVec::new(
                Opts::new("events_total", "What happened since the start: swaps, checkpoints, ..."),
                &["kind"],
            )?,
            resident: IntGauge::new("resident_memory_bytes", "Memory of the service itself")?,
        };
        metrics.register()?;
        Ok(metrics)
    }

    fn register(&self) -> prometheus::Result<()> {
        let all: [Box<dyn prometheus::core::Collector>; 10] = [
            Box::new(self.requests.clone()),
            Box::new(self.latency.clone()),
            Box::new(self.instructions.clone()),
            Box::new(self.runtime.clone()),
            Box::new(self.connections.clone()),
            Box::new(self.sockets.clone()),
            Box::new(self.machines.clone()),
            Box::new(self.pending.clone()),
            Box::new(self.events.clone()),
            Box::new(self.resident.clone()),
        ];
        all.into_iter().try_for_each(|one| self.registry.register(one))
    }

    /// Counters that somebody else counts.
    pub fn with(self, more: impl IntoIterator<Item = IntCounter>) -> prometheus::Result<Metrics> {
        for one in more {
            self.registry.register(Box::new(one))?;
        }
        Ok(self)
    }

    /// `route` is the pattern, not the path: paths would be labels without end.
    pub fn answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        self.requests.with_label_values(&[method, route, &status.to_string()]).inc();
        self.latency.with_label_values(&[method, route]).observe(took.as_secs_f64());
    }

    pub fn ended(&self, instruction: &Instruction) {
        if let Some(outcome) = &instruction.outcome {
            self.runtime.observe(outcome.runtime_ms / 1000.0);
        }
    }

    fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn count(app: &App) {
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
        app.metrics.machines.with_label_values(&[state]).set(count);
    }
    app.metrics.pending.set(pending);
    for (kind, count) in app.host.event_counts() {
        app.metrics.events.with_label_values(&[kind.word().as_str()]).set(count as i64);
    }
    app.metrics.resident.set(resident().unwrap_or(0));
}

/// Bytes of memory this process has.
fn resident() -> Option<i64> {
    const PAGE: i64 = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse::<i64>().ok().map(|pages| pages * PAGE)
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "service",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn show(State(app): State<App>, caller: Caller) -> Result<impl IntoResponse> {
    caller.need(Scope::Host)?;
    count(&app);
    let broke = |error: prometheus::Error| Failure::internal("service.metrics", error.to_string());
    let text = app.metrics.text().map_err(broke)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}
