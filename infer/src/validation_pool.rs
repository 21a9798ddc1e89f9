//! Validation of responses: inline if small, else on blocking threads.
//!
//! Promises that large answers and schemas stall no socket, that a caller waits no longer than its deadline,
//! and that no more validations run at once than there are cores.

use std::{
    sync::Arc,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout_at};

use crate::{
    http::{HttpResponse, NoResponse},
    request_retries::{EvaluatedResponse, RequestRetries},
    schema::OutputSchema,
};

/// Longest response, and longest schema without patterns, validated inline: well under a millisecond.
const QUICK_RESPONSE_BYTES: usize = 16 * 1024;
const QUICK_SCHEMA_BYTES: usize = 4 * 1024;

/// Permits for concurrent validations.
#[derive(Debug)]
pub(crate) struct ValidationPool(Arc<Semaphore>);

impl Default for ValidationPool {
    fn default() -> ValidationPool {
        ValidationPool(Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))))
    }
}

impl ValidationPool {
    /// Evaluates `received` with `retries`; `None` if that is not done by `deadline`.
    pub async fn validate(
        &self,
        mut retries: RequestRetries,
        received: Result<HttpResponse, NoResponse>,
        pause_max: Duration,
        deadline: Instant,
    ) -> Option<(RequestRetries, EvaluatedResponse)> {
        let response_bytes = received.as_ref().map_or(0, |response| response.body.len());
        let schema = retries.request().schema.as_ref();
        let is_quick =
            |schema: &OutputSchema| schema.bytes() <= QUICK_SCHEMA_BYTES && !schema.has_patterns();
        if response_bytes <= QUICK_RESPONSE_BYTES && schema.is_none_or(|schema| is_quick(schema)) {
            let evaluated = retries.evaluate(received, pause_max);
            return Some((retries, evaluated));
        }
        let validating = async {
            let permit = Arc::clone(&self.0).acquire_owned().await.ok()?;
            // The caller may leave earlier; the permit is released when the work is done.
            let work = spawn_blocking(move || {
                let evaluated = retries.evaluate(received, pause_max);
                drop(permit);
                (retries, evaluated)
            });
            match work.await {
                Ok(done) => Some(done),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is shutting down.
                    Err(_) => None,
                },
            }
        };
        timeout_at(deadline.into(), validating).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InferenceRequest, config::ApiProtocol, request_retries::NextStep};

    fn retries() -> RequestRetries {
        let request = InferenceRequest::new("m", "?");
        RequestRetries::new(ApiProtocol::Openai(None), Arc::new(request), "m")
    }

    fn reply(length: usize) -> Result<HttpResponse, NoResponse> {
        let text = "x".repeat(length);
        let body = serde_json::json!({"choices": [{"message": {"content": text}}]}).to_string();
        Ok(HttpResponse { status: 200, retry_after: None, body: body.into_bytes() })
    }

    #[tokio::test]
    async fn what_is_large_waits_for_a_seat_until_the_deadline() {
        let soon = || Instant::now() + Duration::from_millis(20);
        let long = Instant::now() + Duration::from_secs(60);
        let full = ValidationPool(Arc::new(Semaphore::new(0)));
        let evaluated = |found: Option<(RequestRetries, EvaluatedResponse)>| {
            found.map(|(_, evaluated)| evaluated.next)
        };
        let large = || (retries(), reply(QUICK_RESPONSE_BYTES));
        let (asked, received) = large();
        assert_eq!(evaluated(full.validate(asked, received, Duration::ZERO, soon()).await), None);
        let quick = evaluated(full.validate(retries(), reply(1), Duration::ZERO, soon()).await);
        assert!(matches!(quick, Some(NextStep::Done(_))), "{quick:?}");
        let ((asked, received), free) = (large(), ValidationPool::default());
        let seats = free.0.available_permits();
        let found = evaluated(free.validate(asked, received, Duration::ZERO, long).await);
        assert!(matches!(found, Some(NextStep::Done(_))), "{found:?}");
        assert_eq!(free.0.available_permits(), seats);
    }
}
