//! Video of a session: selection of its source, and its receiver.
//!
//! One source at a time: its packets, retransmissions and sender reports go to one `RtpReceiver`. Promises
//! that timestamps never go back when a peer changes its source or codec.

use std::{
    collections::VecDeque,
    mem,
    time::{Duration, Instant},
};

use media::Timestamp;

use super::{
    codecs::{PayloadFormat, PayloadKind, PayloadTypeMap},
    receiver_report::ReceptionStats,
    rtcp::ReportBlock,
    stats::DropReason,
};
use crate::rtp::{ReceivedUnit, ReceiverOutput, ReceiverStats, RtpPacket, RtpReceiver};

/// Silence of the current source after which another one may replace it: a simulcast layer that was not
/// negotiated must not alternate with it.
const SILENT: Duration = Duration::from_millis(500);
/// Ticks per second of media time.
const CLOCK: i64 = 90_000;

/// Receiver of the video of a session.
pub(super) struct VideoTrack {
    payloads: PayloadTypeMap,
    video: Vec<PayloadFormat>,
    current: Option<Current>,
    /// Units of replaced receivers, which bound their number.
    finished: VecDeque<ReceivedUnit>,
    replaced: ReceiverStats,
    /// Latest timestamp returned, and the arrival of its unit.
    last: Option<(i64, Instant)>,
}

struct Current {
    payload_type: u8,
    receiver: RtpReceiver,
    reception: ReceptionStats,
    heard_at: Instant,
    /// True if the source sent BYE and no packet since.
    has_left: bool,
    /// Offset added to the receiver's timestamps.
    base: i64,
}

impl Current {
    fn is_heard(&self, now: Instant) -> bool {
        !self.has_left && now.saturating_duration_since(self.heard_at) < SILENT
    }
}

impl VideoTrack {
    pub(super) fn new(payloads: PayloadTypeMap, video: Vec<PayloadFormat>) -> VideoTrack {
        let (finished, replaced) = (VecDeque::new(), ReceiverStats::default());
        VideoTrack { payloads, video, current: None, finished, replaced, last: None }
    }

    pub(super) fn carries(&self, payload_type: u8) -> PayloadKind {
        self.payloads.get(payload_type)
    }

    pub(super) fn ssrc(&self) -> Option<u32> {
        self.current.as_ref().map(|current| current.reception.ssrc)
    }

    pub(super) fn packet(
        &mut self,
        packet: &RtpPacket<'_>,
        now: Instant,
    ) -> Result<(), DropReason> {
        match self.carries(packet.payload_type) {
            PayloadKind::Video(_) => self.video(packet, now),
            PayloadKind::Rtx(of) => {
                let Some(current) = &mut self.current else { return Ok(()) };
                if current.payload_type == of
                    && let Some(inner) = packet.unwrap_rtx(of, current.reception.ssrc)
                {
                    current.receiver.rtx_packet(&inner, now);
                }
                Ok(())
            }
            PayloadKind::Audio => Ok(()),
            PayloadKind::Unknown => Err(DropReason::MediaPayload),
        }
    }

    fn video(&mut self, packet: &RtpPacket<'_>, now: Instant) -> Result<(), DropReason> {
        let is_same = |current: &&mut Current| {
            current.reception.ssrc == packet.ssrc && current.payload_type == packet.payload_type
        };
        if let Some(current) = self.current.as_mut().filter(is_same) {
            current.reception.packet(packet.sequence, packet.timestamp, now);
            (current.heard_at, current.has_left) = (now, false);
            current.receiver.packet(packet, now);
            return Ok(());
        }
        self.change(packet, now)
    }

