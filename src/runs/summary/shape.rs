//! Distribution of a run over time, in equal spans: brightness, selected frames, named objects.
//!
//! Live video may be endless: the length of the spans doubles whenever there would be too many.

use std::ops::AddAssign;

use media::{EventType, Score};

pub const BUCKETS: usize = 64;
/// Maximum number of spans kept: after doubling at least half are used, so that the summary's are about even.
const FINE: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    luma_sum: u64,
    frames: u32,
    /// Frames that the gate selected.
    pub kept: u32,
    /// Scene cuts among the selected frames.
    pub cuts: u32,
    /// Artifacts among the selected frames.
    pub artifacts: u32,
}

impl Bucket {
    /// Mean brightness; `None` if the span has no measured frame.
    pub fn luma_mean(&self) -> Option<Score> {
        let scale = u64::from(self.frames) * u64::from(Score::SCALE);
        (self.frames > 0).then(|| Score::from_ratio(self.luma_sum, scale))
    }
}

impl AddAssign for Bucket {
    fn add_assign(&mut self, other: Bucket) {
        self.luma_sum += other.luma_sum;
        self.frames += other.frames;
        self.kept += other.kept;
        self.cuts += other.cuts;
        self.artifacts += other.artifacts;
    }
}

/// Number of named stretches that begin and end in a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    begun: u32,
    ended: u32,
}

impl AddAssign for Ends {
    fn add_assign(&mut self, other: Ends) {
        self.begun += other.begun;
        self.ended += other.ended;
    }
}

/// Spans of equal length, from the first moment on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line<T> {
    /// First and last moment, in ms.
    ends: Option<(i64, i64)>,
    /// Length of a span as a power of two, in ms.
    doublings: u32,
    fine: Vec<T>,
}

/// Frames of a run over time.
pub type Shape = Line<Bucket>;
/// Stretches of a run in which models named an object.
pub type Named = Line<Ends>;

/// Distribution in [`BUCKETS`] spans over the whole duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub buckets: [Bucket; BUCKETS],
    /// Time from the first to the last frame, in ms; `None` without frames.
    pub length_ms: Option<u64>,
    /// Start of the first span, and the total length of all spans, in ms.
    from_ms: i64,
    spans_ms: i128,
}

impl Shape {
    pub fn measured(&mut self, pts_ms: i64, luma: Score) {
        let bucket = self.at(pts_ms);
        bucket.luma_sum += u64::from(luma.millionths());
        bucket.frames += 1;
    }

    /// Adds a frame that the gate selected, with its event type.
    pub fn kept(&mut self, pts_ms: i64, event_type: &EventType) {
        let bucket = self.at(pts_ms);
        bucket.kept += 1;
        match event_type {
            EventType::SceneCut => bucket.cuts += 1,
            EventType::ArtifactSuspected => bucket.artifacts += 1,
            _ => {}
        }
    }

    pub fn told(&self) -> Told {
        let mut buckets = [Bucket::default(); BUCKETS];
        let used = self.fine.len().max(1);
        for (at, bucket) in self.fine.iter().enumerate() {
            buckets[at * BUCKETS / used] += *bucket;
        }
        let (first, last) = self.ends.unwrap_or_default();
        let length_ms = self.ends.is_some().then_some(last.abs_diff(first));
        Told { buckets, length_ms, from_ms: first, spans_ms: (used as i128) << self.doublings }
    }
}

impl Told {
    pub fn kept(&self) -> u64 {
        self.buckets.iter().map(|bucket| u64::from(bucket.kept)).sum()
    }
}

impl Default for Told {
    fn default() -> Told {
        Shape::default().told()
    }
}

impl Named {
    /// Sets the begin of the run, unless it is set.
    pub fn begin(&mut self, pts_ms: i64) {
        self.ends.get_or_insert((pts_ms, pts_ms));
    }

    /// Adds the stretch from `start` to `end`, in which something was named.
    pub fn named(&mut self, start: i64, end: i64) {
        self.at(start).begun += 1;
        self.at(end.max(start)).ended += 1;
    }

