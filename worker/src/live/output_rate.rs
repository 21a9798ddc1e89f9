//! Output rate limit of one live session: a token bucket that holds the bytes of one second. Pure.
//!
//! A session that keeps every frame of the largest picture stays below the limit. One over the limit is sent
//! no unit until the bucket has refilled, so that its queue fills up and units are refused. Only a session
//! that far exceeds the limit with the units it already had is ended.

use std::time::Instant;

use crate::session::LIMITS;

/// Frames per second of the largest picture, all kept.
const FRAMES: i64 = 30;
/// Bytes of a frame's still and view: no JPEG worth looking at is larger than its 4:2:0 samples.
const FRAME_BYTES: i64 = (LIMITS.area_px * 3 / 2) as i64;
/// Bytes that a session may send per second.
pub(super) const SECOND_BYTES: i64 = FRAMES * FRAME_BYTES;
/// Bytes over the limit that end a session. A unit is sent to it only while it is within the limit, and
/// completes at most the frames that a decoder keeps, sixteen, and its own.
pub(super) const OVER_BYTES_MAX: i64 = SECOND_BYTES;

/// Token bucket of one session.
pub(super) struct OutputRateLimit {
    /// Bytes left; negative if the session is over its limit.
    left: i64,
    at: Instant,
}

impl OutputRateLimit {
    /// Creates a full bucket.
    pub fn new(now: Instant) -> OutputRateLimit {
        OutputRateLimit { left: SECOND_BYTES, at: now }
    }

    /// Takes `bytes` that the session has sent; returns by how many it is over its limit.
    pub fn take(&mut self, bytes: u64, now: Instant) -> i64 {
        self.left = self.left_at(now).saturating_sub_unsigned(bytes);
        self.at = self.at.max(now);
        self.left.saturating_neg()
    }

    /// Returns true if the session is within its limit.
    pub fn is_kept(&self, now: Instant) -> bool {
        self.left_at(now) >= 0
    }

    fn left_at(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.at).as_micros();
        // The bucket is full long before this many microseconds have passed.
        let since = i64::try_from(since).unwrap_or(i64::MAX).min(3_600_000_000);
        let back = SECOND_BYTES / 1000 * since / 1000;
        self.left.saturating_add(back).min(SECOND_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Rows: frames per second, bytes of events per frame, and true if the session is over its rate within
    /// ten minutes.
    #[test]
    fn who_keeps_every_frame_is_not_slowed() {
        const MIB: u64 = 1 << 20;
        let rows = [
            ("1080p30, detailed", 30, MIB, false),
            ("1080p120", 120, MIB, false),
            ("the largest picture at 60 frames a second", 60, 6 * MIB, false),
            ("the largest picture of noise", 30, 13 * MIB, false),
            ("more than there is in a picture", 30, 16 * MIB, true),
            ("a flood of signals", 30_000, 16 << 10, true),
        ];
        for (name, rate, bytes, is_slowed) in rows {
            let start = Instant::now();
            let mut share = OutputRateLimit::new(start);
            let over = (0..600 * rate).any(|frame| {
                let now = start + Duration::from_secs(1) / rate as u32 * frame as u32;
                share.take(bytes, now);
                !share.is_kept(now)
            });
            assert_eq!(over, is_slowed, "{name}");
        }
    }

    #[test]
    fn what_is_over_is_made_up_for_by_waiting() {
        let start = Instant::now();
        let mut share = OutputRateLimit::new(start);
        assert_eq!(share.take(SECOND_BYTES as u64 * 3 / 2, start), SECOND_BYTES / 2);
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!share.is_kept(at(499)) && share.is_kept(at(501)));
        assert!(share.take(0, at(9000)) == -SECOND_BYTES, "no more than a second is saved up");
        assert!(share.take(0, at(0)) == -SECOND_BYTES, "a clock that goes back gives nothing");
        assert!(share.take(u64::MAX, at(0)) > OVER_BYTES_MAX);
    }
}
