//! A session's way to its run's timeline: stills beside the log, events in it, all charged.

use std::{sync::Arc, time::Duration};

use media::{BlobHash, ErrorKind, Label, SessionId};
use timeline::{Appended, BlobStore, Event, TimelineError};
use tokio_util::sync::CancellationToken;

use super::inbox::Selected;
use crate::{
    blocking::{Died, blocking},
    disk::{Low, Reserve},
    quota::QuotaError,
    session::{
        patience::patiently,
        registry::{Registry, Run, RunError},
        runner::Stored,
    },
};

/// Longest wait of an event for room in the log.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason that events are not on the timeline.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The run takes no more.
    #[error("the run has ended")]
    Over,
    /// The log did not take them in time.
    #[error("events cannot be stored: {0}")]
    Lost(RunError),
}

/// Reason that a still is not kept.
#[derive(Debug, thiserror::Error)]
pub enum StillError {
    /// Its owner has used up a quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The disk is almost full.
    #[error("{0}")]
    DiskLow(Low),
    /// It cannot be written.
    #[error(transparent)]
    Store(#[from] TimelineError),
    /// Its event is not stored.
    #[error(transparent)]
    Event(#[from] JournalError),
    /// Our bug.
    #[error(transparent)]
    Died(#[from] Died),
}

/// The way to the timeline of one session.
#[derive(Clone)]
pub struct Journal {
    /// Every run.
    pub registry: Arc<Registry>,
    /// The run of the session.
    pub run: Arc<Run>,
    /// Stored stills.
    pub blobs: BlobStore,
    /// Room that stills leave on disk.
    pub reserve: Arc<Reserve>,
    /// The session.
    pub session: SessionId,
    /// Its index.
    pub index_name: Option<Label>,
}

impl Journal {
    /// Appends `events` together. A full log is waited for.
    pub async fn write(&self, events: Vec<Event>) -> Result<Vec<Appended>, JournalError> {
        self.patiently(|| self.registry.commit(&self.run, events.clone())).await
    }

    /// Appends what ends the run, unless it has ended.
    pub async fn finish(&self, last: Event) -> Result<(), JournalError> {
        let wind_up = || self.registry.wind_up(&self.run, Vec::new(), Some(last.clone()));
        self.patiently(wind_up).await.map(drop)
    }

    async fn patiently<Attempt: Future<Output = Result<Vec<Appended>, RunError>>>(
        &self,
        attempt: impl Fn() -> Attempt,
    ) -> Result<Vec<Appended>, JournalError> {
        let is_full = |error: &RunError| error.kind() == ErrorKind::Exhausted;
        let never = CancellationToken::new();
        let written = patiently(PATIENCE, &never, is_full, |_| attempt()).await;
        written.map_err(|error| match error {
            RunError::Terminal(_) | RunError::NotFound => JournalError::Over,
            error => {
                tracing::error!(run = %self.run.id(), %error, "events of a live session are lost");
                JournalError::Lost(error)
            }
        })
    }

    /// Makes a still durable, and then its event.
    pub async fn keep(&self, selected: Selected) -> Result<(), StillError> {
        // A disk that cannot be examined is for the write to refuse.
        if let Ok(Some(low)) = self.reserve.check() {
            return Err(StillError::DiskLow(low));
        }
        let Selected { frame_index, pts_ms, event_type, reason, jpeg } = selected;
        let mut hold = self.registry.quota().hold(&self.run.origin().principal);
        let bytes = jpeg.len() as u64;
        hold.grow(bytes)?;
        let mut lease = self.blobs.lease();
        let put = blocking(move || lease.put(&jpeg).map(|hash| (hash, lease)));
        let (hash, lease): (BlobHash, _) = put.await??;
        let stored = Stored { frame_index, pts_ms, event_type, reason, bytes, hash };
        match self.write(vec![stored.event(self.run.id())]).await {
            Ok(_) => {
                self.run.keep(hold, 0);
                Ok(())
            }
            Err(error) => {
                let discarded = blocking(move || lease.discard()).await?;
                if let Err(error) = discarded {
                    tracing::warn!(%error, "a still without an event stays until the next sweep");
                }
                Err(error.into())
            }
        }
    }
}
