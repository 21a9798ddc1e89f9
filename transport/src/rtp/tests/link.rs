//! Sender and receiver connected by a scripted path.

use std::collections::BTreeMap;

use media::AccessUnit;

use super::*;

/// Packet that owns its payload.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) sequence: u16,
    pub(super) timestamp: u32,
    pub(super) marker: bool,
    pub(super) payload: Vec<u8>,
}

impl Sent {
    fn packet(&self) -> RtpPacket<'_> {
        RtpPacket {
            payload_type: 96,
            ssrc: 1,
            sequence: self.sequence,
            timestamp: self.timestamp,
            marker: self.marker,
            payload: &self.payload,
        }
    }
}

pub(super) struct Link {
    pub(super) receiver: RtpReceiver,
    now: Instant,
    next: u16,
}

/// First timestamp of the sender's clock, which wraps soon.
const FIRST_TIMESTAMP: u32 = u32::MAX - 5000;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Link {
    pub(super) fn new(codec: Codec) -> Link {
        let receiver = RtpReceiver::new(codec, &[]).expect("is served");
        // The sequence number wraps soon.
        Link { receiver, now: Instant::now(), next: 65_530 }
    }

    /// Creates a link on which a keyframe and a frame have proven the marker.
    pub(super) fn started(codec: Codec) -> Link {
        let mut link = Link::new(codec);
        link.frame(&frame(true, 0, 2), 0);
        link.frame(&frame(false, 1, 2), 3000);
        assert_eq!(names(&link.poll()), [0, 1]);
        link
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Returns the sender's timestamp `ticks` after its start.
    pub(super) fn timestamp(&self, ticks: u32) -> u32 {
        FIRST_TIMESTAMP.wrapping_add(ticks)
    }

    /// Returns the next packet without delivering it.
    pub(super) fn lose(&mut self, payload: &[u8], ticks: u32, marker: bool) -> Sent {
        let (sequence, timestamp) = (self.next, self.timestamp(ticks));
        self.next = self.next.wrapping_add(1);
        Sent { sequence, timestamp, marker, payload: payload.to_vec() }
    }

    /// Skips `packets` sequence numbers, which never arrive.
    pub(super) fn skip(&mut self, packets: u16) {
        self.next = self.next.wrapping_add(packets);
    }

    pub(super) fn deliver(&mut self, sent: &Sent) {
        self.receiver.packet(&sent.packet(), self.now);
        self.receiver.check();
    }

    /// Delivers a packet as a retransmission.
    pub(super) fn deliver_again(&mut self, sent: &Sent) {
        self.receiver.rtx_packet(&sent.packet(), self.now);
        self.receiver.check();
    }

    pub(super) fn send(&mut self, payload: &[u8], ticks: u32, marker: bool) {
        let sent = self.lose(payload, ticks, marker);
        self.deliver(&sent);
    }

    /// Sends all packets of a frame, with the marker on the last one.
    pub(super) fn frame(&mut self, payloads: &[Vec<u8>], ticks: u32) {
        for (index, payload) in payloads.iter().enumerate() {
            self.send(payload, ticks, index + 1 == payloads.len());
        }
    }

    pub(super) fn poll(&mut self) -> Vec<ReceiverOutput> {
        std::iter::from_fn(|| {
            let output = self.receiver.poll(self.now);
            self.receiver.check();
            output
        })
        .collect()
    }

    /// Delivers what is on the way, by its millisecond and order, for `until_ms`; `repeat` returns when a
    /// requested packet arrives again, and true if as a retransmission. Returns the units.
    pub(super) fn carry(
        &mut self,
        mut on_the_way: BTreeMap<(u64, usize), (Sent, bool)>,
        until_ms: u64,
        mut repeat: impl FnMut(u64, u16) -> Option<(u64, Sent, bool)>,
    ) -> Vec<AccessUnit> {
        let (mut units, mut order) = (Vec::new(), usize::MAX / 2);
        for now in 0..until_ms {
            while let Some(first) = on_the_way.first_entry().filter(|first| first.key().0 <= now) {
                match first.remove() {
                    (sent, true) => self.deliver_again(&sent),
                    (sent, false) => self.deliver(&sent),
                }
            }
            for output in self.poll() {
                match output {
                    ReceiverOutput::Unit(unit) => units.push(unit.access_unit),
                    ReceiverOutput::Nack(missing) => {
                        for sequence in missing {
                            let Some((at, sent, is_apart)) = repeat(now, sequence) else {
                                continue;
                            };
                            order += 1;
                            on_the_way.insert((at, order), (sent, is_apart));
                        }
                    }
                    ReceiverOutput::NeedKeyframe => {}
                }
            }
            self.pass(ms(1));
        }
        units
    }
}
