//! Queues of a worker's sessions: the order of their requests, and those that are refused. Pure.
//!
//! Of each session one unit at most is under way, so a session with much to decode delays another by
//! one unit and no more, and one that has said more than its share is given none. A session that is
//! over its bound loses its newest units whole, and all that follow up to the next keyframe; the
//! others lose nothing. Whatever a session says, none but itself is ended for it.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

use decode::DecodeError;
use media::{AccessUnit, Codec, ErrorKind};

use super::{
    SessionBacklog,
    output_rate::{OVER_BYTES_MAX, OutputRateLimit, SECOND_BYTES},
};
use crate::{
    JobFault, SessionSpec, WorkerError, WorkerSessionEvent, pictures::PictureSpec,
    protocol::WorkerRequest, record::RecordCheck, session::LIMITS, wire::WireError,
};

/// Bytes of one session that may wait: ten seconds at 1.5 Mb/s, or one at 16 Mb/s.
pub(super) const SESSION_BYTES_MAX: usize = 2 << 20;
/// Units of one session that may wait: two seconds at 30 a second.
pub(super) const SESSION_UNITS_MAX: usize = 64;
/// Bytes of all sessions that may wait: those of eight whose decoder stands still. A session of which
/// nothing waits is not held to it, so that none is kept out by others.
pub(super) const BACKLOG_BYTES_MAX: usize = 8 * SESSION_BYTES_MAX;

#[derive(Default)]
pub(super) struct SessionQueues {
    lanes: BTreeMap<u32, Lane>,
    /// Sessions with something to send and nothing under way, the next one first.
    turns: VecDeque<u32>,
    bytes: usize,
    /// Units and ends that were sent.
    sent: u64,
    /// Since when the worker has had something and has finished nothing.
    busy_since: Option<Instant>,
}

struct Lane {
    codec: Codec,
    waiting: VecDeque<WorkerRequest>,
    load: SessionBacklog,
    /// The caller has not closed it.
    is_open: bool,
    under_way: Option<UnderWay>,
    /// Up to the next keyframe.
    is_refusing: bool,
    /// Units are missing before the next one.
    has_gap: bool,
    /// The session that the worker has.
    running: Option<Running>,
}

struct Running {
    check: RecordCheck,
    share: OutputRateLimit,
    /// It said far more: it is being closed, and nothing of it is passed on.
    is_cut: bool,
    /// It said that it has failed.
    has_failed: bool,
}

impl Running {
    fn new(spec: &SessionSpec, now: Instant) -> Running {
        let (next, pictures) = (spec.first_frame(), PictureSpec::of_session(spec));
        let check = RecordCheck::new(next, u64::MAX, LIMITS.side_px, spec.stills, pictures);
        Running { check, share: OutputRateLimit::new(now), is_cut: false, has_failed: false }
    }
}

/// Treatment of a worker's message about a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EventCheck {
    /// It is passed on.
    Wanted,
    /// The session has said too much and is closed; this is the reason to be told instead.
    Cut(JobFault),
    /// It comes after that.
    Unwanted,
}

struct UnderWay {
    /// Its place among all that was sent.
    place: u64,
    /// Since when a thread of the worker is known to be at it.
    begun: Option<Instant>,
    /// Bytes of the unit; `None` for the session's end.
    unit_bytes: Option<usize>,
}

impl Lane {
    /// Returns true where the first request may be sent: a unit only within the session's share.
    fn may_send(&self, now: Instant) -> bool {
        let is_unit = matches!(self.waiting.front(), Some(WorkerRequest::AccessUnit { .. }));
        !is_unit || self.running.as_ref().is_none_or(|running| running.share.is_kept(now))
    }

    /// Returns true where a thread works off its unit under way: the worker answers at once, beside
    /// its threads, for a session that it does not have.
    fn is_worked_off(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.has_failed)
    }
}

