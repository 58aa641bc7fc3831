//! The service's measurements. Each is reported here once and goes to both libraries:
//!
//!   middleware ─ requests, answers ────┐                ┌─► metrics: counts, times (Prometheus)
//!                                      ├─► Instruments ─┤
//!   machines ── moments (`Observer`) ──┘                └─► trace: spans (OpenTelemetry), if a
//!                                                           collector is named

use crate::error::Error;
use crate::metrics::Metrics;
use crate::trace::{RequestSpan, Traces};
use axum::extract::Request;
use axum::response::Response;
use stasis_machine::{MachineId, ObservedEvent, Observer, TraceContext};
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Clone)]
pub struct Instruments(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    metrics: Metrics,
    traces: Option<Traces>,
}

impl Instruments {
    /// Counts only.
    pub fn plain() -> Result<Instruments, Error> {
        Ok(Instruments(Arc::new(Inner { metrics: metrics()?, traces: None })))
    }

    /// Counts, and sends spans to `endpoint` with the usual path, or to the address in
    /// OpenTelemetry's variables; sends none if neither names a collector.
    pub fn start(endpoint: Option<&str>) -> Result<Instruments, Error> {
        let metrics = metrics()?;
        let traces = Traces::start(endpoint, &metrics)?;
        Ok(Instruments(Arc::new(Inner { metrics, traces })))
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// A request arrived. `route` is the pattern, not the path: paths would be unbounded labels.
    pub(crate) fn request(&self, method: &str, route: &str) -> RequestWatch {
        let (method, route) = (method.to_owned(), route.to_owned());
        RequestWatch { own: self.clone(), method, route, start: Instant::now(), span: None }
    }

    /// Flushes queued spans. Not for serving threads: it waits for the collector.
    pub fn flush(&self) {
        self.0.traces.iter().for_each(Traces::flush);
    }

    /// Flushes queued spans, and ends.
    pub(crate) fn end(&self) {
        self.0.traces.iter().for_each(Traces::end);
    }
}

fn metrics() -> Result<Metrics, Error> {
    Metrics::new().map_err(|error| Error::Io {
        doing: "set up the metrics".into(),
        source: std::io::Error::other(error.to_string()),
    })
}

impl Observer for Instruments {
    fn see(&self, machine: MachineId, moment: ObservedEvent<'_>) {
        self.0.metrics.see(&moment);
        if let Some(traces) = &self.0.traces {
            traces.see(machine, moment);
        }
    }
}

/// A request under way.
pub struct RequestWatch {
    own: Instruments,
    method: String,
    route: String,
    start: Instant,
    span: Option<RequestSpan>,
}

impl RequestWatch {
    /// It was authorized. Other requests get no span, so that strangers send nothing to a
    /// collector.
    pub fn admitted(&mut self, request: &Request, account: &str, id: &str) {
        let traces = self.own.0.traces.as_ref();
        self.span = traces.map(|traces| traces.request(request, &self.route, account, id));
    }

    /// The trace context of this request's instructions.
    pub fn cause(&self) -> Option<TraceContext> {
        self.span.as_ref().and_then(RequestSpan::cause)
    }

    /// The head of its response is ready; the duration in milliseconds.
    pub fn answered(self, response: &mut Response) -> f64 {
        let took = self.start.elapsed();
        let status = response.status().as_u16();
        self.own.0.metrics.answered(&self.method, &self.route, status, took);
        if let Some(span) = self.span {
            span.answered(response);
        }
        took.as_secs_f64() * 1000.0
    }
}
