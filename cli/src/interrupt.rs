//! Ctrl-C and SIGTERM: the work in hand is cancelled, children end, then the process does.

use std::time::{Duration, Instant};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use worker::CancelToken;

use crate::error::{CliError, Exit};

/// Signals so close to the first are the same one: `timeout` sends it to a process and to its group.
const SAME: Duration = Duration::from_millis(500);

/// Cancels `cancel` at the first signal; ends the process at the second, for whoever cannot wait.
pub fn on_signal(cancel: &CancelToken) -> Result<(), CliError> {
    let failed = |source| CliError::Worker(worker::WorkerError::Spawn(source));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let cancel = cancel.clone();
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
    Ok(())
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
