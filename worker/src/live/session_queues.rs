//! Queues of a worker's sessions: order of their requests, and refusal of units. Pure.
//!
//! Each session has at most one unit in progress, so a session with much to decode delays another by one unit
//! only; a session over its output rate gets none. A session over its bounds loses its newest units, whole,
//! up to the next keyframe; the others lose nothing. Output of a session never ends another session.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

use decode::DecodeError;
use media::{AccessUnit, Codec, ErrorKind};

use super::output_rate::{OVER_BYTES_MAX, OutputRateLimit, SECOND_BYTES};
use crate::{
    JobFault, SessionSpec, WorkerError, WorkerSessionEvent, pictures::PictureSpec,
    protocol::WorkerRequest, record::RecordCheck, session::LIMITS, wire::WireError,
};

/// Queued bytes of one session: ten seconds at 1.5 Mb/s, or one at 16 Mb/s.
pub(super) const SESSION_BYTES_MAX: usize = 2 << 20;
/// Queued units of one session: two seconds at 30 per second.
pub(super) const SESSION_UNITS_MAX: usize = 64;
/// Queued bytes of all sessions: of eight sessions whose decoders stand still. A session with an empty queue
/// is exempt, so that others cannot keep it out.
pub(super) const BACKLOG_BYTES_MAX: usize = 8 * SESSION_BYTES_MAX;

#[derive(Default)]
pub(super) struct SessionQueues {
    lanes: BTreeMap<u32, Lane>,
    /// Sessions with a request to send and none in progress; the next one is in front.
    turns: VecDeque<u32>,
    bytes: usize,
    sent: u64,
    /// Time since which the worker has had work and has finished none.
    busy_since: Option<Instant>,
}

#[derive(Default)]
struct Lane {
    /// Codec of the session, until the caller closes it.
    open_for: Option<Codec>,
    waiting: VecDeque<WorkerRequest>,
    /// Queued units and their bytes, including the unit in progress.
    units: usize,
    bytes: usize,
    under_way: Option<UnderWay>,
    /// True while units are refused, up to the next keyframe.
    is_refusing: bool,
    /// True if units are missing before the next one.
    has_gap: bool,
    /// State of the session in the worker, if it is there.
    running: Option<Running>,
}

struct Running {
    check: RecordCheck,
    share: OutputRateLimit,
    /// True if the session sent far too much: it is being closed, and its events are dropped.
    is_cut: bool,
    /// True once the session has reported its failure.
    has_failed: bool,
}

impl Running {
    fn new(spec: &SessionSpec, now: Instant) -> Running {
        let (next, pictures) = (spec.first_frame(), PictureSpec::of_session(spec));
        let check = RecordCheck::new(next, u64::MAX, LIMITS.side_px, spec.stills, pictures);
        Running { check, share: OutputRateLimit::new(now), is_cut: false, has_failed: false }
    }
}

/// Treatment of a worker's event of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EventCheck {
    Wanted,
    /// The session has sent too much and is closed; pass on this fault instead.
    Cut(JobFault),
    /// Drop the event: the session has been cut.
    Unwanted,
}

struct UnderWay {
    /// Position among all units and closings sent.
    place: u64,
    /// Time since which a thread of the worker is known to work on it.
    begun: Option<Instant>,
    /// Bytes of the unit; `None` for the session's end.
    unit_bytes: Option<usize>,
}

impl Lane {
    /// Returns true if the first request may be sent: a unit only if the session is within its output rate.
    fn may_send(&self, now: Instant) -> bool {
        let is_unit = matches!(self.waiting.front(), Some(WorkerRequest::AccessUnit { .. }));
        !is_unit || self.running.as_ref().is_none_or(|running| running.share.is_kept(now))
    }

    /// Returns true if a thread works on the request in progress: for a session that it does not have, the
    /// worker answers at once, on no thread of the pool.
    fn is_worked_off(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.has_failed)
    }
}

impl SessionQueues {
    pub fn open(&mut self, session: u32, spec: SessionSpec) -> Result<(), WorkerError> {
        let lane = self.lanes.entry(session).or_default();
        if lane.open_for.is_some() {
            return Err(WorkerError::SessionInUse(session));
        }
        (lane.open_for, lane.is_refusing, lane.has_gap) = (Some(spec.codec), false, false);
        self.add(session, WorkerRequest::OpenSession { session, spec });
        Ok(())
    }

