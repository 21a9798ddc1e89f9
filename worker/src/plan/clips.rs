//! Boundaries of a session's clips, and selection of their pictures. Pure; runs in the worker and in the
//! server.
//!
//! Sampling instants are exact: whole multiples of the sampling period after the presentation time of the
//! clip's first frame. The first frame at or after an instant shows it, and each frame is used at most once.
//! A time that goes back, or has another timebase, ends the clip.

use media::{Signal, Timestamp};

use crate::{ClipSpec, FrameChunk};

/// Cuts clips out of one session.
pub struct ClipSampler<V> {
    spec: ClipSpec,
    current: Option<Current<V>>,
    next_index: u64,
}

/// The current clip; after its end the delay that follows.
struct Current<V> {
    start: Timestamp,
    last_ticks: i64,
    /// Pictures whose instants have passed.
    passed: u32,
    /// The clip; `None` once it is complete.
    clip: Option<FrameChunk<V>>,
}

/// Decision about a frame.
pub struct ClipDecision<V> {
    /// The clip that ended before this frame.
    pub complete: Option<FrameChunk<V>>,
    /// True if the frame's picture belongs to the open clip.
    pub is_wanted: bool,
}

impl<V> ClipSampler<V> {
    /// Creates a sampler; clamps `spec` to its bounds and numbers clips from 0.
    pub fn new(spec: ClipSpec) -> ClipSampler<V> {
        ClipSampler { spec: spec.within_bounds(), current: None, next_index: 0 }
    }

    /// Adds the next frame.
    pub fn offer(&mut self, signal: &Signal, pts: Timestamp) -> ClipDecision<V> {
        let ClipSpec { length_ms, delay_ms, .. } = self.spec;
        let elapsed = self.current.as_ref().and_then(|current| current.elapsed(pts));
        let is_within = |ms: u32| elapsed.as_ref().is_some_and(|it| !it.reaches(ms.into(), 1000));
        let complete = if is_within(length_ms) { None } else { self.finish() };
        if !is_within(length_ms + delay_ms) {
            self.current = Some(self.begin(signal, pts));
        }
        let is_wanted = self.count(signal, pts);
        ClipDecision { complete, is_wanted }
    }

    /// Adds a wanted picture to the open clip.
    pub fn take(&mut self, view: V) {
        if let Some(clip) = self.current.as_mut().and_then(|current| current.clip.as_mut()) {
            clip.views.push(view);
        }
    }

    /// Ends the open clip and returns it, as far as it has come.
    pub fn finish(&mut self) -> Option<FrameChunk<V>> {
        let clip = self.current.as_mut()?.clip.take()?;
        self.next_index += 1;
        Some(clip)
    }

    fn begin(&self, signal: &Signal, pts: Timestamp) -> Current<V> {
        let clip = Some(FrameChunk::begin(self.next_index, signal));
        Current { start: pts, last_ticks: pts.ticks, passed: 0, clip }
    }

    /// Counts the frame into the open clip; returns true if its picture is wanted.
    fn count(&mut self, signal: &Signal, pts: Timestamp) -> bool {
        let Some(current) = &mut self.current else { return false };
        current.last_ticks = pts.ticks;
        let (Some(elapsed), Some(clip)) = (current.elapsed(pts), &mut current.clip) else {
            return false;
        };
        clip.frames += 1;
        clip.end_pts_ms = signal.pts_ms;
        let (shown, instants) = (u64::from(self.spec.shown()), u64::from(self.spec.instants()));
        let fps = u64::from(self.spec.target_fps);
        let reached = (u64::from(current.passed)..shown)
            .take_while(|picture| elapsed.reaches(picture * instants / shown, fps))
            .count() as u32;
        current.passed += reached;
        reached > 0
    }
}

impl<V> Current<V> {
    /// Returns the time from the clip's start to a frame; `None` if it goes back or has another timebase.
    fn elapsed(&self, pts: Timestamp) -> Option<Elapsed> {
        let goes_on = pts.timebase == self.start.timebase && pts.ticks >= self.last_ticks;
        let ticks = i128::from(pts.ticks) - i128::from(self.start.ticks);
        goes_on.then_some(Elapsed { ticks, of: pts })
    }
}

/// Elapsed ticks of a timestamp's timebase, not negative.
struct Elapsed {
    ticks: i128,
    of: Timestamp,
}

impl Elapsed {
    /// Returns true if the elapsed time is at least `count / rate` seconds.
    fn reaches(&self, count: u64, rate: u64) -> bool {
        let (num, den) = (self.of.timebase.num(), self.of.timebase.den());
        // The products stay below 2^65 * 2^32 * 2^10 and 2^17 * 2^32.
        self.ticks * i128::from(num) * i128::from(rate) >= i128::from(count) * i128::from(den)
    }
}

