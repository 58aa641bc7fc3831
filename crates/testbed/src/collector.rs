//! A trace collector like users have: it accepts OTLP over HTTP and stores the data.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, PartialEq)]
pub struct CollectedSpan {
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub nanoseconds: (u64, u64),
    pub attributes: HashMap<String, String>,
    pub service: String,
    pub failed: bool,
}

#[derive(Default)]
struct Got {
    spans: Vec<CollectedSpan>,
    bytes: Vec<u8>,
}

#[derive(Clone)]
pub struct Collector {
    pub address: SocketAddr,
    got: Arc<Mutex<Got>>,
}

/// Its behaviour towards clients.
#[derive(Clone, Copy, PartialEq)]
pub enum CollectorMode {
    Good,
    /// Hangs up.
    Rude,
}

impl Collector {
    pub fn start(mood: CollectorMode) -> Collector {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let collector = Collector { address, got: Arc::default() };
        let own = collector.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten().filter(|_| mood == CollectorMode::Good) {
                let own = own.clone();
                std::thread::spawn(move || own.serve(stream));
            }
        });
        collector
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn serve(&self, stream: TcpStream) {
        let mut writer = stream.try_clone().expect("a socket");
        let mut reader = BufReader::new(stream);
        while let Some(body) = request(&mut reader) {
            let message = ExportTraceServiceRequest::decode(&*body).expect("spans");
            let mut got = self.got.lock().expect("a lock");
            got.spans.extend(spans(message));
            got.bytes.extend(body);
            drop(got);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                           content-length: 0\r\n\r\n";
            if writer.write_all(answer).is_err() {
                return;
            }
        }
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.got.lock().expect("a lock").spans.clone()
    }

    /// All spans of a trace so far.
    pub fn trace(&self, id: &str) -> Vec<CollectedSpan> {
        self.spans().into_iter().filter(|span| span.trace == id).collect()
    }

    /// Whether these bytes were sent here, ever.
    pub fn got(&self, bytes: &[u8]) -> bool {
        let got = self.got.lock().expect("a lock");
        got.bytes.windows(bytes.len()).any(|window| window == bytes)
    }
}

/// The body of the next request with spans; none, if there is no request.
fn request(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_lowercase());
    }
    assert!(lines[0].starts_with("post /v1/traces "), "{lines:?}");
    assert!(lines.contains(&"content-type: application/x-protobuf".to_owned()), "{lines:?}");
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn spans(message: ExportTraceServiceRequest) -> Vec<CollectedSpan> {
    let mut all = Vec::new();
    for group in message.resource_spans {
        let about = group.resource.unwrap_or_default().attributes;
        let about = texts(about.into_iter().map(|pair| (pair.key, pair.value)));
        let service = about.get("service.name").cloned().unwrap_or_default();
        let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
        all.extend(spans.map(|span| seen(span, &service)));
    }
    all
}

fn seen(span: Span, service: &str) -> CollectedSpan {
    CollectedSpan {
        name: span.name,
        trace: hex::encode(&span.trace_id),
        id: hex::encode(&span.span_id),
        parent: hex::encode(&span.parent_span_id),
        nanoseconds: (span.start_time_unix_nano, span.end_time_unix_nano),
        attributes: texts(span.attributes.into_iter().map(|pair| (pair.key, pair.value))),
        service: service.to_owned(),
        failed: span.status.is_some_and(|status| status.code == 2),
    }
}

fn texts(
    pairs: impl Iterator<Item = (String, Option<opentelemetry_proto::tonic::common::v1::AnyValue>)>,
) -> HashMap<String, String> {
    let text = |value| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    pairs.map(|(key, value)| (key, text(value.and_then(|value| value.value)))).collect()
}
