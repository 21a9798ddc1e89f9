//! Lets what the server says of the media through to the session, which counts and heeds it; the
//! connection keeps it to itself otherwise.

use std::{collections::VecDeque, time::Instant};

use rtc::{
    interceptor::{Attribute, Interceptor, Packet, StreamInfo, TaggedPacket},
    rtcp::receiver_report::ReceiverReport,
    sansio::Protocol,
    shared::error::Error,
};

/// Passes everything, and marks RTCP that came in for delivery.
#[derive(Default)]
pub(super) struct Feedback {
    inbound: VecDeque<TaggedPacket>,
    outbound: VecDeque<TaggedPacket>,
}

impl Protocol<TaggedPacket, TaggedPacket, ()> for Feedback {
    type Rout = TaggedPacket;
    type Wout = TaggedPacket;
    type Eout = ();
    type Error = Error;
    type Time = Instant;

    fn handle_read(&mut self, mut packet: TaggedPacket) -> Result<(), Error> {
        if let Packet::Rtcp(reports) = &mut packet.message.packet {
            // Where a report about nobody comes first, the connection would drop them all.
            reports.retain(|report| !report.as_any().is::<ReceiverReport>());
            if reports.is_empty() {
                return Ok(());
            }
            packet.message = packet.message.with(Attribute::DeliverToApplication);
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

impl Interceptor for Feedback {
    fn bind_local_stream(&mut self, _info: &StreamInfo) {}
    fn unbind_local_stream(&mut self, _info: &StreamInfo) {}
    fn bind_remote_stream(&mut self, _info: &StreamInfo) {}
    fn unbind_remote_stream(&mut self, _info: &StreamInfo) {}
}