    /// Queues the session's next unit, or refuses it.
    pub fn push(&mut self, session: u32, unit: AccessUnit) -> Result<(), WorkerError> {
        let AccessUnit { codec, pts, keyframe, data } = unit;
        let waiting = self.bytes;
        let lane = self.opened(session)?;
        if let Some(expected) = lane.open_for.filter(|expected| *expected != codec) {
            return Err(JobFault::Decode(DecodeError::WrongCodec { expected, got: codec }).into());
        }
        let (units, bytes) = (lane.units, lane.bytes);
        // A unit of any size is accepted if no other waits.
        let is_full = units >= SESSION_UNITS_MAX
            || (bytes > 0 && bytes + data.len() > SESSION_BYTES_MAX)
            || (bytes > 0 && waiting + data.len() > BACKLOG_BYTES_MAX);
        if is_full || (lane.is_refusing && !keyframe) {
            (lane.is_refusing, lane.has_gap) = (true, true);
            return Err(WorkerError::Backlog { queued_bytes: bytes });
        }
        lane.is_refusing = false;
        lane.units += 1;
        lane.bytes += data.len();
        let follows_gap = mem::take(&mut lane.has_gap);
        self.bytes += data.len();
        self.add(session, WorkerRequest::AccessUnit { session, pts, keyframe, follows_gap, data });
        Ok(())
    }

    pub fn close(&mut self, session: u32) -> Result<(), WorkerError> {
        self.opened(session)?.open_for = None;
        self.add(session, WorkerRequest::CloseSession { session });
        Ok(())
    }

    pub fn load(&self, session: u32) -> Option<usize> {
        self.lanes.get(&session).filter(|lane| lane.open_for.is_some()).map(|lane| lane.units)
    }

    /// Takes the next request for the worker, in round-robin order of the sessions.
    pub fn next(&mut self, now: Instant) -> Option<WorkerRequest> {
        let may_send = |session| self.lanes.get(session).is_some_and(|lane| lane.may_send(now));
        let at = self.turns.iter().position(may_send)?;
        let session = self.turns.remove(at)?;
        let lane = self.lanes.get_mut(&session)?;
        let request = lane.waiting.pop_front()?;
        let unit_bytes = match &request {
            // The worker does not answer this request, so the session's next one may follow at once.
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

    /// Notes that the worker has finished the session's request in progress.
    pub fn taken(&mut self, session: u32, now: Instant) -> Result<(), WireError> {
        let unexpected = WireError::Unexpected("taken");
        let lane = self.lanes.get_mut(&session).ok_or(unexpected.clone())?;
        let UnderWay { place, unit_bytes, .. } = lane.under_way.take().ok_or(unexpected)?;
        let is_worked_off = lane.is_worked_off();
        match unit_bytes {
            Some(bytes) => {
                lane.units -= 1;
                lane.bytes -= bytes;
                self.bytes -= bytes;
            }
            None => lane.running = None,
        }
        if !lane.waiting.is_empty() {
            self.turns.push_back(session);
        } else if lane.open_for.is_none() {
            self.lanes.remove(&session);
        }
        let mut is_busy = false;
        for other in self.lanes.values_mut().filter_map(|lane| lane.under_way.as_mut()) {
            is_busy = true;
            // Threads take requests in the order in which they were sent.
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

    /// Checks a session's event of `bytes` bytes against its specification and its output rate.
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
            // The unit in progress when the session was closed cannot send as much again.
            let still_ends = over <= 2 * OVER_BYTES_MAX;
            return if still_ends { Ok(EventCheck::Unwanted) } else { Err(unexpected) };
        }
        if over <= OVER_BYTES_MAX {
            return Ok(EventCheck::Wanted);
        }
        running.is_cut = true;
        // The closing goes before queued units: for a closed session they cost the worker nothing.
        if lane.waiting.is_empty() && lane.under_way.is_none() {
            self.turns.push_back(session);
        }
        lane.waiting.push_front(WorkerRequest::CloseSession { session });
        let mebibytes = SECOND_BYTES >> 20;
        let message = format!("the session says more than {mebibytes} MiB of itself in a second");
        Ok(EventCheck::Cut(JobFault::Other { kind: ErrorKind::Exhausted, message }))
    }

    /// Returns true if the worker is stalled at `now`: for `stall` it has finished nothing, or one thread has
    /// not finished its unit. Units that wait for a thread do not count.
    pub fn is_stalled(&self, stall: Duration, now: Instant) -> bool {
        let under_way = self.lanes.values().filter_map(|lane| lane.under_way.as_ref());
        let mut since = under_way.filter_map(|way| way.begun).chain(self.busy_since);
        since.any(|since| now.saturating_duration_since(since) > stall)
    }

    fn opened(&mut self, session: u32) -> Result<&mut Lane, WorkerError> {
        let lane = self.lanes.get_mut(&session).filter(|lane| lane.open_for.is_some());
        lane.ok_or(WorkerError::NoSession(session))
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
