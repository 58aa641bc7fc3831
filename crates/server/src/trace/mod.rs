//! Traces for OpenTelemetry: requests and the way of instructions, as spans.
//!
//!   request (joins the caller's traceparent)
//!     └─ instruction ─┬─ queue
//!                     ├─ wake        if the machine was not in memory
//!                     ├─ run
//!                     └─ checkpoint  also after the answer
//!
//! Off unless an address is named. Spans hold names, numbers and times, never code or output, and
//! none comes from a request that was not let in. Whoever collects them may be slow or gone: spans
//! wait within a bound, what does not fit or cannot be sent is dropped and counted, and no request
//! waits for that.

mod instruction;
mod place;
mod request;
mod way;

use crate::error::Error;
use instruction::Instructions;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use prometheus::IntCounter;
pub use request::RequestSpan;
use stasis_machine::Observer;
use std::sync::Arc;
use std::time::Duration;
use way::{Bounded, Counts};

/// How long spans may take that are sent when the service ends.
const FAREWELL: Duration = Duration::from_secs(5);
const NAME: &str = "stasis";

#[derive(Debug, Clone)]
pub struct Traces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    counts: Arc<Counts>,
    instructions: Arc<Instructions>,
}

impl Traces {
    /// Starts to send spans to `endpoint`, to which the usual path is added, or to where the usual
    /// variables say; nothing if nobody wants any.
    pub fn start(endpoint: Option<&str>) -> Result<Option<Traces>, Error> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let Some(place) = place::of_collector(endpoint, variable)? else { return Ok(None) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(&place)
            .with_protocol(Protocol::HttpBinary)
            .build()
            .map_err(|error| Error::Traces(error.to_string()))?;
        let counts = Arc::new(Counts::new().map_err(|error| Error::Traces(error.to_string()))?);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Bounded::new(exporter, counts.clone()))
            .with_resource(resource())
            .build();
        let tracer = provider.tracer(NAME);
        let instructions = Arc::new(Instructions::new(tracer.clone(), counts.clone()));
        Ok(Some(Traces(Arc::new(Inner { provider, tracer, counts, instructions }))))
    }

    /// Who is to watch the machines.
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.0.instructions.clone()
    }

    /// Sends what waits now. Not for threads that serve: it waits for the collector.
    pub fn flush(&self) {
        if let Err(error) = self.0.provider.force_flush() {
            tracing::warn!(%error, "spans were not sent");
        }
    }

    /// Sends what waits, and ends.
    pub(crate) fn end(&self) {
        if let Err(error) = self.0.provider.shutdown_with_timeout(FAREWELL) {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }

    pub(crate) fn counters(&self) -> [IntCounter; 2] {
        [self.0.counts.sent.clone(), self.0.counts.dropped.clone()]
    }
}

/// What all spans have in common: the service, and what the usual variables say of it.
fn resource() -> Resource {
    let said = Resource::builder().build();
    let named = said.get(&Key::new("service.name")).is_some_and(|name| {
        // what the library says when nobody said anything
        !name.as_str().starts_with("unknown_service")
    });
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    if named { builder.build() } else { builder.with_service_name(NAME).build() }
}
