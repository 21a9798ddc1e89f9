//! Counts the server's RTCP feedback, which the connection handles without reporting it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use rtc::{
    interceptor::{Interceptor, Packet, StreamInfo, TaggedPacket},
    rtcp::{
        Packet as Report,
        payload_feedbacks::{
            full_intra_request::FullIntraRequest, picture_loss_indication::PictureLossIndication,
        },
        transport_feedbacks::transport_layer_nack::TransportLayerNack,
    },
    sansio::Protocol,
    shared::error::Error,
};

/// Counts of feedback so far; the counts are independent.
#[derive(Debug, Default)]
pub(super) struct FeedbackCounters {
    /// Packets requested again (NACK).
    pub(super) asked: AtomicU64,
    /// Keyframe requests (PLI and FIR).
    pub(super) keyframes: AtomicU64,
}

impl FeedbackCounters {
    fn hear(&self, report: &dyn Report) {
        let report = report.as_any();
        if let Some(nack) = report.downcast_ref::<TransportLayerNack>() {
            let asked = nack.nacks.iter().map(|pair| 1 + pair.lost_packets.count_ones());
            self.asked.fetch_add(u64::from(asked.sum::<u32>()), Relaxed);
        } else if report.is::<PictureLossIndication>() || report.is::<FullIntraRequest>() {
            self.keyframes.fetch_add(1, Relaxed);
        }
    }
}

/// Interceptor that counts incoming feedback and passes everything on.
pub(super) struct FeedbackInterceptor {
    heard: Arc<FeedbackCounters>,
    inbound: VecDeque<TaggedPacket>,
    outbound: VecDeque<TaggedPacket>,
}

impl FeedbackInterceptor {
    pub(super) fn new(heard: Arc<FeedbackCounters>) -> FeedbackInterceptor {
        FeedbackInterceptor { heard, inbound: VecDeque::new(), outbound: VecDeque::new() }
    }
}

impl Protocol<TaggedPacket, TaggedPacket, ()> for FeedbackInterceptor {
    type Rout = TaggedPacket;
    type Wout = TaggedPacket;
    type Eout = ();
    type Error = Error;
    type Time = Instant;

    fn handle_read(&mut self, packet: TaggedPacket) -> Result<(), Error> {
        if let Packet::Rtcp(reports) = &packet.message.packet {
            reports.iter().for_each(|report| self.heard.hear(&**report));
        }
        self.inbound.push_back(packet);
        Ok(())
    }

    fn poll_read(&mut self) -> Option<TaggedPacket> {
        self.inbound.pop_front()
    }

    fn handle_write(&mut self, packet: TaggedPacket) -> Result<(), Error> {
        self.outbound.push_back(packet);
        Ok(())
    }

    fn poll_write(&mut self) -> Option<TaggedPacket> {
        self.outbound.pop_front()
    }
}

impl Interceptor for FeedbackInterceptor {
    fn bind_local_stream(&mut self, _info: &StreamInfo) {}
    fn unbind_local_stream(&mut self, _info: &StreamInfo) {}
    fn bind_remote_stream(&mut self, _info: &StreamInfo) {}
    fn unbind_remote_stream(&mut self, _info: &StreamInfo) {}
}
