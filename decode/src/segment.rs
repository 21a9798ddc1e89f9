//! Cuts a stream of packets where a new decoder gives the same pictures as the old one.
//!
//! A cut needs a clean start by its bytes and, over the whole GOP that follows, no picture shown
//! before the cut: so a GOP is held until the next start is seen. Of an open GOP the pictures that lead its
//! start go to the segment before, behind a repetition of the start that they refer to and that is not
//! shown there. What cannot be cut within the bounds is handed out in pieces that continue one decoder.
//! Pure: packets in, segments out.

use std::collections::VecDeque;

use crate::random_access::PacketInfo;

/// Most packets held while a cut is looked for: two GOPs of 10 s at 50 frames a second.
pub(crate) const SEGMENT_PACKETS_MAX: usize = 1024;
/// Most bytes held while a cut is looked for: two GOPs of 2 s at 64 Mbit/s.
pub(crate) const SEGMENT_BYTES_MAX: usize = 32 << 20;
/// Fewest packets of a segment before a start that is decoded twice: that costs as much as three to five
/// pictures, so a twentieth at most.
const REPEAT_PACKETS_MIN: usize = 90;
/// Packets of a piece that continues a decoder; small, so that outputs flow.
const PIECE_PACKETS: usize = 64;

/// One packet with what is known about it.
#[derive(Clone, Debug)]
pub(crate) struct CodedPacket<P> {
    /// Presentation time in stream ticks.
    pub(crate) pts: Option<i64>,
    /// The container's edit list hides its picture.
    pub(crate) is_discarded: bool,
    /// It begins the next segment, which shows its picture; here others refer to it.
    pub(crate) is_repeat: bool,
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
        !self.is_discarded && !self.is_repeat && !self.coded.is_hidden
    }
}

/// Bytes that can go to two decoders.
pub(crate) trait Payload: Sized {
    /// The same bytes for another decoder, with a time by which their picture is known; `None` without
    /// memory.
    fn repeated(&self) -> Option<Self>;
}

impl<P: Payload> CodedPacket<P> {
    fn repeated(&self) -> Option<CodedPacket<P>> {
        let (coded, payload) = (self.coded.clone(), self.payload.repeated()?);
        Some(CodedPacket { is_repeat: true, coded, payload, ..*self })
    }
}

/// Packets in decode order that are decoded in one go.
#[derive(Clone, Debug)]
pub(crate) struct PacketSegment<P> {
    pub(crate) units: Vec<CodedPacket<P>>,
    /// Goes on with the decoder of the segment before.
    pub(crate) continues_previous: bool,
    /// The next segment goes on with this one's decoder.
    pub(crate) is_continued: bool,
}

impl<P> PacketSegment<P> {
    /// Presentation times of the shown pictures in order; `None` unless all are known and
    /// distinct.
    pub(crate) fn shown_times(&self) -> Option<Vec<i64>> {
        sorted_times(self.units.iter())
    }

    pub(crate) fn shown_count(&self) -> u64 {
        self.units.iter().filter(|unit| unit.is_shown()).count() as u64
    }
}

fn sorted_times<'a, P: 'a>(units: impl Iterator<Item = &'a CodedPacket<P>>) -> Option<Vec<i64>> {
    let shown = units.filter(|unit| unit.is_shown());
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
    repeat_packets_min: usize,
    piece_packets: usize,
    is_continued: bool,
    ready: VecDeque<PacketSegment<P>>,
}

impl<P: Payload> Segmenter<P> {
    pub(crate) fn new() -> Segmenter<P> {
        Segmenter {
            gathered: Vec::new(),
            gathered_bytes: 0,
            candidate: None,
            latest: None,
            untimed: true,
            may_cut: true,
            packets_max: SEGMENT_PACKETS_MAX,
            repeat_packets_min: REPEAT_PACKETS_MIN,
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
    pub(crate) fn pop(&mut self) -> Option<PacketSegment<P>> {
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
            Verdict::CutOpen { leading } => self.hand_out_open(at, leading),
            Verdict::NotHere => {}
            Verdict::NeverAgain => self.stop_cutting(),
        }
    }

    fn judge(&self, at: usize) -> Verdict {
        let (before, gop) = self.gathered.split_at(at);
        let (start, others) = gop.split_at(1);
        let is_open = |units: &[CodedPacket<P>]| units.iter().any(|unit| unit.coded.needs_earlier);
        let (leading, trailing) = if is_open(others) {
            others.split_at(others.iter().take_while(|unit| unit.coded.is_leading).count())
        } else {
            others.split_at(0)
        };
        if is_open(trailing) || (!leading.is_empty() && at < self.repeat_packets_min) {
            return Verdict::NotHere;
        }
        let cut = match leading.len() {
            0 => Verdict::Cut,
            leading => Verdict::CutOpen { leading },
        };
        if self.untimed {
            // Only raw H.264 and H.265 come without times; there a start orders its pictures
            // after all earlier ones (H.264 8.2.1, H.265 8.3.1).
            return cut;
        }
        // libav replaces times that are missing or repeated by guesses from all that went
        // before, which only one continuous decoder makes the same way.
        let before = sorted_times(before.iter().chain(leading));
        let after = sorted_times(start.iter().chain(trailing));
        let (Some(before), Some(after)) = (before, after) else { return Verdict::NeverAgain };
        let latest = before.last().copied().max(self.latest);
        match (latest, after.first()) {
            (Some(latest), Some(&first)) if latest >= first => Verdict::NotHere,
            _ => cut,
        }
    }

    /// Hands out what comes before the start at `at`, and so many pictures behind it that lead it.
    fn hand_out_open(&mut self, at: usize, leading: usize) {
        let Some(start) = self.gathered[at].repeated() else { return };
        self.gathered.insert(at, start);
        // The start itself comes behind them.
        self.gathered[at + 1..at + 2 + leading].rotate_left(1);
        self.hand_out(at + 1 + leading, false);
    }

    fn hand_out(&mut self, count: usize, is_continued: bool) {
        let rest = self.gathered.split_off(count);
        let units = std::mem::replace(&mut self.gathered, rest);
        self.gathered_bytes = self.gathered.iter().map(|unit| unit.bytes).sum();
        let shown = units.iter().filter(|unit| unit.is_shown());
        self.latest = shown.filter_map(|unit| unit.pts).max().max(self.latest);
        self.ready.push_back(PacketSegment {
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
    /// Behind so many pictures that lead the start.
    CutOpen {
        leading: usize,
    },
    NotHere,
    NeverAgain,
}

#[cfg(test)]
mod tests;
