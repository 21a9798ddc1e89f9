//! Wall time, for what is dated; durations and limits use the monotonic clock.

/// Wall time by the system's clock, as the log reads it.
pub use timeline::system_clock as wall_now;
