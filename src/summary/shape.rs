//! Distribution of a run's frames over its time: brightness, and what the gate kept, in even spans.
//!
//! Frames may come for ever: the spans double whenever they would be too many.

use media::{EventType, Score};

/// Spans that a shape is told in.
pub const BUCKETS: usize = 64;
/// Spans that are kept: half of them are used at least, so that those that are told are about even.
const FINE: usize = 512;

/// The frames of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    luma_sum: u64,
    frames: u32,
    /// Frames that the gate keeps.
    pub kept: u32,
    /// Scene cuts among them.
    pub cuts: u32,
    /// Artifacts among them.
    pub artifacts: u32,
}

impl Bucket {
    /// Mean brightness; `None` where no measured frame lies.
    pub fn luma_mean(&self) -> Option<Score> {
        let scale = u64::from(self.frames) * u64::from(Score::SCALE);
        (self.frames > 0).then(|| Score::from_ratio(self.luma_sum, scale))
    }

    fn add(&mut self, other: &Bucket) {
        self.luma_sum += other.luma_sum;
        self.frames += other.frames;
        self.kept += other.kept;
        self.cuts += other.cuts;
        self.artifacts += other.artifacts;
    }
}

/// Frames in spans of even length, from the first one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Times of the first frame and the last.
    ends: Option<(i64, i64)>,
    /// A span is two to the power of this, in ms.
    doublings: u32,
    fine: Vec<Bucket>,
}

impl Shape {
    /// A frame was measured.
    pub fn measured(&mut self, pts_ms: i64, luma: Score) {
        let bucket = self.at(pts_ms);
        bucket.luma_sum += u64::from(luma.millionths());
        bucket.frames += 1;
    }

    /// The gate keeps a frame for what `event_type` says.
    pub fn kept(&mut self, pts_ms: i64, event_type: &EventType) {
        let bucket = self.at(pts_ms);
        bucket.kept += 1;
        match event_type {
            EventType::SceneCut => bucket.cuts += 1,
            EventType::ArtifactSuspected => bucket.artifacts += 1,
            _ => {}
        }
    }

    /// Time from its first frame to its last; `None` without any.
    pub fn length_ms(&self) -> Option<u64> {
        self.ends.map(|(first, last)| last.abs_diff(first))
    }

    /// The frames in [`BUCKETS`] spans over the whole of its time.
    pub fn told(&self) -> [Bucket; BUCKETS] {
        let mut told = [Bucket::default(); BUCKETS];
        let used = self.fine.len().max(1);
        for (at, bucket) in self.fine.iter().enumerate() {
            told[at * BUCKETS / used].add(bucket);
        }
        told
    }

    /// Bucket of a frame of this time; one of before the first goes to the first.
    fn at(&mut self, pts_ms: i64) -> &mut Bucket {
        let (first, last) = self.ends.get_or_insert((pts_ms, pts_ms));
        *last = pts_ms.max(*last);
        let since = pts_ms.max(*first).abs_diff(*first);
        while since >> self.doublings >= FINE as u64 {
            self.double();
        }
        let at = (since >> self.doublings) as usize;
        if self.fine.len() <= at {
            self.fine.resize(at + 1, Bucket::default());
        }
        &mut self.fine[at]
    }

    fn double(&mut self) {
        let pairs = self.fine.chunks(2);
        self.fine = pairs
            .map(|pair| {
                let mut both = pair[0];
                pair.iter().skip(1).for_each(|other| both.add(other));
                both
            })
            .collect();
        self.doublings += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_in_the_span_of_its_time_however_long_it_lasts() {
        // Frames, ms from one to the next.
        for (frames, step) in
            [(1, 40), (63, 40), (250, 40), (1000, 33), (200_000, 40), (3, i64::MAX / 3)]
        {
            let mut shape = Shape::default();
            for at in 0..frames {
                let pts_ms = at * step;
                // Dark first, then bright.
                let luma = if at < frames / 2 { Score::ZERO } else { Score::ONE };
                shape.measured(pts_ms, luma);
                if at == frames - 1 {
                    shape.kept(pts_ms, &EventType::SceneCut);
                } else if at == 0 {
                    shape.kept(pts_ms, &EventType::ArtifactSuspected);
                }
            }
            let name = format!("{frames} frames, {step} ms");
            assert!(shape.fine.len() <= FINE, "{name}");
            assert_eq!(shape.length_ms(), Some(((frames - 1) * step) as u64), "{name}");
            let told = shape.told();
            assert_eq!(told.iter().map(|one| i64::from(one.frames)).sum::<i64>(), frames, "{name}");
            assert_eq!(
                told.iter().map(|one| one.kept).sum::<u32>(),
                frames.min(2) as u32,
                "{name}"
            );
            let last = told.iter().rposition(|one| one.frames > 0).expect("one");
            assert_eq!(told[last].cuts, 1, "{name}");
            assert_eq!(told[0].artifacts, u32::from(frames > 1), "{name}");
            if frames >= BUCKETS as i64 * 4 {
                let evenly = frames / BUCKETS as i64;
                for one in &told {
                    let off = (i64::from(one.frames) - evenly).abs();
                    assert!(off <= evenly / 2 + 1, "{name}: {one:?}");
                }
                assert_eq!(told[0].luma_mean(), Some(Score::ZERO), "{name}");
                assert_eq!(told[BUCKETS - 1].luma_mean(), Some(Score::ONE), "{name}");
            }
        }
    }

    #[test]
    fn a_frame_that_goes_back_in_time_is_not_lost() {
        let mut shape = Shape::default();
        for pts_ms in [500, 400, -90, 900] {
            shape.measured(pts_ms, Score::ONE);
        }
        assert_eq!(shape.length_ms(), Some(400));
        assert_eq!(shape.told().iter().map(|one| one.frames).sum::<u32>(), 4);
        assert_eq!(Shape::default().told(), [Bucket::default(); BUCKETS]);
    }
}
