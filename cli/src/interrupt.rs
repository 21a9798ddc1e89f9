//! Ctrl-C and SIGTERM: cancels the current work, so that children end first and then the process.

use std::time::{Duration, Instant};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use worker::CancelToken;

use crate::error::{CliError, Exit};

/// Signals within this time of the first count as the same: `timeout` signals a process and its group.
const SAME: Duration = Duration::from_millis(500);

/// Returns a token that the first signal cancels; the second exits the process.
pub fn token() -> Result<CancelToken, CliError> {
    let failed = |source| CliError::Worker(worker::WorkerError::Spawn(source));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let token = CancelToken::new();
    let cancel = token.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut first: Option<Instant> = None;
            for _ in signals.forever() {
                let now = Instant::now();
                if is_another(*first.get_or_insert(now), now) {
                    std::process::exit(Exit::Interrupted as i32);
                }
                cancel.cancel();
            }
        })
        .map_err(failed)?;
    Ok(token)
}

fn is_another(first: Instant, now: Instant) -> bool {
    now.duration_since(first) > SAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_signal_that_comes_twice_at_once_is_one() {
        let first = Instant::now();
        for (later_ms, expected) in [(0, false), (3, false), (500, false), (501, true)] {
            let now = first + Duration::from_millis(later_ms);
            assert_eq!(is_another(first, now), expected, "{later_ms} ms");
        }
    }
}
