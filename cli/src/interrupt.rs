//! Ctrl-C and SIGTERM: the work in hand is cancelled, children end, then the process does.

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use worker::CancelToken;

use crate::error::{CliError, Exit};

/// Cancels `cancel` at the first signal; ends the process at the second, for whoever cannot wait.
pub fn on_signal(cancel: &CancelToken) -> Result<(), CliError> {
    let failed = |source| CliError::Worker(worker::WorkerError::Spawn(source));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let cancel = cancel.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                if cancel.is_cancelled() {
                    std::process::exit(Exit::Interrupted as i32);
                }
                cancel.cancel();
            }
        })
        .map_err(failed)?;
    Ok(())
}
