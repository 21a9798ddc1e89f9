//! Path from the endpoint to a media worker: routes a publisher's access units on the endpoint's thread.
//!
//! Requests a worker slot as soon as the publisher is there, for the codec it most likely sends, and anew
//! if it sends another. Buffers access units, within bounds, only until there is a slot. Counts a refused
//! unit and then refuses all others until the next keyframe, which is requested of the publisher.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use media::{Codec, WallTime};
use parking_lot::Mutex;
use transport::{
    rtp::ReceivedUnit,
    webrtc::{SessionEvent, SessionFailure, SessionHandler},
};

use super::{session_events::SessionProgress, worker_pool::WorkerSlot};

/// Access units buffered before there is a slot: as many as a worker queues for one session.
const WAITING_UNITS: usize = 64;
/// Bytes buffered before there is a slot.
const WAITING_BYTES: usize = 2 << 20;

/// Router of a session's access units to its worker.
pub struct FrameRouter {
    shared: Arc<SessionProgress>,
    lane: Mutex<Lane>,
}

struct Lane {
    /// Codec that the publisher most likely sends; used until its first access unit.
    expected: Option<Codec>,
    codec: Option<Codec>,
    to: To,
    /// True after a refused unit, until the next keyframe: the units between refer to it.
    is_broken: bool,
}

enum To {
    Waiting { units: VecDeque<ReceivedUnit>, bytes: usize },
    Worker(Arc<WorkerSlot>),
    Nowhere,
}

/// Endpoint's handle to a [`FrameRouter`].
pub struct RouterSink(pub Arc<FrameRouter>);

impl FrameRouter {
    pub fn new(shared: Arc<SessionProgress>) -> Arc<FrameRouter> {
        let lane = Lane { expected: None, codec: None, to: To::empty(), is_broken: false };
        let lane = Mutex::new(lane);
        Arc::new(FrameRouter { shared, lane })
    }

    /// Sets the codec that the publisher most likely sends.
    pub fn expect(&self, codec: Codec) {
        self.lane.lock().expected = Some(codec);
    }

    /// Sends the buffered units, and all that follow, to `seat`, which decodes `codec`.
    pub fn attach(&self, codec: Codec, seat: &Arc<WorkerSlot>) {
        let mut lane = self.lane.lock();
        // Units of another codec have arrived since; a signal for them is pending.
        if lane.codec != Some(codec) || matches!(lane.to, To::Nowhere) {
            return;
        }
        let before = std::mem::replace(&mut lane.to, To::Worker(Arc::clone(seat)));
        // The refused unit comes after all buffered ones.
        let is_broken = std::mem::replace(&mut lane.is_broken, false);
        if let To::Waiting { units, .. } = before {
            units.into_iter().for_each(|unit| self.give(&mut lane, unit));
        }
        lane.is_broken |= is_broken;
    }

    /// Discards all access units from this call on.
    pub fn shut(&self) {
        self.lane.lock().to = To::Nowhere;
    }

    fn give(&self, lane: &mut Lane, unit: ReceivedUnit) {
        let ReceivedUnit { access_unit, last_packet_at, .. } = unit;
        let is_start = access_unit.keyframe;
        if lane.is_broken && !is_start {
            self.shared.dropped();
            return;
        }
        let is_taken = match &mut lane.to {
            To::Worker(seat) => {
                self.shared.sent(access_unit.pts.as_millis(), last_packet_at);
                // The session learns of the worker's end from its output queue.
                seat.push(access_unit).is_ok()
            }
            To::Waiting { units, bytes } => {
                let after = *bytes + access_unit.data.len();
                let fits = units.len() < WAITING_UNITS && after <= WAITING_BYTES;
                if fits {
                    *bytes = after;
                    units.push_back(ReceivedUnit { access_unit, ..unit });
                }
                fits
            }
            To::Nowhere => return,
        };
        let was_broken = std::mem::replace(&mut lane.is_broken, !is_taken);
        if !is_taken {
            self.shared.dropped();
            // A refused keyframe has to be requested again.
            if is_start || !was_broken {
                self.shared.turns.broken();
            }
        }
    }
}

impl To {
    fn empty() -> To {
        To::Waiting { units: VecDeque::new(), bytes: 0 }
    }
}

impl SessionHandler for RouterSink {
    fn on_first_check(&mut self) {
        let intake = &self.0;
        let mut lane = intake.lane.lock();
        // Starts a worker while the DTLS handshake of the publisher is still running.
        if lane.codec.is_none()
            && let Some(codec) = lane.expected
        {
            lane.codec = Some(codec);
            intake.shared.turns.coded(codec);
        }
    }

    fn on_access_unit(&mut self, unit: ReceivedUnit) {
        let intake = &self.0;
        let codec = unit.access_unit.codec;
        intake.shared.metrics.live_pictures.inc();
        let pts_ms = unit.access_unit.pts.as_millis();
        let start = unit.captured_at.map(|at| WallTime { epoch_ms: at.epoch_ms - pts_ms });
        intake.shared.pictured(unit.last_packet_at, start);
        let mut lane = intake.lane.lock();
        if lane.codec != Some(codec) && !matches!(lane.to, To::Nowhere) {
            (lane.codec, lane.to, lane.is_broken) = (Some(codec), To::empty(), false);
            intake.shared.turns.coded(codec);
        }
        intake.give(&mut lane, unit);
    }

