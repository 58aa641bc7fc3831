//! The span exporter: a bounded queue, a thread, and counters. Creating a span never blocks.

use crate::metrics::Metrics;
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use prometheus::IntCounter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Spans queued or being sent.
const MOST: usize = 8192;

#[derive(Debug)]
pub struct ExportCounts {
    pub sent: IntCounter,
    pub dropped: IntCounter,
    waiting: AtomicUsize,
    /// Whether the last batch failed: logged once, not for every batch.
    lost_touch: AtomicBool,
}

impl ExportCounts {
    pub fn new(metrics: &Metrics) -> ExportCounts {
        ExportCounts {
            sent: metrics.spans_sent.clone(),
            dropped: metrics.spans_dropped.clone(),
            waiting: AtomicUsize::new(0),
            lost_touch: AtomicBool::new(false),
        }
    }

    fn left(&self, count: usize, result: &OTelSdkResult) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.sent.inc_by(count as u64);
                if self.lost_touch.swap(false, Ordering::Relaxed) {
                    tracing::info!("the trace collector is reachable again");
                }
            }
            Err(error) => {
                self.dropped.inc_by(count as u64);
                if !self.lost_touch.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the trace collector refuses spans; they are dropped");
                }
            }
        }
    }
}

/// The library's queue drops spans silently, so it is never allowed to fill up.
#[derive(Debug)]
pub struct BoundedSpanProcessor {
    queue: BatchSpanProcessor,
    counts: Arc<ExportCounts>,
}

impl BoundedSpanProcessor {
    pub fn new(
        exporter: impl SpanExporter + 'static,
        counts: Arc<ExportCounts>,
    ) -> BoundedSpanProcessor {
        let config = BatchConfigBuilder::default().with_max_queue_size(MOST).build();
        let exporter = Counted { exporter, counts: counts.clone() };
        let queue = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        BoundedSpanProcessor { queue, counts }
    }
}

impl SpanProcessor for BoundedSpanProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.counts.waiting.fetch_add(1, Ordering::Relaxed) < MOST {
            return self.queue.on_end(span);
        }
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
        self.counts.dropped.inc();
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    counts: Arc<ExportCounts>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.exporter.export(batch).await;
        self.counts.left(count, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use std::sync::{Condvar, Mutex};

    /// A collector that accepts nothing until it is told to.
    #[derive(Debug, Default, Clone)]
    struct Slow(Arc<(Mutex<bool>, Condvar)>);

    impl Slow {
        fn open(&self) {
            *self.0.0.lock().expect("a lock") = true;
            self.0.1.notify_all();
        }
    }

    impl SpanExporter for Slow {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            let shut = self.0.0.lock().expect("a lock");
            drop(self.0.1.wait_while(shut, |open| !*open).expect("a lock"));
            Ok(())
        }
    }

    #[test]
    fn every_span_is_sent_or_counted_as_dropped() {
        let metrics = Metrics::new().expect("counters");
        let (slow, counts) = (Slow::default(), Arc::new(ExportCounts::new(&metrics)));
        let way = BoundedSpanProcessor::new(slow.clone(), counts.clone());
        let provider = SdkTracerProvider::builder().with_span_processor(way).build();
        let tracer = provider.tracer("test");
        (0..MOST + 100).for_each(|_| drop(tracer.start("span")));
        assert_eq!((counts.sent.get(), counts.dropped.get()), (0, 100));
        slow.open();
        provider.shutdown_with_timeout(Duration::from_secs(120)).expect("an open way");
        assert_eq!((counts.sent.get(), counts.dropped.get()), (MOST as u64, 100));
    }
}
