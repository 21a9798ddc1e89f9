//! Cuts a stream of packets where a new decoder gives the same pictures as the old one.
//!
//! A cut needs a clean start by its bytes and, over the whole GOP that follows, no picture shown
//! before the cut: so a GOP is held until the next start is seen. What cannot be cut within the
//! bounds is handed out in pieces that continue one decoder. Pure: packets in, segments out.

use std::collections::VecDeque;

use crate::random_access::PacketInfo;

/// Most packets held while a cut is looked for: two GOPs of 10 s at 50 frames a second.
pub(crate) const SEGMENT_PACKETS_MAX: usize = 1024;
/// Most bytes held while a cut is looked for: two GOPs of 2 s at 64 Mbit/s.
pub(crate) const SEGMENT_BYTES_MAX: usize = 32 << 20;
/// Packets of a piece that continues a decoder; small, so that outputs flow.
const PIECE_PACKETS: usize = 64;

/// One packet with what is known about it.
#[derive(Clone, Debug)]
pub(crate) struct CodedPacket<P> {
    /// Presentation time in stream ticks.
    pub(crate) pts: Option<i64>,
    /// The container's edit list hides its picture.
    pub(crate) is_discarded: bool,
    /// It changes the decoder's configuration out of band.
    pub(crate) reconfigures: bool,
    /// Facts about its picture from its bytes.
    pub(crate) coded: PacketInfo,
    /// Size of the coded bytes.
    pub(crate) bytes: usize,
    /// The packet itself.
    pub(crate) payload: P,
}

impl<P> CodedPacket<P> {
    /// It gives one picture of the output.
    pub(crate) fn is_shown(&self) -> bool {
        !self.is_discarded && !self.coded.is_hidden
    }
}

/// Packets in decode order that are decoded in one go.
#[derive(Clone, Debug)]
pub(crate) struct Segment<P> {
    pub(crate) units: Vec<CodedPacket<P>>,
    /// Goes on with the decoder of the segment before.
    pub(crate) continues_previous: bool,
    /// The next segment goes on with this one's decoder.
    pub(crate) is_continued: bool,
}

impl<P> Segment<P> {
    /// Presentation times of the shown pictures in order; `None` unless all are known and
    /// distinct.
    pub(crate) fn shown_times(&self) -> Option<Vec<i64>> {
        sorted_times(&self.units)
    }

    pub(crate) fn shown_count(&self) -> u64 {
        self.units.iter().filter(|unit| unit.is_shown()).count() as u64
    }
}

fn sorted_times<P>(units: &[CodedPacket<P>]) -> Option<Vec<i64>> {
    let shown = units.iter().filter(|unit| unit.is_shown());
    let mut times = shown.map(|unit| unit.pts).collect::<Option<Vec<i64>>>()?;
    times.sort_unstable();
    times.windows(2).all(|pair| pair[0] < pair[1]).then_some(times)
}

/// Gathers packets and hands out segments.
pub(crate) struct Segmenter<P> {
    gathered: Vec<CodedPacket<P>>,
    gathered_bytes: usize,
    /// Index in `gathered` of the clean start whose GOP is not complete yet; never 0.
    candidate: Option<usize>,
    /// Latest presentation time handed out.
    latest: Option<i64>,
    /// No packet so far had a time.
    untimed: bool,
    may_cut: bool,
    packets_max: usize,
    piece_packets: usize,
    is_continued: bool,
    ready: VecDeque<Segment<P>>,
}

impl<P> Segmenter<P> {
    pub(crate) fn new() -> Segmenter<P> {
        Segmenter {
            gathered: Vec::new(),
            gathered_bytes: 0,
            candidate: None,
            latest: None,
            untimed: true,
            may_cut: true,
            packets_max: SEGMENT_PACKETS_MAX,
            piece_packets: PIECE_PACKETS,
            is_continued: false,
            ready: VecDeque::new(),
        }
    }

    /// Everything from here on continues one decoder.
    pub(crate) fn stop_cutting(&mut self) {
        self.may_cut = false;
        self.candidate = None;
    }

    /// Packets come at the pace at which they are made, which may be one a second: each is a piece.
    pub(crate) fn flow(&mut self) {
        self.stop_cutting();
        self.piece_packets = 1;
    }

    /// Holds at most so many packets, and no fewer than a piece has, before the first segment is
    /// handed out; later ones are looked for as ever, as whole GOPs keep all threads busy.
    pub(crate) fn hold_at_first(&mut self, packets: usize) {
        self.packets_max = packets.clamp(PIECE_PACKETS, SEGMENT_PACKETS_MAX);
    }

