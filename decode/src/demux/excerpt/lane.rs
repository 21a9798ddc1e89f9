//! Times of one stream of an excerpt, relative to the excerpt's first picture. Pure.

use media::{Timebase, Timestamp};

use crate::ffi::{FormatContext, Packet};

pub(super) struct Lane {
    index: usize,
    pub timebase: Timebase,
    /// Ticks of the excerpt's first picture in the source.
    pub zero: i64,
    /// Decode time of the last packet in the excerpt.
    last: Option<i64>,
}

impl Lane {
    /// Makes the times of stream `index` of `source`; the excerpt begins at `zero`.
    pub fn new(source: &FormatContext, index: usize, zero: Timestamp) -> Option<Lane> {
        let timebase = source.timebase(i32::try_from(index).ok()?)?;
        Some(Lane { index, timebase, zero: zero.ticks_of(timebase), last: None })
    }

    pub fn is_of(&self, packet: &Packet) -> bool {
        usize::try_from(packet.stream()) == Ok(self.index)
    }

    pub fn ms(&self, ticks: i64) -> i64 {
        Timestamp::new(ticks, self.timebase).as_millis()
    }

    /// Returns the presentation and decode time of the next packet in the excerpt. Decode times always
    /// increase, and no presentation time precedes its decode time, whatever the source says.
    pub fn place(&mut self, pts: i64, dts: i64) -> (i64, i64) {
        let next = self.last.map_or(i64::MIN, |last| last.saturating_add(1));
        let dts = dts.saturating_sub(self.zero).max(next);
        self.last = Some(dts);
        (pts.saturating_sub(self.zero).max(dts), dts)
    }
}
