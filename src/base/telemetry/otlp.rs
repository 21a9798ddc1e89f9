//! Exports spans to a collector over OTLP/gRPC, with a bounded queue and a thread of its own.
//!
//! A slow or unreachable collector delays no request: spans that do not fit into the queue, or that
//! the collector does not accept, are dropped and counted. Creates no spans itself.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use http::HeaderMap;
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator},
    trace::TracerProvider,
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{
        Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
    },
};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::base::metrics::{Metrics, SpanOutcome};

/// Maximum number of spans in the queue.
const QUEUE_SPANS: usize = 8192;
/// Maximum number of spans in one export message.
const BATCH_SPANS: usize = 512;
/// Maximum time that the first span of a message waits for more.
const LINGER: Duration = Duration::from_millis(500);
/// Timeout of one export.
const EXPORT: Duration = Duration::from_secs(5);
/// Timeout of the last export, when the process ends.
const FLUSH: Duration = Duration::from_secs(2);

/// Handle of the exporter; on drop, waits up to two seconds for the queued spans to be exported.
#[must_use]
pub(super) struct OtlpExporter {
    closing: CancellationToken,
    done: mpsc::Receiver<()>,
}

impl Drop for OtlpExporter {
    fn drop(&mut self) {
        self.closing.cancel();
        // A timeout is ignored: the process ends anyway.
        self.done.recv_timeout(FLUSH).ok();
    }
}

/// Starts the export to `endpoint`; returns the tracer of the exported spans and the handle.
pub(super) fn start(
    endpoint: &str,
    metrics: &Arc<Metrics>,
) -> io::Result<(SdkTracer, OtlpExporter)> {
    let (spans, waiting) = channel(QUEUE_SPANS);
    let (tell, done) = mpsc::sync_channel(1);
    let closing = CancellationToken::new();
    let resource = Resource::builder_empty()
        .with_service_name("sightline")
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let outlet = Outlet {
        endpoint: endpoint.to_owned(),
        resource: resource.clone(),
        metrics: Arc::clone(metrics),
        closing: closing.clone(),
    };
    // A separate runtime, so that TLS and retries take no time from requests.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("otlp".to_owned()).spawn(move || {
        runtime.block_on(outlet.run(waiting));
        // The receiver is gone if the wait on drop has timed out.
        tell.send(()).ok();
    })?;
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_resource(resource)
        .with_span_processor(Inlet { spans, metrics: Arc::clone(metrics) })
        .build();
    Ok((provider.tracer("sightline"), OtlpExporter { closing, done }))
}

/// Makes `span` a child of the span in the caller's `traceparent` header, if there is one.
pub fn continue_trace(span: &tracing::Span, headers: &HeaderMap) {
    struct Headers<'a>(&'a HeaderMap);
    impl Extractor for Headers<'_> {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.get(name)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(http::HeaderName::as_str).collect()
        }
    }
    if span.is_disabled() || !headers.contains_key("traceparent") {
        return;
    }
    let parent =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    // Fails only if no layer exports the span.
    span.set_parent(parent).ok();
}

/// Span processor that puts ended spans into the queue.
#[derive(Debug)]
struct Inlet {
    spans: Sender<SpanData>,
    metrics: Arc<Metrics>,
}

impl SpanProcessor for Inlet {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.metrics.spans.of(SpanOutcome::Dropped).inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Consumer of the queue, which exports the spans.
struct Outlet {
    endpoint: String,
    resource: Resource,
    metrics: Arc<Metrics>,
    closing: CancellationToken,
}

impl Outlet {
    async fn run(self, mut waiting: Receiver<SpanData>) {
        let built = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&self.endpoint)
            .with_timeout(EXPORT)
            .build();
        let mut exporter = match built {
            Ok(exporter) => exporter,
            Err(error) => {
                tracing::error!(%error, "spans are not exported");
                return;
            }
        };
        exporter.set_resource(&self.resource);
        let mut is_taken = true;
        loop {
            let batch = self.batch(&mut waiting).await;
            let (count, ends) = (batch.len() as u64, self.closing.is_cancelled());
            if count == 0 && ends {
                return;
            }
            let limit = if ends { FLUSH } else { EXPORT };
            let sent = timeout(limit, exporter.export(batch)).await;
            let taken = matches!(sent, Ok(Ok(())));
            let end = if taken { SpanOutcome::Exported } else { SpanOutcome::Dropped };
            self.metrics.spans.of(end).inc_by(count);
            match (is_taken, taken) {
                (true, false) => {
                    tracing::warn!("the trace collector takes no spans: dropping them")
                }
                (false, true) => tracing::info!("the trace collector takes spans again"),
                _ => {}
            }
            is_taken = taken;
        }
    }

    /// Returns the next batch of spans; empty only when the process ends.
    async fn batch(&self, waiting: &mut Receiver<SpanData>) -> Vec<SpanData> {
        let mut batch = Vec::with_capacity(BATCH_SPANS);
        let first = waiting.recv_many(&mut batch, BATCH_SPANS);
        if self.closing.run_until_cancelled(first).await.is_some() {
            let more = async {
                while batch.len() < BATCH_SPANS {
                    let room = BATCH_SPANS - batch.len();
                    waiting.recv_many(&mut batch, room).await;
                }
            };
            // Timeout or shutdown: the spans received so far are sent.
            timeout(LINGER, self.closing.run_until_cancelled(more)).await.ok();
        } else {
            while batch.len() < BATCH_SPANS
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            }
        }
        batch
    }
}
