//! A source without a known end, which goes on from frames of an earlier connection.

use media::Timestamp;

use super::Demuxer;
use crate::ffi::Packet;

/// Frames that came of a source before its connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Sampled frames, which count among those that are wanted.
    pub frames: u64,
    /// Pictures, sampled or not.
    pub source_frames: u64,
    /// Time of the last sampled frame.
    pub latest: Timestamp,
    /// Time of the first picture of the new connection.
    pub begins_at: Timestamp,
}

impl Demuxer {
    /// For an input that is made while it is read, and of which nothing says when that ends.
    #[must_use]
    pub fn endless(mut self) -> Demuxer {
        self.stream.is_endless = true;
        self.flowing()
    }

    /// For an input of which each picture is wanted as it comes.
    pub(super) fn flowing(mut self) -> Demuxer {
        self.segmenter.flow();
        Demuxer { flows: true, ..self }
    }

    /// For a source that goes on from these frames: what comes of it is counted and timed from there.
    #[must_use]
    pub fn after(self, earlier: Earlier) -> Demuxer {
        Demuxer { earlier: Some(earlier), ..self }
    }

    /// Returns the ticks by which to move the packet's times: the first picture is shown where the source
    /// goes on.
    pub(super) fn way_on(&mut self, packet: &Packet) -> i64 {
        let Some(earlier) = &self.earlier else { return 0 };
        if self.moved_by.is_none() {
            let goal = earlier.begins_at.ticks_of(self.stream.timebase);
            self.moved_by = packet.pts().or(packet.dts()).map(|first| goal.saturating_sub(first));
        }
        self.moved_by.unwrap_or(0)
    }
}
