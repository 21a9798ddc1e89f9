//! Cuts a stream of packets where a new decoder gives the same pictures as the old one.
//!
//! A cut needs a clean start by its bytes and no picture in its whole GOP that is presented before it, so a
//! GOP is held until the next start. In an open GOP, the pictures that lead its start go to the segment
//! before, after a repetition of the start, which they refer to and which is not shown there. A stretch that
//! cannot be cut within the limits is handed out in pieces that share one decoder. Pure: packets in, segments
//! out.

use std::collections::VecDeque;

use crate::random_access::PacketInfo;

/// Most packets held before a cut: two GOPs of 10 s at 50 frames a second.
pub(crate) const SEGMENT_PACKETS_MAX: usize = 1024;
/// Most bytes held before a cut: two GOPs of 2 s at 64 Mbit/s.
pub(crate) const SEGMENT_BYTES_MAX: usize = 32 << 20;
/// Fewest packets of a segment before a start that is decoded twice. Decoding it again costs three to five
/// pictures, so at most a twentieth.
const REPEAT_PACKETS_MIN: usize = 90;
/// Packets of a piece that continues a decoder; small, so that outputs keep coming.
const PIECE_PACKETS: usize = 64;

/// Packet with the facts known about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodedPacket<P> {
    /// Presentation time in stream ticks.
    pub(crate) pts: Option<i64>,
    /// True if the container's edit list hides the picture.
    pub(crate) is_discarded: bool,
    /// True for a repetition of the next segment's start, which is shown there and only referred to here.
    pub(crate) is_repeat: bool,
    /// True if the packet changes the decoder's configuration out of band.
    pub(crate) reconfigures: bool,
    /// Facts about the picture from its bytes.
    pub(crate) coded: PacketInfo,
    /// Number of coded bytes.
    pub(crate) bytes: usize,
    pub(crate) payload: P,
}

impl<P> CodedPacket<P> {
    /// Returns true if the packet gives one output picture.
    pub(crate) fn is_shown(&self) -> bool {
        !self.is_discarded && !self.is_repeat && !self.coded.is_hidden
    }
}

/// Coded bytes that can be sent to two decoders.
pub(crate) trait Payload: Sized {
    /// Returns the same bytes for another decoder, with a time that identifies their picture; `None` if
    /// memory runs out.
    fn repeated(&self) -> Option<Self>;
}

impl<P: Payload> CodedPacket<P> {
    fn repeated(&self) -> Option<CodedPacket<P>> {
        let (coded, payload) = (self.coded.clone(), self.payload.repeated()?);
        Some(CodedPacket { is_repeat: true, coded, payload, ..*self })
    }
}

/// Packets in decode order that are decoded together.
#[derive(Clone, Debug)]
pub(crate) struct PacketSegment<P> {
    pub(crate) units: Vec<CodedPacket<P>>,
    /// True if it continues with the decoder of the previous segment.
    pub(crate) continues_previous: bool,
    /// True if the next segment continues with this one's decoder.
    pub(crate) is_continued: bool,
}

impl<P> PacketSegment<P> {
    /// Returns the presentation times of the shown pictures in order; `None` unless all are known and
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

/// Collects packets and hands out segments.
pub(crate) struct Segmenter<P> {
    gathered: Vec<CodedPacket<P>>,
    gathered_bytes: usize,
    /// Index in `gathered` of the clean start whose GOP is incomplete; never 0.
    candidate: Option<usize>,
    /// Latest presentation time handed out.
    latest: Option<i64>,
    /// True if no packet so far had a time.
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

    /// Stops cutting: everything from here on continues one decoder.
    pub(crate) fn stop_cutting(&mut self) {
        self.may_cut = false;
        self.candidate = None;
    }

    /// Makes each packet a piece of its own, for a live source that may have one packet a second.
    pub(crate) fn flow(&mut self) {
        self.stop_cutting();
        self.piece_packets = 1;
    }

    /// Limits the packets held before the first segment, to at least those of a piece. Later segments have
    /// the usual limit, as whole GOPs keep all threads busy.
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
            // The cut may have emptied the list, or ended all cutting.
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

    /// Ends the stream.
    pub(crate) fn finish(&mut self) {
        self.cut_at_candidate();
        self.candidate = None;
        if !self.gathered.is_empty() || self.is_continued {
            self.hand_out(self.gathered.len(), false);
        }
    }

    /// Returns the next complete segment.
    pub(crate) fn pop(&mut self) -> Option<PacketSegment<P>> {
        self.ready.pop_front()
    }

    /// Returns the number of packets not handed out yet.
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
            // Only raw H.264 and H.265 have no times; there a start orders its pictures after all earlier
            // ones (H.264 8.2.1, H.265 8.3.1).
            return cut;
        }
        // libav replaces missing or repeated times by guesses from all earlier packets, which only one
        // continuous decoder repeats exactly.
        let before = sorted_times(before.iter().chain(leading));
        let after = sorted_times(start.iter().chain(trailing));
        let (Some(before), Some(after)) = (before, after) else { return Verdict::NeverAgain };
        let latest = before.last().copied().max(self.latest);
        match (latest, after.first()) {
            (Some(latest), Some(&first)) if latest >= first => Verdict::NotHere,
            _ => cut,
        }
    }

    /// Hands out the packets before the start at `at`, and the `leading` pictures after it.
    fn hand_out_open(&mut self, at: usize, leading: usize) {
        let Some(start) = self.gathered[at].repeated() else { return };
        self.gathered.insert(at, start);
        // The start itself follows them, in the next segment.
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
    /// Cut after this many leading pictures of the start.
    CutOpen {
        leading: usize,
    },
    NotHere,
    NeverAgain,
}

#[cfg(test)]
mod tests;
