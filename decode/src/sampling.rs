//! Which frames of a source are analysed.

use media::Rate;

/// A sampling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Every frame.
    Every,
    /// The first frame at or after k/rate seconds for k = 0, 1, 2, ...; a frame at most once.
    Fixed(Rate),
}