    /// Handles a packet of another source or payload type than the current one.
    fn change(&mut self, packet: &RtpPacket<'_>, now: Instant) -> Result<(), DropReason> {
        let at = self.video.iter().position(|payload| payload.number == packet.payload_type);
        let at = at.ok_or(DropReason::MediaPayload)?;
        let same_source = match &self.current {
            None => false,
            Some(current) if current.reception.ssrc == packet.ssrc => {
                // Packets sent before the change may arrive after it.
                if !current.reception.is_newer(packet.sequence) {
                    return Ok(());
                }
                true
            }
            Some(current) if current.is_heard(now) => return Err(DropReason::MediaSources),
            Some(_) => false,
        };
        let mut reception =
            ReceptionStats::new(packet.ssrc, packet.sequence, packet.timestamp, now);
        if same_source && let Some(current) = &mut self.current {
            // The counts of a source go on when its payload type changes (RFC 3550 6.4.1).
            mem::swap(&mut reception, &mut current.reception);
            reception.packet(packet.sequence, packet.timestamp, now);
        }
        let codec = PayloadKind::Video(self.video[at].codec);
        let before = self.current.as_ref().map(|current| self.payloads.get(current.payload_type));
        if before.is_some_and(|before| before != codec) {
            self.collect(now);
            self.current = None;
        }
        let kept = self.current.take();
        let payload = &self.video[at];
        let (mut receiver, base) = match kept {
            Some(mut current) => {
                if !same_source {
                    current.receiver.source_changed();
                }
                (current.receiver, current.base)
            }
            None => {
                let receiver = RtpReceiver::new(payload.codec, &payload.parameter_sets);
                (receiver.ok_or(DropReason::MediaPayload)?, self.elapsed(now))
            }
        };
        receiver.packet(packet, now);
        self.current = Some(Current {
            payload_type: packet.payload_type,
            receiver,
            reception,
            heard_at: now,
            has_left: false,
            base,
        });
        Ok(())
    }

    /// Records a BYE: another source may replace this one at once.
    pub(super) fn left(&mut self, ssrc: u32) {
        if let Some(current) = &mut self.current {
            current.has_left |= current.reception.ssrc == ssrc;
        }
    }

    /// Keeps the complete units of the current receiver, which is about to be replaced; its missing packets
    /// are given up.
    fn collect(&mut self, now: Instant) {
        let Some(current) = &mut self.current else { return };
        current.receiver.finish();
        self.replaced = self.counts();
        while let Some(output) = self.receive(now) {
            if let ReceiverOutput::Unit(unit) = output {
                self.finished.push_back(unit);
            }
        }
    }

    /// Returns the timestamp at which a new receiver starts.
    fn elapsed(&self, now: Instant) -> i64 {
        self.last.map_or(0, |(ticks, at)| {
            let since = now.saturating_duration_since(at).as_micros();
            let since = i64::try_from(since).unwrap_or(i64::MAX / CLOCK) * CLOCK / 1_000_000;
            ticks + since.max(1)
        })
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<ReceiverOutput> {
        self.finished.pop_front().map(ReceiverOutput::Unit).or_else(|| self.receive(now))
    }

    fn receive(&mut self, now: Instant) -> Option<ReceiverOutput> {
        let current = self.current.as_mut()?;
        let mut output = current.receiver.poll(now)?;
        if let ReceiverOutput::Unit(unit) = &mut output {
            let pts = unit.access_unit.pts;
            let ticks = pts.ticks + current.base;
            unit.access_unit.pts = Timestamp::new(ticks, pts.timebase);
            let latest = self.last.map_or(ticks, |(last, _)| last.max(ticks));
            self.last = Some((latest, unit.last_packet_at));
        }
        Some(output)
    }

    /// Returns the time of the next poll if no packet arrives.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.current.as_ref().and_then(|current| current.receiver.timeout())
    }

    /// Records a sender report, if it is of the video source.
    pub(super) fn reported(&mut self, ssrc: u32, ntp: u64, rtp: u32, now: Instant) {
        if let Some(current) = self.current.as_mut().filter(|one| one.reception.ssrc == ssrc) {
            current.reception.reported(ntp, now);
            current.receiver.sender_report(ntp, rtp);
        }
    }

    pub(super) fn block(&mut self, now: Instant) -> Option<ReportBlock> {
        self.current.as_mut().map(|current| current.reception.block(now))
    }

    pub(super) fn counts(&self) -> ReceiverStats {
        let counts = self.current.as_ref().map(|current| current.receiver.counts());
        let ReceiverStats { lost, repaired } = counts.unwrap_or_default();
        ReceiverStats {
            lost: self.replaced.lost + lost,
            repaired: self.replaced.repaired + repaired,
        }
    }

    /// Returns the interarrival jitter of the video, in microseconds.
    pub(super) fn jitter_us(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.reception.jitter_us())
    }
}

#[cfg(test)]
mod tests;
