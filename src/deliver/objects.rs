//! Object store of stills and columns: what waits for it is sent, and stills beyond the cache leave.
//!
//! Recordings send what they store before their events; this sends what the store did not take then. A store
//! that is away is asked less and less often, and each kind of failure is told of once.

use std::{sync::Arc, time::Duration};

use objects::{Credentials, Objects, Place, SetupError, Writer};
use timeline::{Backing, BlobStore, RemoteFault, Standing, Timeline, TimelineError};
use tokio_util::sync::CancellationToken;

use crate::base::{
    backoff::{Backoff, jitter},
    blocking::{TaskPanicked, blocking},
    metrics::Metrics,
};

/// Time from one turn to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Delays after failures.
const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, longest: Duration::from_secs(15) };

/// Object store that is configured.
#[derive(Clone, Debug)]
pub struct Access {
    /// Place in it.
    pub place: Place,
    /// Credentials for it.
    pub credentials: Credentials,
}

/// Object store of stills and columns.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The way to it.
    pub access: Access,
    /// Bytes of stills that stay here.
    pub cache_bytes: u64,
}

/// Opens an object store for `writer`, counting its calls; it may be away.
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

/// Files of an [`Objects`] behind directories of this server.
pub struct Backings {
    /// Of stills.
    pub stills: Backing,
    /// Of columns, which stay here: readers of the log need them, and wait for nobody.
    pub columns: Backing,
}

impl Backings {
    /// Of `objects`, of which so many bytes of stills stay here.
    pub fn new(objects: &Objects, cache_bytes: u64) -> Backings {
        let backing = |folder, cache_bytes| Backing {
            remote: objects.folder(folder),
            place: objects.to_string(),
            cache_bytes,
        };
        Backings { stills: backing("stills", cache_bytes), columns: backing("columns", u64::MAX) }
    }
}

/// Reason that a turn failed.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Store(#[from] TimelineError),
    #[error(transparent)]
    Died(#[from] TaskPanicked),
}

impl TurnError {
    /// Class of the failure; `None` where it is not of the store.
    fn fault(&self) -> Option<RemoteFault> {
        match self {
            TurnError::Store(TimelineError::Remote(error)) => Some(error.fault),
            _ => None,
        }
    }
}

/// Sends what the object store has not taken.
pub struct Sender {
    /// Stills.
    pub blobs: BlobStore,
    /// Log with the columns.
    pub timeline: Timeline,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Sender {
    /// Takes turns until `stop`; returns at once where there is no object store.
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
                        // Found by what its calls answered, none of which failed.
                        self.metrics.object_store_failures.of(RemoteFault::NotKept).inc();
                    }
                    // Said once for each kind of failure in an outage; the counters have the rest.
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
            // Each whatever becomes of the other.
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
