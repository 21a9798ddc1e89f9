//! Object store of stills and columns: uploads waiting files, and evicts stills beyond the cache limit.
//!
//! Recordings upload their files before their events; this task uploads files that the store did not take
//! then. An unavailable store is retried with backoff, and each kind of failure is logged once.

use std::{sync::Arc, time::Duration};

use objects::{Credentials, Objects, Place, SetupError, Writer};
use timeline::{BlobStore, RemoteFault, Standing, Timeline, TimelineError};
use tokio_util::sync::CancellationToken;

use crate::base::{
    backoff::{Backoff, jitter},
    blocking::{TaskPanicked, blocking},
    metrics::Metrics,
};

/// Interval of turns.
const EVERY: Duration = Duration::from_secs(1);
/// Delays after failed turns.
const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, longest: Duration::from_secs(15) };

#[derive(Clone, Debug)]
pub struct Access {
    pub place: Place,
    pub credentials: Credentials,
}

/// Settings of the object store for stills and columns.
#[derive(Clone, Debug)]
pub struct Settings {
    pub access: Access,
    /// Bytes of stills kept on the local disk.
    pub cache_bytes: u64,
}

/// Opens an object store for `writer` and counts its calls; the store may be unavailable.
pub fn open(
    access: &Access,
    writer: Writer,
    tls: rustls::ClientConfig,
    metrics: &Arc<Metrics>,
) -> Result<Objects, SetupError> {
    let counted = Arc::clone(metrics);
    let observe = move |operation, outcome: Result<(), RemoteFault>, took: Duration| {
        counted.object_store_calls.of(operation).inc();
        counted.object_store_seconds.observe(took.as_secs_f64());
        if let Err(fault) = outcome {
            counted.object_store_failures.of(fault).inc();
        }
    };
    let Access { place, credentials } = access.clone();
    Objects::open(place, writer, credentials, tls, Arc::new(observe))
}

#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Store(#[from] TimelineError),
    #[error(transparent)]
    Died(#[from] TaskPanicked),
}

impl TurnError {
    /// Returns the class of the failure; `None` if the object store is not its cause.
    fn fault(&self) -> Option<RemoteFault> {
        match self {
            TurnError::Store(TimelineError::Remote(error)) => Some(error.fault),
            _ => None,
        }
    }
}

/// Uploads files that the object store has not taken yet.
pub struct Sender {
    pub blobs: BlobStore,
    pub timeline: Timeline,
    pub metrics: Arc<Metrics>,
}

impl Sender {
    /// Runs turns until `stop`; returns at once if there is no object store.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        if self.blobs.standing().is_none() {
            return;
        }
        self.count();
        let (mut failures, mut told) = (0, None);
        loop {
            let delay = match self.turn().await {
                Ok(has_more) => {
                    if failures > 0 {
                        tracing::info!(failures, "the object store takes files again");
                    }
                    (failures, told) = (0, None);
                    if has_more { Duration::ZERO } else { EVERY }
                }
                Err(error) => {
                    if error.fault() == Some(RemoteFault::NotKept) {
                        // Detected from answers of calls that succeeded: no failed call has counted it.
                        self.metrics.object_store_failures.of(RemoteFault::NotKept).inc();
                    }
                    // Logged once per kind of failure during an outage; the counters have the rest.
                    if told != Some(error.fault()) {
                        tracing::warn!(%error, "upload to the object store failed; retrying");
                    }
                    told = Some(error.fault());
                    failures += 1;
                    RETRY.delay(failures, jitter())
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return;
            }
        }
    }

    async fn turn(self: &Arc<Self>) -> Result<bool, TurnError> {
        let sender = Arc::clone(self);
        Ok(blocking(move || {
            // Each part runs even if the other fails.
            let (stills, columns) = (sender.blobs.turn(), sender.timeline.columns_turn());
            sender.count();
            Ok::<_, TimelineError>(stills? | columns?)
        })
        .await??)
    }

    fn count(&self) {
        let (stills, columns) = (self.blobs.standing(), self.timeline.columns_standing());
        let unsent = |standing: Option<Standing>| standing.map_or(0, |standing| standing.unsent);
        self.metrics.object_store_unsent.set((unsent(stills) + unsent(columns)) as i64);
        self.metrics.object_store_cache_bytes.set(stills.map_or(0, |stills| stills.bytes) as i64);
    }
}
