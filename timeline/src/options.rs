//! Settings of a log, and its interfaces to time: the clock and the observer of syncs.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use media::WallTime;

use crate::files::Backing;

/// Settings of a log.
#[derive(Clone)]
pub struct TimelineOptions {
    /// Size in bytes above which a journal file is sealed; at most 1 GiB.
    pub file_bytes: u64,
    /// Step in bytes by which journal files grow, zero-filled.
    pub grow_bytes: u64,
    /// Bytes kept allocated for events that end runs when the disk is full.
    pub spare_bytes: u64,
    /// Wall clock; the log never lets its time go backwards.
    pub clock: Arc<dyn Fn() -> WallTime + Send + Sync>,
    /// Called on the writer's thread with the duration of each sync of the journal; must be brief.
    pub on_sync: SyncObserver,
    /// Object store of the columns.
    pub columns: Option<Backing>,
}

/// Observer of the duration of syncs.
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

/// Returns the wall time of the system's clock; no other code reads it for timestamps.
pub fn system_clock() -> WallTime {
    // A clock before 1970 is wrong anyway, and the log keeps time from going backwards.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime { epoch_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX) }
}
