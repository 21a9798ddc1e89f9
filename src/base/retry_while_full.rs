//! Retries an operation while a queue is full.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Runs `attempt`, and repeats it with pauses while it fails for lack of room, until `patience` or
/// `cancel` ends. Passes the rest of `patience` to each attempt.
pub async fn retry_while_full<T, E, Attempt: Future<Output = Result<T, E>>>(
    patience: Duration,
    cancel: &CancellationToken,
    lacks_room: impl Fn(&E) -> bool,
    attempt: impl Fn(Duration) -> Attempt,
) -> Result<T, E> {
    let until = Instant::now() + patience;
    let mut pause = PAUSE_FIRST;
    loop {
        let outcome = attempt(until.saturating_duration_since(Instant::now())).await;
        let is_refused = outcome.as_ref().is_err_and(&lacks_room);
        if !is_refused || Instant::now() + pause > until {
            return outcome;
        }
        if cancel.run_until_cancelled(sleep(pause)).await.is_none() {
            return outcome;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    type Outcome = Result<u8, &'static str>;

    #[tokio::test]
    async fn only_a_want_of_room_is_waited_out_and_only_for_so_long() {
        let (long, none) = (Duration::from_secs(600), Duration::ZERO);
        // Outcomes in order, the patience, and the expected outcome and number of attempts.
        let rows: [(&str, &[Outcome], Duration, Outcome, usize); 4] = [
            ("at once", &[Ok(1)], long, Ok(1), 1),
            ("full twice", &[Err("full"), Err("full"), Ok(2)], long, Ok(2), 3),
            ("another error", &[Err("full"), Err("broken"), Ok(3)], long, Err("broken"), 2),
            ("no patience", &[Err("full"), Ok(4)], none, Err("full"), 1),
        ];
        for (name, outcomes, patience, expected, attempts) in rows {
            let made = Cell::new(0);
            let attempt = |_| {
                made.set(made.get() + 1);
                std::future::ready(outcomes[made.get() - 1])
            };
            let cancel = CancellationToken::new();
            let found =
                retry_while_full(patience, &cancel, |error| *error == "full", attempt).await;
            assert_eq!((found, made.get()), (expected, attempts), "{name}");
        }
    }

    #[tokio::test]
    async fn a_cancelled_wait_ends_with_what_was_refused() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let attempt = |_| std::future::ready(Err::<(), _>("full"));
        let found = retry_while_full(Duration::from_secs(600), &cancel, |_| true, attempt).await;
        assert_eq!(found, Err("full"));
    }
}
