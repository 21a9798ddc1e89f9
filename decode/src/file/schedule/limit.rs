//! Predictions from packets: the position after a segment, and frames beyond the wanted number.

use super::{FileTask, Packet, PacketSegment, Sampler, SamplerState, State};

impl FileTask {
    /// Returns the position after `segment` if every shown packet gives one picture, of which at most
    /// `max_frames` are sampled in all.
    pub(super) fn predict(
        &self,
        segment: &PacketSegment<Packet>,
        start: SamplerState,
        max_frames: u64,
    ) -> SamplerState {
        let mut sampler = Sampler::new(self.options.sampling, max_frames, start);
        let mut offer = |ticks| {
            sampler.offer(self.at(ticks));
        };
        match segment.shown_times() {
            Some(times) => times.into_iter().for_each(&mut offer),
            None => (start.source_frames..start.source_frames + segment.shown_count())
                .for_each(|index| offer(self.untimed_ticks(index))),
        }
        sampler.position
    }

    /// Returns true if more frames than wanted would be sampled by the end of `segment`.
    pub(in crate::file) fn exceeds(
        &self,
        segment: &PacketSegment<Packet>,
        start: SamplerState,
    ) -> bool {
        self.past_limit(segment, start).sampled > self.options.max_frames
    }

    /// Returns the position after `segment` with a limit of one frame more.
    fn past_limit(&self, segment: &PacketSegment<Packet>, start: SamplerState) -> SamplerState {
        self.predict(segment, start, self.options.max_frames.saturating_add(1))
    }
}

impl State {
    /// Returns true if segments that were not handed out have more frames than wanted. A live source, which
    /// is not awaited, is assumed to have more.
    pub(super) fn has_more(&mut self, task: &FileTask) -> bool {
        if self.exhausted || self.position.sampled < task.options.max_frames {
            return false;
        }
        if self.demuxer.heard_at().is_some() {
            return true;
        }
        let mut end = self.position;
        while let Some(segment) = self.demuxer.next_segment() {
            end = task.past_limit(&segment, end);
            if end.sampled > task.options.max_frames {
                return true;
            }
        }
        false
    }
}