    fn on_event(&mut self, what: SessionEvent) {
        if what == SessionEvent::Connected {
            self.0.shared.connected(Instant::now());
        }
        self.0.shared.turns.told(what);
    }
}

/// The endpoint drops the handler of a session only when the session is over.
impl Drop for RouterSink {
    fn drop(&mut self) {
        self.0.shared.turns.told(SessionEvent::Failed(SessionFailure::PortEnded));
    }
}

#[cfg(test)]
mod tests {
    use media::{AccessUnit, Timebase, Timestamp};

    use super::*;
    use crate::base::metrics::{Metrics, ShedReason};
    use crate::record::live::{publisher_state::PublisherSignals, session_events::inbox};

    fn unit(ticks: i64, keyframe: bool, bytes: usize) -> ReceivedUnit {
        let pts = Timestamp::new(ticks, Timebase::RTP_VIDEO);
        let access_unit = AccessUnit { codec: Codec::Vp8, pts, keyframe, data: vec![0; bytes] };
        ReceivedUnit { access_unit, last_packet_at: Instant::now(), captured_at: None }
    }

    fn intake() -> (RouterSink, Arc<PublisherSignals>, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new());
        let (inbox, _) = inbox(Arc::clone(&metrics), Arc::default());
        let shared = inbox.shared();
        let sink = RouterSink(FrameRouter::new(Arc::clone(shared)));
        (sink, Arc::clone(&shared.turns), metrics)
    }

    fn waiting(publisher: &RouterSink) -> usize {
        match &publisher.0.lane.lock().to {
            To::Waiting { units, .. } => units.len(),
            _ => 0,
        }
    }

    #[tokio::test]
    async fn after_one_that_was_not_taken_only_a_start_is() {
        let (mut publisher, turns, metrics) = intake();
        publisher.on_access_unit(unit(0, true, 10));
        publisher.on_access_unit(unit(1, false, WAITING_BYTES));
        publisher.on_access_unit(unit(2, false, 10));
        assert_eq!((waiting(&publisher), metrics.live_shed.of(ShedReason::Pictures).get()), (1, 2));
        let happened = turns.next().await;
        assert!(happened.is_broken && happened.coded == Some(Codec::Vp8));
        publisher.on_access_unit(unit(3, true, WAITING_BYTES));
        assert!(turns.next().await.is_broken, "another start is asked for");
        publisher.on_access_unit(unit(4, true, 10));
        publisher.on_access_unit(unit(5, false, 10));
        assert_eq!(waiting(&publisher), 3);
    }

    #[test]
    fn a_stream_starts_by_the_first_report_of_a_sender_whose_clock_is_right() {
        const ARRIVED: i64 = 1_800_000_000_000;
        // Offsets in ms from the arrival of each unit's time 0 by its sender, and the start.
        let rows: [(&[Option<i64>], i64); 4] = [
            (&[None, None], 0),
            (&[None, Some(-80), Some(-70)], -80),
            (&[Some(3_600_000)], 3_600_000),
            (&[Some(3_600_001)], 0),
        ];
        for (reported, expected) in rows {
            let (mut publisher, ..) = intake();
            for (at, offset) in (0..).zip(reported) {
                let mut unit = unit(at * 9000, at == 0, 10);
                unit.captured_at =
                    offset.map(|offset| WallTime { epoch_ms: ARRIVED + offset + at * 100 });
                publisher.on_access_unit(unit);
            }
            let start = publisher.0.shared.wall_start(WallTime { epoch_ms: ARRIVED });
            assert_eq!(start.epoch_ms - ARRIVED, expected, "{reported:?}");
        }
    }

    #[tokio::test]
    async fn no_more_wait_than_a_worker_takes() {
        let (mut publisher, ..) = intake();
        (0..1000).for_each(|at| publisher.on_access_unit(unit(at, at == 0, 1)));
        assert_eq!(waiting(&publisher), WAITING_UNITS);
    }

    #[tokio::test]
    async fn a_place_is_asked_for_before_the_first_picture_and_once() {
        let (mut publisher, turns, _) = intake();
        publisher.on_first_check();
        publisher.0.expect(Codec::Vp8);
        publisher.on_first_check();
        assert_eq!(turns.next().await.coded, Some(Codec::Vp8));
        publisher.on_access_unit(unit(0, true, 10));
        publisher.on_first_check();
        turns.broken();
        assert_eq!(turns.next().await.coded, None, "there is one already, or will be");
        assert_eq!(waiting(&publisher), 1);
    }

    #[tokio::test]
    async fn another_codec_than_the_expected_asks_for_another_place() {
        let (mut publisher, turns, _) = intake();
        publisher.0.expect(Codec::H264);
        publisher.on_first_check();
        publisher.on_access_unit(unit(0, true, 10));
        assert_eq!(turns.next().await.coded, Some(Codec::Vp8));
        assert_eq!(waiting(&publisher), 1);
    }

    #[tokio::test]
    async fn a_port_that_lets_go_ends_the_session() {
        let (publisher, turns, _) = intake();
        drop(publisher);
        assert_eq!(turns.next().await.end, Some(SessionEvent::Failed(SessionFailure::PortEnded)));
    }
}
