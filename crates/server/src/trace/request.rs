//! The span of a request: from its admission to the head of the response.

use super::Traces;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span, SpanContext, SpanKind, Status, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::Span as SdkSpan;
use stasis_machine::TraceContext;

const PARENT: &str = "traceparent";

pub struct RequestSpan(SdkSpan);

/// The caller's trace headers.
struct Said<'a> {
    parent: &'a str,
    state: Option<&'a str>,
}

impl Extractor for Said<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            PARENT => Some(self.parent),
            "tracestate" => self.state,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![PARENT, "tracestate"]
    }
}

/// The trace to join; a new one, if the headers are invalid.
fn joined(said: &Said<'_>) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), said)
}

/// The trace an instruction joins.
pub fn caused(cause: Option<&TraceContext>) -> Context {
    match cause {
        Some(cause) => joined(&Said { parent: cause.as_str(), state: None }),
        None => Context::new(),
    }
}

fn of_headers(headers: &HeaderMap) -> Context {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match text(PARENT) {
        Some(parent) => joined(&Said { parent, state: text("tracestate") }),
        None => Context::new(),
    }
}

/// As a `traceparent` for the next service.
fn written(of: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", of.trace_id(), of.span_id(), of.trace_flags())
}

impl Traces {
    /// `route` is the pattern: a path would be an unbounded name.
    pub fn request(&self, request: &Request, route: &str, account: &str, id: &str) -> RequestSpan {
        let method = request.method().as_str().to_owned();
        let attributes = [
            KeyValue::new("http.request.method", method.clone()),
            KeyValue::new("http.route", route.to_owned()),
            KeyValue::new("stasis.account", account.to_owned()),
            KeyValue::new("stasis.request", id.to_owned()),
        ];
        let tracer = &self.0.tracer;
        let builder = tracer.span_builder(format!("{method} {route}"));
        let builder = builder.with_kind(SpanKind::Server).with_attributes(attributes);
        RequestSpan(builder.start_with_context(tracer, &of_headers(request.headers())))
    }
}

impl RequestSpan {
    /// The trace context of this request's instructions.
    pub fn cause(&self) -> Option<TraceContext> {
        TraceContext::new(&written(self.0.span_context()))
    }

    /// The response names its trace.
    pub fn answered(mut self, response: &mut Response) {
        let status = response.status();
        self.0.set_attribute(KeyValue::new("http.response.status_code", status.as_u16() as i64));
        if status.is_server_error() {
            self.0.set_status(Status::error(status.as_str().to_owned()));
        }
        if let Ok(parent) = HeaderValue::try_from(written(self.0.span_context())) {
            response.headers_mut().insert(PARENT, parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TraceContextExt;

    #[test]
    fn only_what_is_a_traceparent_is_joined() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = |text: &str| {
            let context = caused(TraceContext::new(text).as_ref());
            let found = context.span().span_context().clone();
            found.is_valid().then(|| written(&found))
        };
        assert_eq!(read(good).as_deref(), Some(good));
        let unsampled = good.replace("-01", "-00");
        assert_eq!(read(&unsampled), Some(unsampled));
        let nobody = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for bad in ["", "x", nobody, &good[..40], &good.replace('f', "g"), &good.repeat(3)] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
