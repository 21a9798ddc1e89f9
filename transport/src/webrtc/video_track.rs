//! Video of a session: selection of its source, and its receiver.
//!
//! One source at a time: its packets, retransmissions and sender reports go to one `RtpReceiver`. Promises
//! that timestamps never go back when a peer changes its source or codec.

use std::time::{Duration, Instant};

use super::{
    codecs::{PayloadFormat, PayloadKind, PayloadTypeMap},
    receiver_report::ReceptionStats,
    rtcp::ReportBlock,
    stats::DropReason,
};
use crate::rtp::{ReceiverOutput, ReceiverStats, RtpPacket, RtpReceiver};

/// Silence of the current source after which another one may replace it: a simulcast layer that was not
/// negotiated must not alternate with it.
const SILENT: Duration = Duration::from_millis(500);

/// Receiver of the video of a session.
pub(super) struct VideoTrack {
    payloads: PayloadTypeMap,
    video: Vec<PayloadFormat>,
    current: Option<Current>,
}

struct Current {
    payload_type: u8,
    receiver: RtpReceiver,
    reception: ReceptionStats,
    heard_at: Instant,
    /// True if the source sent BYE and no packet since.
    has_left: bool,
}

impl VideoTrack {
    pub(super) fn new(payloads: PayloadTypeMap, video: Vec<PayloadFormat>) -> VideoTrack {
        VideoTrack { payloads, video, current: None }
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
        let payload_type = packet.payload_type;
        let format = self.video.iter().find(|format| format.number == payload_type);
        let PayloadFormat { codec, parameter_sets, .. } = format.ok_or(DropReason::MediaPayload)?;
        let reception = ReceptionStats::new(packet.ssrc, packet.sequence, packet.timestamp, now);
        let Some(current) = &mut self.current else {
            let receiver = RtpReceiver::new(*codec, parameter_sets);
            let mut receiver = receiver.ok_or(DropReason::MediaPayload)?;
            receiver.packet(packet, now);
            let (heard_at, has_left) = (now, false);
            self.current = Some(Current { payload_type, receiver, reception, heard_at, has_left });
            return Ok(());
        };
        let same_source = current.reception.ssrc == packet.ssrc;
        // Packets sent before the change may arrive after it.
        if same_source && !current.reception.is_newer(packet.sequence) {
            return Ok(());
        }
        let is_silent = now.saturating_duration_since(current.heard_at) >= SILENT;
        if !same_source && !current.has_left && !is_silent {
            return Err(DropReason::MediaSources);
        }
        if self.payloads.get(current.payload_type) != PayloadKind::Video(*codec) {
            if !current.receiver.codec_changed(*codec, parameter_sets) {
                return Err(DropReason::MediaPayload);
            }
        } else if !same_source {
            current.receiver.source_changed();
        }
        if same_source {
            // The counts of a source go on when its payload type changes (RFC 3550 6.4.1).
            current.reception.packet(packet.sequence, packet.timestamp, now);
        } else {
            current.reception = reception;
        }
        (current.payload_type, current.heard_at, current.has_left) = (payload_type, now, false);
        current.receiver.packet(packet, now);
        Ok(())
    }

    /// Records a BYE: another source may replace this one at once.
    pub(super) fn left(&mut self, ssrc: u32) {
        if let Some(current) = &mut self.current {
            current.has_left |= current.reception.ssrc == ssrc;
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<ReceiverOutput> {
        self.current.as_mut()?.receiver.poll(now)
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
        self.current.as_ref().map(|current| current.receiver.counts()).unwrap_or_default()
    }

    /// Returns the interarrival jitter of the video, in microseconds.
    pub(super) fn jitter_us(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.reception.jitter_us())
    }
}

#[cfg(test)]
mod tests;