    /// Takes the next packet in decode order.
    pub(crate) fn push(&mut self, unit: CodedPacket<P>) {
        if unit.reconfigures {
            self.stop_cutting();
        }
        if unit.coded.is_start && !self.gathered.is_empty() {
            self.cut_at_candidate();
            // The cut may have emptied the list, and may have been the last one ever.
            self.candidate =
                (self.may_cut && !self.gathered.is_empty()).then_some(self.gathered.len());
        }
        self.untimed &= unit.pts.is_none();
        self.gathered_bytes += unit.bytes;
        self.gathered.push(unit);
        let is_piece = self.candidate.is_none() && (self.is_continued || !self.may_cut);
        let packets_max = if is_piece { self.piece_packets } else { self.packets_max };
        if self.gathered.len() >= packets_max || self.gathered_bytes >= SEGMENT_BYTES_MAX {
            self.candidate = None;
            self.hand_out(self.gathered.len(), true);
        }
    }

    /// The stream has ended.
    pub(crate) fn finish(&mut self) {
        self.cut_at_candidate();
        self.candidate = None;
        if !self.gathered.is_empty() || self.is_continued {
            self.hand_out(self.gathered.len(), false);
        }
    }

    /// The next complete segment.
    pub(crate) fn pop(&mut self) -> Option<Segment<P>> {
        self.ready.pop_front()
    }

    /// Packets not handed out yet.
    pub(crate) fn pending_packets(&self) -> usize {
        let ready: usize = self.ready.iter().map(|segment| segment.units.len()).sum();
        ready + self.gathered.len()
    }

    fn cut_at_candidate(&mut self) {
        let Some(at) = self.candidate.take() else { return };
        match self.judge(at) {
            Verdict::Cut => self.hand_out(at, false),
            Verdict::NotHere => {}
            Verdict::NeverAgain => self.stop_cutting(),
        }
    }

    fn judge(&self, at: usize) -> Verdict {
        let (before, after) = self.gathered.split_at(at);
        if after.iter().any(|unit| unit.coded.needs_earlier) {
            return Verdict::NotHere;
        }
        if self.untimed {
            // Only raw H.264 and H.265 come without times; there a start orders its pictures
            // after all earlier ones (H.264 8.2.1, H.265 8.3.1).
            return Verdict::Cut;
        }
        // libav replaces times that are missing or repeated by guesses from all that went
        // before, which only one continuous decoder makes the same way.
        let (Some(before), Some(after)) = (sorted_times(before), sorted_times(after)) else {
            return Verdict::NeverAgain;
        };
        let latest = before.last().copied().max(self.latest);
        match (latest, after.first()) {
            (Some(latest), Some(&first)) if latest >= first => Verdict::NotHere,
            _ => Verdict::Cut,
        }
    }

    fn hand_out(&mut self, count: usize, is_continued: bool) {
        let rest = self.gathered.split_off(count);
        let units = std::mem::replace(&mut self.gathered, rest);
        self.gathered_bytes = self.gathered.iter().map(|unit| unit.bytes).sum();
        let shown = units.iter().filter(|unit| unit.is_shown());
        self.latest = shown.filter_map(|unit| unit.pts).max().max(self.latest);
        self.ready.push_back(Segment {
            units,
            continues_previous: self.is_continued,
            is_continued,
        });
        self.is_continued = is_continued;
        self.packets_max = SEGMENT_PACKETS_MAX;
    }
}

enum Verdict {
    Cut,
    NotHere,
    NeverAgain,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A letter per packet: S start, p other, h hidden start-less, r needs earlier pictures,
    /// x reconfigures; then its time.
    fn unit(kind: char, pts: Option<i64>) -> CodedPacket<()> {
        CodedPacket {
            pts,
            is_discarded: false,
            reconfigures: kind == 'x',
            coded: PacketInfo {
                is_start: kind == 'S',
                needs_earlier: kind == 'r',
                is_hidden: kind == 'h',
                ..PacketInfo::default()
            },
            bytes: 1,
            payload: (),
        }
    }

    /// Lengths of the segments; `+` after one that the next continues.
    fn cuts(units: impl IntoIterator<Item = CodedPacket<()>>) -> Vec<String> {
        let mut segmenter = Segmenter::new();
        let mut found: Vec<Segment<()>> = Vec::new();
        for unit in units {
            segmenter.push(unit);
            found.extend(segmenter.pop());
        }
        segmenter.finish();
        found.extend(std::iter::from_fn(|| segmenter.pop()));
        let mut continues = false;
        for segment in &found {
            assert_eq!(segment.continues_previous, continues);
            continues = segment.is_continued;
        }
        assert!(!continues, "the last segment ends its decoder");
        let name = |segment: &Segment<()>| {
            format!("{}{}", segment.units.len(), if segment.is_continued { "+" } else { "" })
        };
        found.iter().map(name).collect()
    }

