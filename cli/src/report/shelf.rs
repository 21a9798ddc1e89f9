//! The stills that fit into a report, chosen as they come and thinned evenly when too many came.

use gate::Reason;

const STILLS_MAX: usize = 240;
/// A page of about 32 MiB in base64 still opens at once in every browser.
const BYTES_MAX: usize = 24 << 20;

/// The JPEG of a selected frame.
pub struct Still {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Presentation time.
    pub pts_ms: i64,
    /// Why the frame was selected, as named on the wire.
    pub reason: String,
    /// Picture size, where known.
    pub extent: Option<(u32, u32)>,
    /// The picture.
    pub jpeg: Vec<u8>,
}

impl Still {
    /// How much a reader would miss it: cuts most, periodic frames least.
    fn worth(&self) -> u8 {
        match Tone::of(&self.reason) {
            Tone::Cut => 2,
            Tone::Artifact => 1,
            Tone::Plain => 0,
        }
    }
}

/// How a reason is coloured and ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Cut,
    Artifact,
    Plain,
}

impl Tone {
    /// The tone of a reason of the gate; unknown names are plain.
    pub fn of(reason: &str) -> Tone {
        match Reason::ALL.into_iter().find(|known| known.as_str() == reason) {
            Some(Reason::InitialFrame | Reason::SceneCut) => Tone::Cut,
            Some(
                Reason::FlickerSuspected | Reason::GhostingSuspected | Reason::NoiseVarianceSpike,
            ) => Tone::Artifact,
            _ => Tone::Plain,
        }
    }

    /// Class name in the page.
    pub fn as_str(self) -> &'static str {
        match self {
            Tone::Cut => "cut",
            Tone::Artifact => "artifact",
            Tone::Plain => "plain",
        }
    }
}

/// Stills in order of time, bounded in number and bytes whatever the length of the source.
#[derive(Default)]
pub struct Shelf {
    stills: Vec<Still>,
    bytes: usize,
    seen: u64,
}

impl Shelf {
    /// Adds the next still; where that is one too many, every second of the least telling goes.
    pub fn push(&mut self, still: Still) {
        self.seen += 1;
        self.bytes += still.jpeg.len();
        self.stills.push(still);
        while self.stills.len() > STILLS_MAX || (self.bytes > BYTES_MAX && self.stills.len() > 1) {
            self.thin();
        }
    }

    /// What is kept, in order of time.
    pub fn kept(&self) -> &[Still] {
        &self.stills
    }

    /// How many stills came by.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    fn thin(&mut self) {
        // A kind with a single still is no longer thinned, or it would never be empty of work.
        let count = |worth| self.stills.iter().filter(|s| s.worth() == worth).count();
        let worth = (0..=2).find(|&worth| count(worth) > 1).unwrap_or(2);
        let mut nth = 0;
        self.stills.retain(|still| {
            if still.worth() != worth {
                return true;
            }
            nth += 1;
            nth % 2 == 1
        });
        if worth == 2 && nth <= 1 {
            self.stills.pop();
        }
        self.bytes = self.stills.iter().map(|still| still.jpeg.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn still(frame_index: u64, reason: &str, bytes: usize) -> Still {
        Still {
            frame_index,
            pts_ms: frame_index as i64 * 40,
            reason: reason.to_owned(),
            extent: None,
            jpeg: vec![0; bytes],
        }
    }

    #[test]
    fn periodic_stills_make_room_for_cuts() {
        let mut shelf = Shelf::default();
        for index in 0..5000 {
            let reason = if index % 100 == 0 { "scene_cut" } else { "periodic_keepalive" };
            shelf.push(still(index, reason, 10));
        }
        let cuts = shelf.kept().iter().filter(|s| s.reason == "scene_cut").count();
        assert_eq!((cuts, shelf.seen()), (50, 5000));
        assert!(shelf.kept().len() <= STILLS_MAX, "{}", shelf.kept().len());
        assert!(shelf.kept().is_sorted_by_key(|s| s.frame_index));
    }

    #[test]
    fn bytes_are_bounded_even_when_every_still_is_a_cut() {
        let mut shelf = Shelf::default();
        for index in 0..100 {
            shelf.push(still(index, "scene_cut", BYTES_MAX / 10));
        }
        let bytes: usize = shelf.kept().iter().map(|s| s.jpeg.len()).sum();
        assert!(bytes <= BYTES_MAX && !shelf.kept().is_empty(), "{bytes}");
    }

    #[test]
    fn a_still_of_each_kind_that_is_too_large_ends_without_a_loop() {
        let mut shelf = Shelf::default();
        for reason in ["periodic_keepalive", "flicker_suspected", "scene_cut"] {
            shelf.push(still(0, reason, BYTES_MAX - 1));
        }
        assert!(!shelf.kept().is_empty());
    }
}
