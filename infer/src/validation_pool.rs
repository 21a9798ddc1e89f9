//! Judges what backends gave: on the spot where that is quick, else on threads of its own.
//!
//! Promises that an answer and a schema as large as they may be stall no socket, that judging ends
//! for whoever waits with its deadline, and that no more is judged at once than there are cores.

use std::{
    sync::Arc,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout_at};

use crate::{
    http::{Lost, Response},
    request_retries::{Judged, Turns},
};

/// Longest response, and longest schema, that are judged on the spot: well under a millisecond.
const QUICK_RESPONSE_BYTES: usize = 16 * 1024;
const QUICK_SCHEMA_BYTES: usize = 4 * 1024;

/// Permits for responses that are judged at once.
#[derive(Debug)]
pub(crate) struct Judges(Arc<Semaphore>);

impl Default for Judges {
    fn default() -> Judges {
        Judges(Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))))
    }
}

impl Judges {
    /// Judges `came` by `turns`; `None` where that is not done by `deadline`.
    pub async fn judge(
        &self,
        mut turns: Turns,
        came: Result<Response, Lost>,
        pause_max: Duration,
        deadline: Instant,
    ) -> Option<(Turns, Judged)> {
        let response_bytes = came.as_ref().map_or(0, |response| response.body.len());
        let schema_bytes = turns.request().schema.as_ref().map_or(0, |schema| schema.bytes());
        if response_bytes <= QUICK_RESPONSE_BYTES && schema_bytes <= QUICK_SCHEMA_BYTES {
            let judged = turns.judge(came, pause_max);
            return Some((turns, judged));
        }
        let judging = async {
            let seat = Arc::clone(&self.0).acquire_owned().await.ok()?;
            // Whoever waits may leave; the seat is free when the work is done.
            let work = spawn_blocking(move || {
                let judged = turns.judge(came, pause_max);
                drop(seat);
                (turns, judged)
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
        timeout_at(deadline.into(), judging).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, config::Api, request_retries::Next};

    fn turns() -> Turns {
        let request = Request {
            model: "m".to_owned(),
            prompt: "?".to_owned(),
            images: Vec::new(),
            max_tokens: None,
            temperature: None,
            timeout: None,
            schema: None,
            primary: None,
            allow_fallback: true,
        };
        Turns::new(Api::Openai(None), Arc::new(request), "m")
    }

    fn reply(length: usize) -> Result<Response, Lost> {
        let text = "x".repeat(length);
        let body = serde_json::json!({"choices": [{"message": {"content": text}}]}).to_string();
        Ok(Response { status: 200, retry_after: None, body: body.into_bytes() })
    }

    #[tokio::test]
    async fn what_is_large_waits_for_a_seat_until_the_deadline() {
        let soon = || Instant::now() + Duration::from_millis(20);
        let long = Instant::now() + Duration::from_secs(60);
        let full = Judges(Arc::new(Semaphore::new(0)));
        let judged = |found: Option<(Turns, Judged)>| found.map(|(_, judged)| judged.next);
        let large = || (turns(), reply(QUICK_RESPONSE_BYTES));
        let (asked, came) = large();
        assert_eq!(judged(full.judge(asked, came, Duration::ZERO, soon()).await), None);
        let quick = judged(full.judge(turns(), reply(1), Duration::ZERO, soon()).await);
        assert!(matches!(quick, Some(Next::Done { .. })), "{quick:?}");
        let ((asked, came), free) = (large(), Judges::default());
        let seats = free.0.available_permits();
        let found = judged(free.judge(asked, came, Duration::ZERO, long).await);
        assert!(matches!(found, Some(Next::Done { .. })), "{found:?}");
        assert_eq!(free.0.available_permits(), seats);
    }
}
