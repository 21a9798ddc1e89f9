//! Combines frames into buckets of equal length, with the extremes of each signal, so that no peak is lost.

use std::collections::BTreeMap;

use gate::Decision;
use media::{Score, Signal};

use super::Decided;
use crate::api::prelude::*;

/// Range and mean of a signal over the frames of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SignalSpread {
    min: schema_types::Fraction,
    max: schema_types::Fraction,
    mean: schema_types::Fraction,
    #[serde(skip)]
    sum: u64,
    #[serde(skip)]
    count: u64,
}

impl SignalSpread {
    fn of(score: Score) -> SignalSpread {
        let sum = u64::from(score.millionths());
        SignalSpread { min: score.into(), max: score.into(), mean: score.into(), sum, count: 1 }
    }

    fn add(&mut self, score: Score) {
        self.min = self.min.min(score.into());
        self.max = self.max.max(score.into());
        self.sum += u64::from(score.millionths());
        self.count += 1;
        self.mean = Score::from_ratio(self.sum, self.count * u64::from(Score::SCALE)).into();
    }
}

/// Consecutive frames of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FrameBucket {
    first_frame: u64,
    /// Last frame, inclusive.
    last_frame: u64,
    start_pts_ms: i64,
    end_pts_ms: i64,
    /// Number of frames in the bucket, at least 1.
    frames: u64,
    /// Number of frames that the gate selected.
    kept_frames: u64,
    /// Number of frames by reason, for reasons that occur.
    #[schema(value_type = BTreeMap<String, u64>)]
    reasons: BTreeMap<&'static str, u64>,
    luma_mean: SignalSpread,
    flicker_score: SignalSpread,
    ghosting_score: SignalSpread,
    noise_variance_score: SignalSpread,
    /// Spread over the frames that have this score; null if none has.
    #[schema(required = true)]
    scene_score: Option<SignalSpread>,
    /// Spread over the frames that have this score; null if none has.
    #[schema(required = true)]
    activity_score: Option<SignalSpread>,
}

impl FrameBucket {
    fn of(signal: &Signal, decision: &Decision) -> FrameBucket {
        FrameBucket {
            first_frame: signal.frame_index,
            last_frame: signal.frame_index,
            start_pts_ms: signal.pts_ms,
            end_pts_ms: signal.pts_ms,
            frames: 1,
            kept_frames: u64::from(decision.selected),
            reasons: BTreeMap::from([(decision.reason.as_str(), 1)]),
            luma_mean: SignalSpread::of(signal.luma_mean),
            flicker_score: SignalSpread::of(signal.flicker_score),
            ghosting_score: SignalSpread::of(signal.ghosting_score),
            noise_variance_score: SignalSpread::of(signal.noise_variance_score),
            scene_score: signal.scene_score.map(SignalSpread::of),
            activity_score: signal.activity.map(|activity| SignalSpread::of(activity.score)),
        }
    }

    fn add(&mut self, signal: &Signal, decision: &Decision) {
        self.last_frame = signal.frame_index;
        self.end_pts_ms = signal.pts_ms;
        self.frames += 1;
        self.kept_frames += u64::from(decision.selected);
        *self.reasons.entry(decision.reason.as_str()).or_default() += 1;
        self.luma_mean.add(signal.luma_mean);
        self.flicker_score.add(signal.flicker_score);
        self.ghosting_score.add(signal.ghosting_score);
        self.noise_variance_score.add(signal.noise_variance_score);
        let activity = signal.activity.map(|activity| activity.score);
        for (spread, score) in
            [(&mut self.scene_score, signal.scene_score), (&mut self.activity_score, activity)]
        {
            match (spread, score) {
                (Some(spread), Some(score)) => spread.add(score),
                (none, score) => *none = none.take().or(score.map(SignalSpread::of)),
            }
        }
    }
}

/// Iterator over the buckets of `frames`; ends after the first error.
pub struct Buckets<I> {
    frames: I,
    /// Total number of frames, and number of frames consumed.
    count: u64,
    taken: u64,
    points: u64,
    /// Number of the next bucket, from 1.
    at: u64,
}

impl<I> Buckets<I> {
    /// Combines `count` frames into `points` buckets; `points` must not exceed `count`.
    pub fn new(frames: I, count: u64, points: u64) -> Buckets<I> {
        Buckets { frames, count, taken: 0, points, at: 0 }
    }
}

