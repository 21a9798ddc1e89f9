//! Ctrl-C, SIGTERM and a terminal that goes away: cancels the current work, so that children end first and then
//! the process.

use std::time::{Duration, Instant};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use worker::CancelToken;

use crate::error::{CliError, Exit};

/// Signals within this time of the first count as the same: `timeout` signals a process and its group.
const SAME: Duration = Duration::from_millis(500);

/// Returns a token that the first signal cancels; the second exits the process.
pub fn token() -> Result<CancelToken, CliError> {
    let failed = |source| CliError::Worker(worker::WorkerError::Spawn(source));
    let mut caught = vec![SIGINT, SIGTERM];
    // `nohup` has it ignored, so that the command outlives its terminal.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !is_ignored(&status, SIGHUP) {
        caught.push(SIGHUP);
    }
    let mut signals = Signals::new(caught).map_err(failed)?;
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

/// Returns true if a process of this status in `/proc` ignores the signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

fn is_another(first: Instant, now: Instant) -> bool {
    now.duration_since(first) > SAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_ignored_as_the_status_says() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        for (status, signal, expected) in
            [(status, 1, true), (status, 2, false), (status, 13, true), ("", 1, false)]
        {
            assert_eq!(is_ignored(status, signal), expected, "{signal} of {status:?}");
        }
    }

    #[test]
    fn one_signal_that_comes_twice_at_once_is_one() {
        let first = Instant::now();
        for (later_ms, expected) in [(0, false), (3, false), (500, false), (501, true)] {
            let now = first + Duration::from_millis(later_ms);
            assert_eq!(is_another(first, now), expected, "{later_ms} ms");
        }
    }
}
