//! Signals to the process: two that end the server, and one that has it read its label maps again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Server;

/// Signals that are caught from now on.
pub struct Signals {
    ends: Ends,
    hangup: Signal,
}

impl Signals {
    /// Catches them.
    pub fn catch() -> io::Result<Signals> {
        let ends = Ends(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { ends, hangup: signal(SignalKind::hangup())? })
    }
}

struct Ends(Signal, Signal);

impl Ends {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.0.recv() => "SIGTERM",
            _ = self.1.recv() => "SIGINT",
        }
    }
}

impl Server {
    /// Serves until a signal ends it, or its log takes no more; a second signal ends jobs at once.
    ///
    /// True when everything that was acknowledged is on disk.
    pub async fn run(self, signals: Signals) -> bool {
        let Signals { mut ends, hangup } = signals;
        tokio::select! {
            name = ends.next() => tracing::info!("{name}: draining"),
            () = self.poisoned() => {}
            () = self.reload(hangup) => {}
        }
        let hurry = CancellationToken::new();
        let again = async {
            let name = ends.next().await;
            tracing::warn!("{name} again: ending jobs now");
            hurry.cancel();
            std::future::pending().await
        };
        let intact = tokio::select! {
            intact = self.drain(hurry.clone()) => intact,
            never = again => never,
        };
        tracing::info!(intact, "stopped");
        intact
    }

    /// Reads the label maps again at every SIGHUP, and never ends.
    async fn reload(&self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            self.app.labels.reload();
        }
        std::future::pending().await
    }
}