    #[test]
    fn cuts_fall_only_where_they_change_nothing() {
        let cases: [(&str, &str, &[i64], &[&str]); 9] = [
            ("closed GOPs", "SppSpp", &[0, 2, 1, 3, 5, 4], &["3", "3"]),
            ("leading picture", "SppSpp", &[0, 1, 2, 4, 3, 5], &["3", "3"]),
            ("leading picture of the past", "SppSpp", &[0, 1, 4, 5, 3, 6], &["6"]),
            ("needs earlier pictures", "SppSrpSp", &[0, 1, 2, 5, 4, 6, 7, 8], &["6", "2"]),
            ("earlier part shown later", "SppSpp", &[0, 1, 9, 3, 4, 5], &["6"]),
            ("no start at first", "ppSp", &[0, 1, 2, 3], &["2", "2"]),
            ("hidden times do not count", "SphSp", &[0, 1, 9, 2, 3], &["3", "2"]),
            ("repeated time", "SppSppSpp", &[0, 1, 1, 2, 3, 4, 5, 6, 7], &["9"]),
            ("new configuration", "SpSpSxSp", &[0, 1, 2, 3, 4, 5, 6, 7], &["2", "6"]),
        ];
        for (name, kinds, times, expected) in cases {
            let units = kinds.chars().zip(times).map(|(kind, &pts)| unit(kind, Some(pts)));
            assert_eq!(cuts(units), expected, "{name}");
        }
    }

    #[test]
    fn a_missing_time_ends_cutting_and_no_times_at_all_do_not() {
        let with =
            |missing: &[usize]| {
                let units = "SppSppSpp".chars().enumerate();
                let missing = missing.to_vec();
                cuts(units.map(move |(at, kind)| {
                    unit(kind, (!missing.contains(&at)).then_some(at as i64))
                }))
            };
        assert_eq!(with(&[]), ["3", "3", "3"]);
        assert_eq!(with(&[4]), ["9"]);
        assert_eq!(with(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), ["3", "3", "3"]);
    }

    #[test]
    fn what_is_too_long_to_hold_goes_out_in_pieces() {
        let long = SEGMENT_PACKETS_MAX as i64;
        let kind = |at: i64| if at == 0 || at >= long + 100 && at % 10 == 0 { 'S' } else { 'p' };
        let found = cuts((0..long + 120).map(|at| unit(kind(at), Some(at))));
        assert_eq!(found, ["1024+", "64+", "42", "10", "4"], "bounded, then cut again");
    }

    #[test]
    fn whoever_is_in_a_hurry_gets_a_long_first_gop_in_pieces() {
        let rows: [(usize, usize, &[usize]); 5] = [
            (30, 1024, &[30, 30, 30]),
            (30, 64, &[30, 30, 30]),
            (100, 64, &[64, 36, 100, 100]),
            (100, 1, &[64, 36, 100, 100]),
            (200, 1, &[64, 64, 64, 8, 200, 200]),
        ];
        for (gop, hold, expected) in rows {
            let mut segmenter = Segmenter::new();
            segmenter.hold_at_first(hold);
            for at in 0..gop * 3 {
                let kind = if at % gop == 0 { 'S' } else { 'p' };
                segmenter.push(unit(kind, Some(at as i64)));
            }
            segmenter.finish();
            let found = std::iter::from_fn(|| segmenter.pop()).map(|segment| segment.units.len());
            assert_eq!(found.collect::<Vec<_>>(), expected, "GOPs of {gop}, {hold} held");
        }
    }

    #[test]
    fn a_camera_is_not_waited_for() {
        let mut segmenter = Segmenter::new();
        segmenter.flow();
        let mut taken = Vec::new();
        for at in 0..20 {
            segmenter.push(unit(if at % 5 == 0 { 'S' } else { 'p' }, Some(at)));
            taken.extend(segmenter.pop().map(|piece| (at, piece.units.len())));
        }
        assert_eq!(taken, (0..20).map(|at| (at, 1)).collect::<Vec<_>>());
    }

    #[test]
    fn big_packets_are_bounded_too() {
        let mut segmenter = Segmenter::new();
        segmenter.push(CodedPacket { bytes: SEGMENT_BYTES_MAX, ..unit('S', Some(0)) });
        let piece = segmenter.pop().expect("handed out at once");
        assert!(piece.is_continued);
        assert_eq!(segmenter.pending_packets(), 0);
    }
}
