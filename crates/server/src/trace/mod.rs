//! OpenTelemetry traces: requests and the phases of instructions, as spans.
//!
//!   request (joins the caller's traceparent)
//!     └─ instruction ─┬─ queue
//!                     ├─ wake        if the machine was not in memory
//!                     ├─ run
//!                     └─ checkpoint  also after the answer
//!
//! Off unless an address is configured. Spans contain names, numbers and times, never code or
//! output, and refused requests create none. If the collector is slow or unreachable, spans wait in
//! a bounded queue; the rest is dropped and counted. No request waits for the collector.

mod endpoint;
mod exporter;
mod instruction;
mod request;

use crate::error::Error;
use crate::metrics::Metrics;
use exporter::{BoundedSpanProcessor, ExportCounts};
use instruction::InstructionSpans;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
pub use request::RequestSpan;
use stasis_machine::{MachineId, ObservedEvent};
use std::sync::Arc;
use std::time::Duration;

/// Maximum time to send spans when the service ends.
const FAREWELL: Duration = Duration::from_secs(5);
const NAME: &str = "stasis";

#[derive(Debug, Clone)]
pub struct Traces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    instructions: InstructionSpans,
}

impl Traces {
    /// Starts to send spans to `endpoint` or to the address in the usual variables; does nothing if
    /// neither is set.
    pub fn start(endpoint: Option<&str>, metrics: &Metrics) -> Result<Option<Traces>, Error> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let Some(place) = endpoint::of_collector(endpoint, variable)? else { return Ok(None) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(&place)
            .with_protocol(Protocol::HttpBinary)
            .build()
            .map_err(|error| Error::Traces(error.to_string()))?;
        let counts = Arc::new(ExportCounts::new(metrics));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BoundedSpanProcessor::new(exporter, counts.clone()))
            .with_resource(resource())
            .build();
        let tracer = provider.tracer(NAME);
        let instructions = InstructionSpans::new(tracer.clone(), counts);
        Ok(Some(Traces(Arc::new(Inner { provider, tracer, instructions }))))
    }

    pub fn see(&self, machine: MachineId, moment: ObservedEvent<'_>) {
        self.0.instructions.see(machine, moment);
    }

    pub fn flush(&self) {
        if let Err(error) = self.0.provider.force_flush() {
            tracing::warn!(%error, "spans were not sent");
        }
    }

    pub fn end(&self) {
        if let Err(error) = self.0.provider.shutdown_with_timeout(FAREWELL) {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// The resource of all spans: the service, and attributes from the usual variables.
fn resource() -> Resource {
    let said = Resource::builder().build();
    let named = said.get(&Key::new("service.name")).is_some_and(|name| {
        // the library's default
        !name.as_str().starts_with("unknown_service")
    });
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    if named { builder.build() } else { builder.with_service_name(NAME).build() }
}