impl SessionQueues {
    pub fn open(&mut self, session: u32, spec: SessionSpec) -> Result<(), WorkerError> {
        let lane = self.lanes.entry(session).or_insert_with(|| Lane {
            codec: spec.codec,
            waiting: VecDeque::new(),
            load: SessionBacklog::default(),
            is_open: false,
            under_way: None,
            is_refusing: false,
            has_gap: false,
            running: None,
        });
        if lane.is_open {
            return Err(WorkerError::SessionInUse { session });
        }
        (lane.codec, lane.is_open, lane.is_refusing, lane.has_gap) =
            (spec.codec, true, false, false);
        lane.load.refused_units = 0;
        self.add(session, WorkerRequest::OpenSession { session, spec });
        Ok(())
    }

    /// The session's next unit, or a refusal of it.
    pub fn push(&mut self, session: u32, unit: AccessUnit) -> Result<(), WorkerError> {
        let AccessUnit { codec, pts, keyframe, data } = unit;
        let waiting = self.bytes;
        let lane = self.opened(session)?;
        if codec != lane.codec {
            let (expected, got) = (lane.codec, codec);
            return Err(JobFault::Decode(DecodeError::WrongCodec { expected, got }).into());
        }
        let SessionBacklog { units, bytes, .. } = lane.load;
        // One unit of any size is always taken.
        let is_full = units >= SESSION_UNITS_MAX
            || (bytes > 0 && bytes + data.len() > SESSION_BYTES_MAX)
            || (bytes > 0 && waiting + data.len() > BACKLOG_BYTES_MAX);
        if is_full || (lane.is_refusing && !keyframe) {
            (lane.is_refusing, lane.has_gap) = (true, true);
            lane.load.refused_units += 1;
            return Err(WorkerError::Backlog { queued_bytes: bytes });
        }
        lane.is_refusing = false;
        lane.load.units += 1;
        lane.load.bytes += data.len();
        let follows_gap = mem::take(&mut lane.has_gap);
        self.bytes += data.len();
        self.add(session, WorkerRequest::AccessUnit { session, pts, keyframe, follows_gap, data });
        Ok(())
    }

    /// Units are missing before the session's next one.
    pub fn lose(&mut self, session: u32) -> Result<(), WorkerError> {
        self.opened(session)?.has_gap = true;
        Ok(())
    }

    pub fn close(&mut self, session: u32) -> Result<(), WorkerError> {
        self.opened(session)?.is_open = false;
        self.add(session, WorkerRequest::CloseSession { session });
        Ok(())
    }

    pub fn load(&self, session: u32) -> Option<SessionBacklog> {
        self.lanes.get(&session).filter(|lane| lane.is_open).map(|lane| lane.load)
    }

    /// The next request for the worker, of the session whose turn it is.
    pub fn next(&mut self, now: Instant) -> Option<WorkerRequest> {
        let may_send = |session| self.lanes.get(session).is_some_and(|lane| lane.may_send(now));
        let at = self.turns.iter().position(may_send)?;
        let session = self.turns.remove(at)?;
        let lane = self.lanes.get_mut(&session)?;
        let request = lane.waiting.pop_front()?;
        let unit_bytes = match &request {
            // Nothing answers it, and what comes next may follow at once.
            WorkerRequest::OpenSession { spec, .. } => {
                lane.running = Some(Running::new(spec, now));
                if !lane.waiting.is_empty() {
                    self.turns.push_front(session);
                }
                return Some(request);
            }
            WorkerRequest::AccessUnit { data, .. } => Some(data.len()),
            _ => None,
        };
        lane.under_way = Some(UnderWay { place: self.sent, begun: None, unit_bytes });
        self.sent += 1;
        self.busy_since.get_or_insert(now);
        Some(request)
    }

