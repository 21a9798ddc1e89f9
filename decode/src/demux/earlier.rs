//! Source without a known end that continues an earlier connection.

use media::Timestamp;

use super::Demuxer;
use crate::ffi::Packet;

/// Frames of a source before its connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Number of sampled frames; they count towards the wanted frames.
    pub frames: u64,
    /// Number of pictures, sampled or not.
    pub source_frames: u64,
    /// Time of the last sampled frame.
    pub latest: Timestamp,
    /// Time of the first picture of the new connection.
    pub begins_at: Timestamp,
}

impl Demuxer {
    /// Marks the input as recorded while it is read, without a known end.
    #[must_use]
    pub fn endless(mut self) -> Demuxer {
        self.stream.is_endless = true;
        self.flowing()
    }

    /// Makes each picture available as soon as it arrives.
    pub(super) fn flowing(mut self) -> Demuxer {
        self.segmenter.flow();
        Demuxer { flows: true, ..self }
    }

    /// Continues the indices and times of an earlier connection.
    #[must_use]
    pub fn after(self, earlier: Earlier) -> Demuxer {
        Demuxer { earlier: Some(earlier), ..self }
    }

    /// Returns the index of the first picture, and its time in ticks if the connection gives it none: a step
    /// of `frame_ticks` before the first that has one, if an earlier connection is continued.
    pub(crate) fn untimed_start(&self, frame_ticks: i64) -> (u64, i64) {
        let Some(Earlier { source_frames, latest, begins_at, .. }) = self.earlier else {
            return (0, 0);
        };
        let ticks_of = |at: Timestamp| at.ticks_of(self.stream.timebase);
        let before = ticks_of(begins_at).saturating_sub(frame_ticks);
        (source_frames, before.max(ticks_of(latest).saturating_add(1)))
    }

    /// Returns the ticks to add to the packet's times, so that the first picture is presented at
    /// [`Earlier::begins_at`], or at 0 if it is the first of a live source in parts.
    pub(super) fn way_on(&mut self, packet: &Packet) -> i64 {
        let begins_at = self.earlier.as_ref().map(|earlier| earlier.begins_at);
        let is_in_parts = self.stream.is_endless && self.continuity.is_some();
        if begins_at.is_none() && !is_in_parts {
            return 0;
        }
        if self.moved_by.is_none() {
            let goal = begins_at.map_or(0, |at| at.ticks_of(self.stream.timebase));
            self.moved_by = packet.pts().or(packet.dts()).map(|first| goal.saturating_sub(first));
        }
        self.moved_by.unwrap_or(0)
    }
}
