//! `GET /v1/metrics`: every series for a scraper, with a key requirement of its own.

use axum::extract::State;
use http::Extensions;
use infer::scheduler::Priority;
use parking_lot::Mutex;
use prometheus::IntCounter;

use super::{auth, prelude::*};
use crate::base::metrics::{CONTENT_TYPE, ConnectionOutcome, QueueLabel};

/// Return all metric series in the Prometheus text format.
///
/// Needs no key if SERVICE_METRICS_REQUIRE_API_KEY is false.
#[utoipa::path(
    get, path = "/v1/metrics", operation_id = "getMetrics", tag = "server",
    security(("api_key" = []), ("bearer" = [])),
    responses(
        (status = 200, description = "Every series", content_type = "text/plain", body = String),
        FailureResponse<401>,
        FailureResponse<429>,
        FailureResponse<503>,
    ),
)]
pub async fn scrape(
    State(app): State<Arc<App>>,
    extensions: Extensions,
    headers: HeaderMap,
) -> ApiResult {
    auth::check_scraper(&app, &extensions, &headers)?;
    let reader = Arc::clone(&app);
    let text = app.blocking(move || {
        reader.look();
        reader.metrics.text()
    });
    let text = text.await?.map_err(|_| ApiError::Bug("the metrics cannot be written"))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

impl App {
    /// Samples the gauges, and counters that are kept elsewhere.
    fn look(&self) {
        let metrics = &self.metrics;
        for (state, count) in self.registry.count_by_state() {
            metrics.runs.with_label_values(&[state.as_str()]).set(count as i64);
        }
        metrics.waiting.of(QueueLabel::FileJobs).set(self.runner.waiting() as i64);
        metrics.streams.set(self.streams.open() as i64);
        metrics.search_bytes.set(self.search.memory_bytes() as i64);
        raise(&metrics.search_chunks, self.search.examined());
        metrics.waiting.of(QueueLabel::Analyses).set(self.analyses.waiting() as i64);
        metrics.connections.set(self.limiter.open() as i64);
        for (outcome, count) in [
            (ConnectionOutcome::Accepted, self.limiter.accepted()),
            (ConnectionOutcome::GaveWay, self.limiter.evicted_total()),
            (ConnectionOutcome::Refused, self.limiter.refused()),
        ] {
            raise(metrics.admitted.of(outcome), count);
        }
        self.look_at_inference();
        self.live.observe();
        let timeline = self.registry.timeline();
        metrics.index_bytes.set(timeline.index_bytes() as i64);
        metrics.stored_bytes.set(i64::try_from(self.quota.total()).unwrap_or(i64::MAX));
        metrics.head.set(timeline.head().0 as i64);
        if let Err(error) = metrics.process.look() {
            tracing::warn!(%error, "cannot read process statistics");
        }
    }

    fn look_at_inference(&self) {
        let (metrics, load) = (&self.metrics, self.inference.load());
        metrics.inference_waiting.of(Priority::Live).set(load.waiting_live as i64);
        metrics.inference_waiting.of(Priority::Offline).set(load.waiting_offline as i64);
        let live = load.in_flight - load.in_flight_offline;
        metrics.inference_in_flight.of(Priority::Live).set(live as i64);
        metrics.inference_in_flight.of(Priority::Offline).set(load.in_flight_offline as i64);
        metrics.inference_image_bytes.set(load.image_bytes as i64);
        metrics.inference_tokens_in_flight.set(load.tokens as i64);
    }
}

/// Raises a counter to `count`, which is kept elsewhere, unless a later sample has raised it further.
fn raise(counter: &IntCounter, count: u64) {
    /// Serializes updates: two concurrent scrapes would each add the same difference.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    counter.inc_by(count.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use super::*;

    #[test]
    fn scrapers_at_once_count_nothing_twice() {
        const ROUNDS: u64 = 2000;
        let counter = IntCounter::new("name", "help").expect("valid");
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for count in 1..=ROUNDS {
                        start.wait();
                        raise(&counter, count);
                    }
                });
            }
        });
        assert_eq!(counter.get(), ROUNDS);
    }
}
