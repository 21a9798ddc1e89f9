//! Process signals: SIGTERM and SIGINT end the server, SIGHUP reloads the label maps.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Server;

/// Handlers of SIGTERM, SIGINT and SIGHUP.
pub struct Signals {
    ends: Ends,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers.
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
    /// Serves until a signal or a failed log ends the server; a second signal ends jobs at once.
    ///
    /// Returns true if everything that was acknowledged is on disk.
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

    /// Reloads the label maps at every SIGHUP; never returns.
    async fn reload(&self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            self.app.labels.reload();
        }
        std::future::pending().await
    }
}