#[cfg(test)]
mod tests {
    use media::Timebase;

    use super::*;

    fn signal(frame_index: u64, pts: Timestamp) -> Signal {
        Signal::plain(frame_index, pts.as_millis())
    }

    /// Returns first frame, number of frames and shown frames of each clip of a source with these times.
    fn clips(
        spec: ClipSpec,
        times: impl IntoIterator<Item = Timestamp>,
    ) -> Vec<(u64, u64, Vec<u64>)> {
        let (mut clipper, mut found) = (ClipSampler::new(spec), Vec::new());
        for (at, pts) in (0..).zip(times) {
            let signal = signal(at, pts);
            let offered = clipper.offer(&signal, pts);
            found.extend(offered.complete);
            if offered.is_wanted {
                clipper.take(at);
            }
        }
        found.extend(clipper.finish());
        assert!((0..).zip(&found).all(|(index, clip)| clip.index == index), "they count up");
        found.into_iter().map(|clip| (clip.first_frame, clip.frames, clip.views)).collect()
    }

    fn spec(target_fps: u32, length_ms: u32, delay_ms: u32, pictures: u32) -> ClipSpec {
        ClipSpec { target_fps, length_ms, delay_ms, pictures, max_edge: 512 }
    }

    #[test]
    fn clips_begin_end_and_show_what_their_numbers_say() {
        type Case = (&'static str, ClipSpec, Vec<i64>, Vec<(u64, u64, Vec<u64>)>);
        let every = |step: usize, end: i64| (0..end).step_by(step).collect::<Vec<i64>>();
        let cases: [Case; 8] = [
            ("nothing", spec(6, 500, 500, 8), vec![], vec![]),
            (
                "half a second in two, six a second",
                spec(6, 500, 500, 8),
                every(40, 1200),
                vec![(0, 13, vec![0, 5, 9]), (25, 5, vec![25])],
            ),
            (
                "without a delay every frame is in one",
                spec(2, 1000, 0, 8),
                every(250, 2000),
                vec![(0, 4, vec![0, 2]), (4, 4, vec![4, 6])],
            ),
            (
                "even choice of too many",
                spec(10, 1000, 0, 4),
                every(100, 1000),
                vec![(0, 10, vec![0, 2, 5, 7])],
            ),
            (
                "slower than the instants",
                spec(10, 1000, 0, 8),
                vec![0, 400, 800, 1200],
                vec![(0, 3, vec![0, 1, 2]), (3, 1, vec![3])],
            ),
            (
                "a gap ends a clip",
                spec(10, 1000, 100, 8),
                vec![0, 100, 9000, 9100],
                vec![(0, 2, vec![0, 1]), (2, 2, vec![2, 3])],
            ),
            (
                "back in time",
                spec(10, 1000, 60_000, 8),
                vec![5000, 5100, 3000, 3100],
                vec![(0, 2, vec![0, 1]), (2, 2, vec![2, 3])],
            ),
            (
                "back in time during a delay",
                spec(10, 100, 60_000, 8),
                vec![5000, 5100, 5200, 3000],
                vec![(0, 1, vec![0]), (3, 1, vec![3])],
            ),
        ];
        for (name, spec, times, expected) in cases {
            assert_eq!(
                clips(spec, times.into_iter().map(Timestamp::from_millis)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn instants_are_exact_however_far_out() {
        // 30000/1001 frames per second for an hour, from a large offset: a clip of a second has 30 frames, as
        // frame 29 lies before its end and frame 30 after.
        let timebase = Timebase::new(1001, 30_000).expect("positive");
        let times = (0..108_000).map(|at| Timestamp::new((1 << 40) + at, timebase));
        let found = clips(spec(30, 1000, 0, 1), times);
        assert_eq!(found.len(), 3600);
        assert!(found.iter().all(|(_, frames, _)| *frames == 30));
    }

    #[test]
    fn another_timebase_and_the_ends_of_time_are_survived() {
        let ms = |ticks| Timestamp::new(ticks, Timebase::MILLIS);
        let rtp = Timestamp::new(9000, Timebase::RTP_VIDEO);
        let slow = Timebase::new(u32::MAX, 1).expect("positive");
        let times = [ms(0), rtp, ms(i64::MIN), ms(i64::MAX), Timestamp::new(i64::MAX, slow)];
        let found = clips(spec(30, 60_000, 60_000, 8), times);
        assert_eq!(found.iter().map(|clip| clip.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