    /// The worker has worked off what was under way.
    pub fn taken(&mut self, session: u32, now: Instant) -> Result<(), WireError> {
        let unexpected = WireError::Unexpected("taken");
        let lane = self.lanes.get_mut(&session).ok_or(unexpected.clone())?;
        let UnderWay { place, unit_bytes, .. } = lane.under_way.take().ok_or(unexpected)?;
        let is_worked_off = lane.is_worked_off();
        match unit_bytes {
            Some(bytes) => {
                lane.load.units -= 1;
                lane.load.bytes -= bytes;
                self.bytes -= bytes;
            }
            None => lane.running = None,
        }
        if !lane.waiting.is_empty() {
            self.turns.push_back(session);
        } else if !lane.is_open {
            self.lanes.remove(&session);
        }
        let mut is_busy = false;
        for other in self.lanes.values_mut().filter_map(|lane| lane.under_way.as_mut()) {
            is_busy = true;
            // Threads begin what they are given in its order.
            if is_worked_off && other.place < place {
                other.begun.get_or_insert(now);
            }
        }
        if is_worked_off {
            self.busy_since = Some(now);
        }
        self.busy_since = self.busy_since.filter(|_| is_busy);
        Ok(())
    }

    /// Looks at what the worker says about a session, in so many bytes.
    pub fn check_event(
        &mut self,
        session: u32,
        event: &WorkerSessionEvent,
        bytes: u64,
        now: Instant,
    ) -> Result<EventCheck, WireError> {
        let unexpected = WireError::Unexpected("session");
        let lane = self.lanes.get_mut(&session).ok_or(unexpected.clone())?;
        let running = lane.running.as_mut().ok_or(unexpected.clone())?;
        match event {
            WorkerSessionEvent::Frames(records) => running.check.look(records)?,
            WorkerSessionEvent::Closed { frames, .. } if *frames != running.check.frames() => {
                return Err(WireError::Invalid("end"));
            }
            WorkerSessionEvent::Closed { .. }
            | WorkerSessionEvent::Damaged { .. }
            | WorkerSessionEvent::Failed(_) => {}
        }
        running.has_failed |= matches!(event, WorkerSessionEvent::Failed(_));
        let over = running.share.take(bytes, now);
        if running.is_cut {
            // The unit under way when it was closed does not send as much again.
            let still_ends = over <= 2 * OVER_BYTES_MAX;
            return if still_ends { Ok(EventCheck::Unwanted) } else { Err(unexpected) };
        }
        if over <= OVER_BYTES_MAX {
            return Ok(EventCheck::Wanted);
        }
        running.is_cut = true;
        // Before its units: those of a session that is closed cost the worker nothing.
        if lane.waiting.is_empty() && lane.under_way.is_none() {
            self.turns.push_back(session);
        }
        lane.waiting.push_front(WorkerRequest::CloseSession { session });
        let mebibytes = SECOND_BYTES >> 20;
        let message = format!("the session says more than {mebibytes} MiB of itself in a second");
        Ok(EventCheck::Cut(JobFault::Other { kind: ErrorKind::Exhausted, message }))
    }

    /// Returns true where the worker stands still at `now`: for as long as `stall` it has finished
    /// nothing, or one thread has not finished its unit. Units that wait for a thread are left out.
    pub fn is_stalled(&self, stall: Duration, now: Instant) -> bool {
        let under_way = self.lanes.values().filter_map(|lane| lane.under_way.as_ref());
        let mut since = under_way.filter_map(|way| way.begun).chain(self.busy_since);
        since.any(|since| now.saturating_duration_since(since) > stall)
    }

    fn opened(&mut self, session: u32) -> Result<&mut Lane, WorkerError> {
        let lane = self.lanes.get_mut(&session).filter(|lane| lane.is_open);
        lane.ok_or(WorkerError::NoSession { session })
    }

    fn add(&mut self, session: u32, request: WorkerRequest) {
        let Some(lane) = self.lanes.get_mut(&session) else { return };
        if lane.waiting.is_empty() && lane.under_way.is_none() {
            self.turns.push_back(session);
        }
        lane.waiting.push_back(request);
    }
}

#[cfg(test)]
mod tests;
