//! The running server: accepts connections; on shutdown closes its parts in reverse order of their start.

mod listening;
mod signals;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use timeline::LogState;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use transport::ShutdownSignals;

use crate::{
    api::{App, DRAIN},
    base::{blocking::blocking, every, stats},
};
use listening::BoundSockets;
pub(crate) use listening::{Http3Config, ListenError, ServingConfig};
pub use signals::Signals;

/// Time after the end of the drain in which the answers of cancelled jobs may still be sent.
const ANSWERS: Duration = Duration::from_secs(3);
/// Interval of the check for idle runs and of the log's health.
const SWEEP: Duration = Duration::from_secs(1);

/// A server that accepts connections.
pub struct Server {
    app: Arc<App>,
    accepting: Vec<JoinHandle<usize>>,
    /// Stops the background tasks, such as webhooks, export, mirror and retention.
    telling: CancellationToken,
    ends: ShutdownSignals,
}

impl Server {
    /// Binds the sockets and starts to accept connections.
    pub async fn start(app: Arc<App>, serving: &ServingConfig) -> Result<Server, ListenError> {
        let listening = BoundSockets::bind(app.settings.bind_addr, serving)?;
        if let Err(error) = app.runner.tell_interrupted().await {
            // The runs of these jobs expire, or the next start records the interruption.
            tracing::error!(%error, "could not record interrupted jobs");
        }
        app.live.tell_interrupted().await;
        tracing::info!(udp = %app.live.port.local_addr(), "live video is received");
        let ends = ShutdownSignals::default();
        let accepting = listening.serve(&app, &ends);
        tokio::spawn(Arc::clone(&app.streams).run());
        let telling = CancellationToken::new();
        app.deliveries.start(&telling);
        app.inference.start(telling.clone());
        tokio::spawn(Arc::clone(&app.retention).run(telling.clone()));
        tokio::spawn(Arc::clone(&app.idempotency).run(telling.clone()));
        tokio::spawn(Arc::clone(&app.runner).run(telling.clone()));
        tokio::spawn(telling.clone().run_until_cancelled_owned(sweep(Arc::clone(&app))));
        tokio::spawn(telling.clone().run_until_cancelled_owned(count_minutes(Arc::clone(&app))));
        Ok(Server { app, accepting, telling, ends })
    }

    /// Waits for jobs and then requests to finish, until the drain ends or `hurry`; closes the log.
    ///
    /// Connections are accepted as long as jobs run, so that clients can watch and stop them.
    /// Returns true if everything that was acknowledged is on disk.
    pub async fn drain(self, hurry: CancellationToken) -> bool {
        let end = tokio::time::Instant::now() + DRAIN;
        let patience = || async {
            tokio::select! {
                () = tokio::time::sleep_until(end) => {}
                () = hurry.cancelled() => {}
            }
        };
        self.app.draining.cancel();
        tokio::join!(self.app.live.drain(patience()), self.app.runner.drain(patience()));
        // Closed after the jobs, because the streams report how jobs ended.
        self.app.streams.close();
        self.ends.stop.cancel();
        let cut = async {
            patience().await;
            tokio::time::sleep(ANSWERS).await;
            self.ends.cut.cancel();
        };
        let drained = async {
            // All are waited for, also where one died.
            let mut cut = Ok::<usize, JoinError>(0);
            for accepting in self.accepting {
                let ended = accepting.await;
                cut = cut.and_then(|cut| Ok(cut + ended?));
            }
            cut
        };
        let mut drained = std::pin::pin!(drained);
        let drained = tokio::select! {
            drained = drained.as_mut() => drained,
            () = cut => drained.await,
        };
        match drained {
            Ok(0) => tracing::info!("every connection finished"),
            Ok(cut) => tracing::warn!(cut, "connections were cut"),
            Err(error) => tracing::error!(%error, "an accept loop died"),
        }
        self.telling.cancel();
        let timeline = self.app.registry.timeline().clone();
        let healthy = timeline.state() == LogState::Writable;
        let inference = Arc::clone(&self.app.inference);
        let closing = move || {
            inference.flush();
            timeline.close();
        };
        let closed = tokio::task::spawn_blocking(closing).await;
        healthy && closed.is_ok()
    }

    /// Resolves when the log has become read-only after a failure.
    pub async fn poisoned(&self) {
        let mut tick = every(SWEEP);
        loop {
            tick.tick().await;
            if let LogState::Poisoned { reason } = self.app.registry.timeline().state() {
                tracing::error!(reason, "the log is read-only");
                return;
            }
        }
    }
}

/// Records the counts of each minute, and returns a burst's freed memory to the system.
async fn count_minutes(app: Arc<App>) {
    let mut tick = every(stats::EVERY);
    loop {
        tick.tick().await;
        let counting = Arc::clone(&app);
        let counted = blocking(move || {
            worker::release_free_memory();
            counting.tables.stats.add(counting.counted());
        });
        if counted.await.is_err() {
            tracing::error!("counting a minute died");
        }
    }
}

async fn sweep(app: Arc<App>) {
    let mut tick = every(SWEEP);
    loop {
        tick.tick().await;
        app.tables.growth.note(Instant::now(), app.quota.total());
        app.registry.end_idle(Instant::now()).await;
    }
}