    /// Returns the number of stretches that overlap each span of `shape`.
    pub fn told(&self, shape: &Told) -> [u32; BUCKETS] {
        let mut ends = [Ends::default(); BUCKETS];
        let first = i128::from(self.ends.unwrap_or_default().0) - i128::from(shape.from_ms);
        for (at, fine) in self.fine.iter().enumerate() {
            let since = first + ((at as i128) << self.doublings);
            let bucket = since * BUCKETS as i128 / shape.spans_ms;
            ends[bucket.clamp(0, BUCKETS as i128 - 1) as usize] += *fine;
        }
        let mut going_on = 0;
        ends.map(|Ends { begun, ended }| {
            let there = going_on + begun;
            going_on = there - ended;
            there
        })
    }
}

impl<T: Copy + Default + AddAssign> Line<T> {
    /// Returns the span of a moment; moments before the first one belong to the first span.
    fn at(&mut self, pts_ms: i64) -> &mut T {
        let (first, last) = self.ends.get_or_insert((pts_ms, pts_ms));
        *last = pts_ms.max(*last);
        let since = pts_ms.max(*first).abs_diff(*first);
        while since >> self.doublings >= FINE as u64 {
            self.double();
        }
        let at = (since >> self.doublings) as usize;
        if self.fine.len() <= at {
            self.fine.resize(at + 1, T::default());
        }
        &mut self.fine[at]
    }

    fn double(&mut self) {
        let both = |pair: &[T]| {
            let mut both = pair[0];
            pair[1..].iter().for_each(|other| both += *other);
            both
        };
        self.fine = self.fine.chunks(2).map(both).collect();
        self.doublings += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_in_the_span_of_its_time_however_long_it_lasts() {
        // Number of frames, and ms between two of them.
        for (frames, step) in
            [(1, 40), (63, 40), (250, 40), (1000, 33), (200_000, 40), (3, i64::MAX / 3)]
        {
            let mut shape = Shape::default();
            for at in 0..frames {
                let pts_ms = at * step;
                // The first half is dark, the second bright.
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
            let Told { buckets: told, length_ms, .. } = shape.told();
            assert_eq!(length_ms, Some(((frames - 1) * step) as u64), "{name}");
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
        assert_eq!(shape.told().length_ms, Some(400));
        assert_eq!(shape.told().buckets.iter().map(|one| one.frames).sum::<u32>(), 4);
        assert_eq!(Told::default().buckets, [Bucket::default(); BUCKETS]);
    }

    #[test]
    fn what_was_named_is_told_in_each_span_that_it_has_a_part_of() {
        // Length of the run, stretches, and ranges of spans with their counts.
        type Row = (i64, &'static [(i64, i64)], &'static [(usize, usize, u32)]);
        let rows: [Row; 6] = [
            (6400, &[], &[]),
            (6400, &[(0, 6400)], &[(0, 64, 1)]),
            (6400, &[(0, 1550), (3250, 3300)], &[(0, 16, 1), (32, 33, 1)]),
            (6400, &[(1650, 3100), (0, 3100)], &[(0, 16, 1), (16, 31, 2)]),
            (6_400_000, &[(640_000, 640_000), (6_350_000, 6_500_000)], &[(6, 7, 1), (63, 64, 1)]),
            (0, &[(0, 0), (0, 0)], &[(0, 1, 2)]),
        ];
        for (length, stretches, expected) in rows {
            let (mut shape, mut named) = (Shape::default(), Named::default());
            for pts_ms in [0, length] {
                shape.measured(7 + pts_ms, Score::ONE);
            }
            named.begin(7);
            stretches.iter().for_each(|(start, end)| named.named(7 + start, 7 + end));
            let mut whole = [0; BUCKETS];
            for &(from, to, count) in expected {
                whole[from..to].fill(count);
            }
            assert_eq!(named.told(&shape.told()), whole, "{length} ms, {stretches:?}");
        }
    }
}
