//! Settings of a log, and the seams to time: a clock is read, syncs are told.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use media::WallTime;

use crate::files::Backing;

/// Settings of a log.
#[derive(Clone)]
pub struct TimelineOptions {
    /// A journal file is sealed before it grows past this; at most 1 GiB.
    pub file_bytes: u64,
    /// Journal files grow by this much zero-filled space at a time.
    pub grow_bytes: u64,
    /// Space kept ahead of what is written, for what ends runs when the disk is full.
    pub spare_bytes: u64,
    /// Reads wall time; the log never lets it go backwards.
    pub clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
    /// Told on the writer's thread how long each sync of the journal took; must be brief.
    pub on_sync: SyncObserver,
    /// Object store that columns go to, too.
    pub columns: Option<Backing>,
}

/// Hears of the duration of syncs.
pub type SyncObserver = Arc<dyn Fn(Duration) + Send + Sync>;

impl Default for TimelineOptions {
    fn default() -> TimelineOptions {
        TimelineOptions {
            file_bytes: 64 << 20,
            grow_bytes: 4 << 20,
            spare_bytes: 256 << 10,
            clock: Arc::new(system_clock),
            on_sync: Arc::new(|_| {}),
            columns: None,
        }
    }
}

/// Wall time by the system's clock: the one place that reads it for what is dated.
pub fn system_clock() -> WallTime {
    // A clock before 1970 is wrong anyway, and the log keeps time from going backwards.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime { epoch_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX) }
}
