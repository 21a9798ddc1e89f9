//! Wall time, for what is dated; durations and limits use the monotonic clock.

use std::time::{SystemTime, UNIX_EPOCH};

use media::WallTime;

/// Wall time by the system's clock.
pub fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime { epoch_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX) }
}
