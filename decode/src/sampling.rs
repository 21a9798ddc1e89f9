//! Selection of the frames of a source that are analysed, by policy and presentation time.
//!
//! Exact integer arithmetic on rational times, so that no rate drifts in long sources.

use std::cmp::Ordering;

use media::{FrameRate, Timestamp};

use crate::Earlier;

/// Sampling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Sampling {
    /// Every frame.
    Every,
    /// First frame at or after k/rate seconds for k = 0, 1, 2, ...; each frame at most once.
    Fixed(FrameRate),
}

/// Number of sample instants after which nothing is sampled, which keeps the arithmetic inside `i128`.
const SAMPLE_INSTANTS_MAX: u64 = 1 << 62;

/// Position of sampling in a source, enough to continue from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SamplerState {
    /// Number of frames offered.
    pub(crate) source_frames: u64,
    pub(crate) sampled: u64,
    /// Smallest k whose instant no sampled frame covers yet.
    pub(crate) next_instant: u64,
}

impl SamplerState {
    /// Returns the position after these frames.
    pub(crate) fn after(earlier: &Earlier, sampling: Sampling) -> SamplerState {
        let Earlier { frames: sampled, source_frames, latest, .. } = *earlier;
        let next_instant = match sampling {
            Sampling::Fixed(rate) if latest.ticks >= 0 => first_instant_after(latest, rate),
            _ => 0,
        };
        SamplerState { source_frames, sampled, next_instant }
    }
}

/// Samples frames that are offered in presentation order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    max_frames: u64,
    pub(crate) position: SamplerState,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling, max_frames: u64, position: SamplerState) -> Sampler {
        Sampler { sampling, max_frames, position }
    }

    /// Returns the index among sampled frames if the frame at `pts` is sampled.
    pub(crate) fn offer(&mut self, pts: Timestamp) -> Option<u64> {
        if self.is_full() {
            return None;
        }
        self.position.source_frames += 1;
        if let Sampling::Fixed(rate) = self.sampling {
            let next = self.position.next_instant;
            if next >= SAMPLE_INSTANTS_MAX || pts.cmp_sample_instant(next, rate) == Ordering::Less {
                return None;
            }
            self.position.next_instant = first_instant_after(pts, rate);
        }
        let index = self.position.sampled;
        self.position.sampled += 1;
        Some(index)
    }

    /// Returns true if no further frame will be sampled.
    pub(crate) fn is_full(&self) -> bool {
        self.position.sampled >= self.max_frames
    }
}

/// Returns the smallest k with k/rate seconds > `pts`; `pts` must not be negative.
fn first_instant_after(pts: Timestamp, rate: FrameRate) -> u64 {
    let timebase = pts.timebase;
    let elapsed = i128::from(pts.ticks) * i128::from(timebase.num()) * i128::from(rate.num());
    let instant = i128::from(timebase.den()) * i128::from(rate.den());
    u64::try_from(elapsed / instant + 1).map_or(SAMPLE_INSTANTS_MAX, |k| k.min(SAMPLE_INSTANTS_MAX))
}

#[cfg(test)]
mod tests {
    use media::Timebase;
    use proptest::prelude::*;

    use super::*;

    fn taken(sampling: Sampling, max_frames: u64, den: u32, ticks: &[i64]) -> Vec<i64> {
        let timebase = Timebase::new(1, den).expect("positive");
        let mut sampler = Sampler::new(sampling, max_frames, SamplerState::default());
        let offer = |&tick: &i64| {
            let sampled = sampler.position.sampled;
            let index = sampler.offer(Timestamp::new(tick, timebase))?;
            assert_eq!(index, sampled, "indices count up");
            Some(tick)
        };
        ticks.iter().filter_map(offer).collect()
    }

    fn fixed(num: u32, den: u32) -> Sampling {
        Sampling::Fixed(FrameRate::new(num, den).expect("positive"))
    }

    #[test]
    fn policies_take_exactly_the_frames_they_name() {
        type Case = (&'static str, Sampling, u64, u32, &'static [i64], &'static [i64]);
        let cases: [Case; 8] = [
            ("every", Sampling::Every, 9, 10, &[-1, 0, 3], &[-1, 0, 3]),
            ("at most so many", Sampling::Every, 2, 10, &[0, 1, 2, 3], &[0, 1]),
            ("one a second", fixed(1, 1), 9, 4, &[0, 1, 2, 3, 4, 5, 6, 7, 8], &[0, 4, 8]),
            ("first at or after", fixed(1, 1), 9, 10, &[1, 9, 11, 12, 25], &[1, 11, 25]),
            ("gap covers instants once", fixed(2, 1), 9, 2, &[0, 9, 10], &[0, 9, 10]),
            ("faster than the source", fixed(100, 1), 9, 1, &[0, 1, 2], &[0, 1, 2]),
            ("before zero is before k = 0", fixed(1, 1), 9, 1, &[-2, -1, 0, 1], &[0, 1]),
            (
                "far end does not overflow",
                fixed(120, 1),
                9,
                1,
                &[0, i64::MAX - 1, i64::MAX],
                &[0, i64::MAX - 1],
            ),
        ];
        for (name, sampling, max_frames, den, ticks, expected) in cases {
            assert_eq!(taken(sampling, max_frames, den, ticks), expected, "{name}");
        }
    }

    #[test]
    fn ntsc_at_its_own_rate_takes_every_frame_for_a_day() {
        let timebase = Timebase::new(1001, 30_000).expect("positive");
        let mut sampler = Sampler::new(fixed(30_000, 1001), u64::MAX, SamplerState::default());
        for tick in 0..30 * 86_400 {
            assert_eq!(sampler.offer(Timestamp::new(tick, timebase)), Some(tick as u64));
        }
    }

    proptest! {
        /// Definition: a frame is sampled if it is the first at or after k/rate for some k.
        #[test]
        fn fixed_equals_its_definition(
            steps in prop::collection::vec(1i64..400, 1..60),
            num in 1u32..200,
            den in 1u32..30,
        ) {
            let ticks: Vec<i64> = steps
                .iter()
                .scan(-50, |at, step| { *at += step; Some(*at) })
                .collect();
            let instants = 0..(i128::from(*ticks.last().expect("not empty")).max(0) * i128::from(num)
                / (90 * i128::from(den)) + 2);
            let mut expected: Vec<i64> = instants
                .filter_map(|k| {
                    let reaches = |&&tick: &&i64| {
                        i128::from(tick) * i128::from(num) >= k * 90 * i128::from(den)
                    };
                    ticks.iter().find(reaches).copied()
                })
                .collect();
            expected.dedup();
            prop_assert_eq!(taken(fixed(num, den), u64::MAX, 90, &ticks), expected);
        }
    }
}