impl<I: Iterator<Item = Decided>> Iterator for Buckets<I> {
    type Item = ApiResult<FrameBucket>;

    fn next(&mut self) -> Option<ApiResult<FrameBucket>> {
        self.at += 1;
        // No overflow: at most half a million frames in 20,000 buckets.
        let end = self.at.min(self.points) * self.count / self.points;
        let mut bucket: Option<FrameBucket> = None;
        while self.taken < end {
            let (signal, decision) = match self.frames.next()? {
                Ok(frame) => frame,
                Err(error) => {
                    self.taken = self.count;
                    return Some(Err(error));
                }
            };
            self.taken += 1;
            match &mut bucket {
                None => bucket = Some(FrameBucket::of(&signal, &decision)),
                Some(bucket) => bucket.add(&signal, &decision),
            }
        }
        bucket.map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use gate::{Gate, GateConfig};

    use super::*;
    use crate::api::error::ApiError;

    fn frame(gate: &mut Gate, index: u64, flicker: u32, scene: Option<u32>) -> Decided {
        let signal = Signal {
            flicker_score: Score::from_millionths(flicker),
            scene_score: scene.map(Score::from_millionths),
            ..Signal::plain(index, index as i64 * 40)
        };
        let decision = gate.offer(&signal);
        Ok((signal, decision))
    }

    #[test]
    fn every_frame_is_in_one_bucket_and_a_peak_stays() {
        for (count, points) in [(3, 2), (7, 3), (100, 99), (1000, 7), (20_001, 20_000)] {
            let mut gate = Gate::new(GateConfig { keepalive_ms: None, ..GateConfig::default() });
            let peak = count / 2;
            let frames: Vec<Decided> = (0..count)
                .map(|at| {
                    let flicker = if at == peak { 900_000 } else { 100_000 };
                    frame(&mut gate, at, flicker, (at > 0).then_some(0))
                })
                .collect();
            let cut: Vec<FrameBucket> = Buckets::new(frames.into_iter(), count, points)
                .collect::<Result<_, _>>()
                .expect("no error");
            assert_eq!(cut.len() as u64, points, "{count} in {points}");
            let mut next = 0;
            for bucket in &cut {
                assert_eq!((bucket.first_frame, bucket.start_pts_ms), (next, next as i64 * 40));
                assert_eq!(bucket.frames, bucket.last_frame + 1 - bucket.first_frame);
                assert_eq!(bucket.reasons.values().sum::<u64>(), bucket.frames);
                next = bucket.last_frame + 1;
                let holds = (bucket.first_frame..next).contains(&peak);
                let max = if holds { 900_000 } else { 100_000 };
                assert_eq!(bucket.flicker_score.max.0.millionths(), max, "{bucket:?}");
                assert_eq!(bucket.reasons.contains_key("flicker_suspected"), holds);
                let kept = u64::from(holds) + u64::from(bucket.first_frame == 0);
                assert_eq!(bucket.kept_frames, kept, "{bucket:?}");
            }
            assert_eq!(next, count);
        }
    }

    #[test]
    fn a_mean_is_that_of_all_frames_and_an_error_ends_the_buckets() {
        let mut gate = Gate::new(GateConfig::default());
        let mut frames: Vec<Decided> = [0, 0, 1_000_000]
            .into_iter()
            .zip(0..)
            .map(|(flicker, at)| frame(&mut gate, at, flicker, None))
            .collect();
        let cut = Buckets::new(frames.drain(..), 3, 1).next().expect("one").expect("no error");
        let SignalSpread { min, max, mean, .. } = cut.flicker_score;
        assert_eq!([min, max, mean].map(|score| score.0.millionths()), [0, 1_000_000, 333_333]);
        assert_eq!(cut.scene_score, None);
        frames.extend([
            frame(&mut gate, 3, 0, None),
            Err(ApiError::RUN_NOT_FOUND),
            frame(&mut gate, 5, 0, None),
        ]);
        let mut cut = Buckets::new(frames.into_iter(), 3, 3);
        assert!(cut.next().is_some_and(|bucket| bucket.is_ok()));
        assert!(cut.next().is_some_and(|bucket| bucket.is_err()));
        assert!(cut.next().is_none());
    }
}
