//! Spans to a collector over OTLP/gRPC, from a bounded queue and a thread of its own.
//!
//! Promises that a collector that is slow, gone or was never there delays nobody: spans that find
//! no room, or that it does not take, are dropped and counted. Starts no span itself.

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

/// Spans that wait for the collector.
const QUEUE_SPANS: usize = 8192;
/// Most spans of one message to it.
const BATCH_SPANS: usize = 512;
/// Longest wait of the first span of a message for others.
const LINGER: Duration = Duration::from_millis(500);
/// Time for the collector to take one message.
const EXPORT: Duration = Duration::from_secs(5);
/// Time for it to take the queued ones when the process ends.
const FLUSH: Duration = Duration::from_secs(2);

/// Exports until dropped, and then what still waits within two seconds.
#[must_use]
pub(super) struct OtlpExporter {
    closing: CancellationToken,
    done: mpsc::Receiver<()>,
}

impl Drop for OtlpExporter {
    fn drop(&mut self) {
        self.closing.cancel();
        // Late or not, the process ends.
        self.done.recv_timeout(FLUSH).ok();
    }
}

/// Starts the export to `endpoint`, and makes the tracer whose spans it takes.
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
    // A runtime of its own: a collector's TLS and retries take no time from requests.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("otlp".to_owned()).spawn(move || {
        runtime.block_on(outlet.run(waiting));
        // Nobody waits after the time that an end has.
        tell.send(()).ok();
    })?;
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_resource(resource)
        .with_span_processor(Inlet { spans, metrics: Arc::clone(metrics) })
        .build();
    Ok((provider.tracer("sightline"), OtlpExporter { closing, done }))
}

/// Makes `span` a child of the span that the caller's `traceparent` names, if it names one.
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
    // Fails only where no layer exports the span.
    span.set_parent(parent).ok();
}

/// Exporter of spans that have ended: into the queue, if there is one.
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

/// The other end of the queue.
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

    /// The next spans; none only when the process ends.
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
            // Over or not, what came so far goes.
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
