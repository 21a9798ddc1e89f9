//! Series of requests to the model backends, by backend; the backends are registered once at the start.

use std::sync::Arc;

use infer::{BackendAttempt, FailureKind, TokenUsage, scheduler::AdmissionError};
use prometheus::{HistogramVec, IntCounterVec, Registry};

use super::labelled::{counters, histograms, labels};

/// Outcome of a successful request to a backend.
const OK: &str = "ok";
const KINDS: [&str; 3] = ["prompt", "completion", "thinking"];

/// Requests to backends, their durations and their tokens.
#[derive(Clone)]
pub struct InferenceMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    tokens: IntCounterVec,
}

impl InferenceMetrics {
    pub(super) fn new(
        registry: &Registry,
        name: &str,
        help: String,
        le: &[f64],
    ) -> InferenceMetrics {
        let took = "Time from a request to a model backend to its whole answer, or its failure.";
        let seconds = "service_inference_request_duration_seconds";
        let (tokens, counted) =
            ("service_inference_tokens_total", "Tokens that backends counted.".to_owned());
        InferenceMetrics {
            requests: counters(registry, name, help, &["provider", "outcome"]),
            seconds: histograms(registry, seconds, took.to_owned(), le, &["provider"]),
            tokens: counters(registry, tokens, counted, &["provider", "kind"]),
        }
    }

    /// Names the backends, once; their series start at zero.
    pub fn name_providers(&self, names: impl Iterator<Item = Arc<str>>) {
        for name in names {
            for outcome in [OK].into_iter().chain(FailureKind::CLASSES) {
                self.requests.with_label_values(&[&*name, outcome]);
            }
            for kind in KINDS {
                self.tokens.with_label_values(&[&*name, kind]);
            }
            self.seconds.with_label_values(&[&*name]);
        }
    }

    /// Counts a request to a backend.
    pub fn attempted(&self, attempt: &BackendAttempt<'_>) {
        let provider = attempt.provider;
        self.requests.with_label_values(&[provider, attempt.outcome()]).inc();
        self.seconds.with_label_values(&[provider]).observe(attempt.latency.as_secs_f64());
        let TokenUsage { prompt, completion, thinking, .. } = attempt.tokens;
        for (kind, count) in KINDS.into_iter().zip([prompt, completion, thinking]) {
            self.tokens.with_label_values(&[provider, kind]).inc_by(count);
        }
    }
}

labels! {
    /// Outcome of the model stage for a chunk of a source.
    pub enum ChunkEnd {
        /// A model answered in the requested format.
        Answered = "answered",
        /// A model answered in plain text although JSON was requested.
        PlainText = "plain_text",
        /// The answer to another chunk was reused.
        Repeated = "repeated",
        Failed = "failed",
    }

    /// Reason that the admission queue refused a request.
    pub enum RefusalLabel {
        QueueFull = "queue_full",
        TimedOut = "timed_out",
        /// The request alone exceeds the limit of work in flight.
        TooLarge = "too_large",
        DaySpent = "day_spent",
    }
}

impl RefusalLabel {
    /// Returns the label of `refused`.
    pub fn of(refused: &AdmissionError) -> RefusalLabel {
        match refused {
            AdmissionError::QueueFull { .. } => RefusalLabel::QueueFull,
            AdmissionError::TimedOut { .. } => RefusalLabel::TimedOut,
            AdmissionError::TooLarge { .. } => RefusalLabel::TooLarge,
            AdmissionError::DaySpent { .. } => RefusalLabel::DaySpent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn attempts_are_counted_by_provider_outcome_and_kind() {
        let registry = Registry::new();
        let metrics = InferenceMetrics::new(&registry, "requests", "Help.".to_owned(), &[1.0]);
        metrics.name_providers(["vllm".into(), "far".into()].into_iter());
        let tokens = TokenUsage { prompt: 5, completion: 3, thinking: 2, total: 8 };
        let refused = FailureKind::Refused;
        for failure in [None, Some(&refused), Some(&refused)] {
            metrics.attempted(&BackendAttempt {
                provider: "vllm",
                model: "m",
                failure,
                latency: Duration::from_millis(10),
                tokens,
            });
        }
        let count = |outcome| metrics.requests.with_label_values(&["vllm", outcome]).get();
        assert_eq!((count("ok"), count("refused"), count("timeout")), (1, 2, 0));
        let tokens = KINDS.map(|kind| metrics.tokens.with_label_values(&["vllm", kind]).get());
        assert_eq!(tokens, [15, 9, 6]);
        assert_eq!(metrics.seconds.with_label_values(&["vllm"]).get_sample_count(), 3);
        assert_eq!(metrics.requests.with_label_values(&["far", "ok"]).get(), 0);
    }
}
