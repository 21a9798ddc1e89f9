//! Predictions from packets: the position after a segment, and frames past as many as are wanted.

use super::{FileTask, Packet, PacketSegment, Sampler, SamplerState, State};

impl FileTask {
    /// Returns the position after `segment` if every shown packet gives one picture.
    pub(super) fn predict(
        &self,
        segment: &PacketSegment<Packet>,
        start: SamplerState,
    ) -> SamplerState {
        self.predicted(segment, start, self.sampler(start))
    }

    fn predicted(
        &self,
        segment: &PacketSegment<Packet>,
        start: SamplerState,
        mut sampler: Sampler,
    ) -> SamplerState {
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

    /// More frames would be sampled by the end of `segment` than are wanted.
    pub(in crate::file) fn exceeds(
        &self,
        segment: &PacketSegment<Packet>,
        start: SamplerState,
    ) -> bool {
        self.past_limit(segment, start).sampled > self.options.max_frames
    }

    /// Returns the position after `segment` if one frame more were wanted.
    fn past_limit(&self, segment: &PacketSegment<Packet>, start: SamplerState) -> SamplerState {
        let one_more = self.options.max_frames.saturating_add(1);
        self.predicted(segment, start, Sampler::new(self.options.sampling, one_more, start))
    }
}

impl State {
    /// Segments that were not handed out have a frame past as many as are wanted. Of a live source,
    /// which is not waited for, it is taken to.
    pub(super) fn has_more(&mut self, task: &FileTask) -> bool {
        if self.exhausted || self.position.sampled < task.options.max_frames {
            return false;
        }
        if self.demuxer.is_live() {
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
