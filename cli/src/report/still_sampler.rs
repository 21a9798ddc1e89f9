//! Samples the stills that fit into a report: bounded, thinned evenly over time.

use gate::SelectionReason;

const STILLS_MAX: usize = 240;
/// Bytes of JPEGs: a page of about 32 MiB in base64 still opens at once in every browser.
const BYTES_MAX: usize = 24 << 20;

/// JPEG of a selected frame.
pub struct ReportStill {
    /// Index among the analysed frames.
    pub frame_index: u64,
    /// Presentation time.
    pub pts_ms: i64,
    /// Name of the gate's reason for selecting the frame, as in the API.
    pub reason: String,
    /// Size in pixels, if known.
    pub extent: Option<(u32, u32)>,
    pub jpeg: Vec<u8>,
}

impl ReportStill {
    /// Returns the rank of a still when space is short: cuts first, then activity, periodic frames last.
    fn worth(&self) -> usize {
        match Tone::of(&self.reason) {
            Tone::Cut => 3,
            Tone::Activity => 2,
            Tone::Artifact => 1,
            Tone::Plain => 0,
        }
    }
}

/// Colour and rank of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Cut,
    Activity,
    Artifact,
    Plain,
}

impl Tone {
    /// Returns the tone of a gate's reason; an unknown reason is plain.
    pub fn of(reason: &str) -> Tone {
        match SelectionReason::ALL.into_iter().find(|known| known.as_str() == reason) {
            Some(SelectionReason::InitialFrame | SelectionReason::SceneCut) => Tone::Cut,
            Some(
                SelectionReason::ActivityStarted
                | SelectionReason::ActivityPeak
                | SelectionReason::ActivitySettled,
            ) => Tone::Activity,
            Some(
                SelectionReason::FlickerSuspected
                | SelectionReason::GhostingSuspected
                | SelectionReason::NoiseVarianceSpike,
            ) => Tone::Artifact,
            _ => Tone::Plain,
        }
    }

    /// Returns the CSS class in the page.
    pub fn as_str(self) -> &'static str {
        match self {
            Tone::Cut => "cut",
            Tone::Activity => "activity",
            Tone::Artifact => "artifact",
            Tone::Plain => "plain",
        }
    }
}

/// Stills in order of time, limited in number and bytes for sources of any length.
///
/// Of each rank every `stride`-th still is kept, so that they are spread evenly over time.
#[derive(Default)]
pub struct StillSampler {
    kept: Vec<SampledStill>,
    bytes: usize,
    kinds: [ReasonSamples; 4],
}

struct SampledStill {
    still: ReportStill,
    /// Position among the stills of the same rank.
    ordinal: u64,
}

struct ReasonSamples {
    seen: u64,
    stride: u64,
}

impl Default for ReasonSamples {
    fn default() -> ReasonSamples {
        ReasonSamples { seen: 0, stride: 1 }
    }
}

impl StillSampler {
    /// Adds the next still; over a limit, drops every second still of the lowest rank.
    pub fn push(&mut self, still: ReportStill) {
        let kind = &mut self.kinds[still.worth()];
        let ordinal = kind.seen;
        kind.seen += 1;
        if !ordinal.is_multiple_of(kind.stride) {
            return;
        }
        self.bytes += still.jpeg.len();
        self.kept.push(SampledStill { still, ordinal });
        while self.kept.len() > STILLS_MAX || self.bytes > BYTES_MAX {
            // One still of each rank is kept, however large.
            let Some(worth) = (0..self.kinds.len()).find(|&worth| self.count(worth) > 1) else {
                return;
            };
            self.thin(worth);
        }
    }

    /// Returns the kept stills in order of time.
    pub fn kept(&self) -> impl ExactSizeIterator<Item = &ReportStill> {
        self.kept.iter().map(|kept| &kept.still)
    }

    /// Returns the number of stills added, kept or not.
    pub fn seen(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.seen).sum()
    }

    fn count(&self, worth: usize) -> usize {
        self.kept().filter(|still| still.worth() == worth).count()
    }

    fn thin(&mut self, worth: usize) {
        let kind = &mut self.kinds[worth];
        kind.stride *= 2;
        let stride = kind.stride;
        self.kept.retain(|kept| kept.still.worth() != worth || kept.ordinal.is_multiple_of(stride));
        self.bytes = self.kept().map(|still| still.jpeg.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn still(frame_index: u64, reason: &str, bytes: usize) -> ReportStill {
        ReportStill {
            frame_index,
            pts_ms: frame_index as i64 * 40,
            reason: reason.to_owned(),
            extent: None,
            jpeg: vec![0; bytes],
        }
    }

    #[test]
    fn periodic_stills_make_room_for_cuts() {
        let mut shelf = StillSampler::default();
        for index in 0..5000 {
            let reason = if index % 100 == 0 { "scene_cut" } else { "periodic_keepalive" };
            shelf.push(still(index, reason, 10));
        }
        let cuts = shelf.kept().filter(|s| s.reason == "scene_cut").count();
        assert_eq!((cuts, shelf.seen()), (50, 5000));
        assert!(shelf.kept().len() <= STILLS_MAX, "{}", shelf.kept().len());
        let frames: Vec<u64> = shelf.kept().map(|s| s.frame_index).collect();
        assert!(frames.is_sorted());
        // Spread evenly: both halves of the source have nearly equal numbers.
        let early = frames.iter().filter(|&&frame| frame < 2500).count();
        assert!(early.abs_diff(frames.len() - early) <= 2, "{early} of {}", frames.len());
    }

    #[test]
    fn bytes_are_bounded_even_when_every_still_is_a_cut() {
        let mut shelf = StillSampler::default();
        for index in 0..100 {
            shelf.push(still(index, "scene_cut", BYTES_MAX / 10));
        }
        let bytes: usize = shelf.kept().map(|s| s.jpeg.len()).sum();
        assert!(bytes <= BYTES_MAX && shelf.kept().len() > 0, "{bytes}");
    }

    #[test]
    fn a_still_of_each_kind_that_is_too_large_ends_without_a_loop() {
        let mut shelf = StillSampler::default();
        for reason in ["periodic_keepalive", "flicker_suspected", "activity_peak", "scene_cut"] {
            shelf.push(still(0, reason, BYTES_MAX - 1));
        }
        assert_eq!(shelf.kept().len(), 4);
    }
}
