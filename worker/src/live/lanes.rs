//! What waits for a worker, session by session: whose turn it is, and what is refused. Pure.
//!
//! Of each session one unit at most is under way, so a session with much to decode delays another by
//! one unit and no more. A session that is over its bound loses its newest units whole, and all that
//! follow up to the next keyframe; the others lose nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

use decode::DecodeError;
use media::{AccessUnit, Codec};

use super::SessionLoad;
use crate::{
    Fault, SessionEvent, SessionSpec, WorkerError,
    process::{Life, OutputBudget},
    protocol::Request,
    session::SessionCheck,
    wire::ProtocolError,
};

/// Bytes of one session that may wait: ten seconds at 1.5 Mb/s, or one at 16 Mb/s.
pub(super) const SESSION_BYTES_MAX: usize = 2 << 20;
/// Units of one session that may wait: two seconds at 30 a second.
pub(super) const SESSION_UNITS_MAX: usize = 64;
/// Bytes of all sessions that may wait: those of eight whose decoder stands still. A session of which
/// nothing waits is not held to it, so that none is kept out by others.
pub(super) const BACKLOG_BYTES_MAX: usize = 8 * SESSION_BYTES_MAX;

/// Of what a worker may say, one session may say so small a part: eight that say all they may do not
/// end it.
const SESSION_SHARES: u64 = 8;
/// Stalls that one unit may take while others are finished: those of as many sessions as a worker has
/// may come before it, and one that takes longer has lost its thread.
const TURN_STALLS: u32 = 12;

pub(super) struct Lanes {
    /// Bytes that the worker may say about one session in a minute.
    session_output_bytes: u64,
    lanes: BTreeMap<u32, Lane>,
    /// Sessions with something to send and nothing under way, the next one first.
    turns: VecDeque<u32>,
    bytes: usize,
    /// Since when the worker has had something and has finished nothing.
    busy_since: Option<Instant>,
}

struct Lane {
    codec: Codec,
    waiting: VecDeque<Request>,
    load: SessionLoad,
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
    check: SessionCheck,
    /// Bytes it has said, and how many it may.
    said: u64,
    budget: OutputBudget,
    /// It said more: it is being closed, and nothing of it is passed on.
    is_cut: bool,
}

/// What becomes of what the worker says about a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// It is passed on.
    Wanted,
    /// The session has said too much and is closed; this is the reason to be told instead.
    Cut(Fault),
    /// It comes after that.
    Unwanted,
}

struct UnderWay {
    since: Instant,
    /// Bytes of the unit; `None` for the session's end.
    unit_bytes: Option<usize>,
}

impl Lanes {
    /// For a worker that may say `output_bytes` in a minute.
    pub fn new(output_bytes: u64) -> Lanes {
        Lanes {
            session_output_bytes: output_bytes / SESSION_SHARES,
            lanes: BTreeMap::new(),
            turns: VecDeque::new(),
            bytes: 0,
            busy_since: None,
        }
    }

    pub fn open(&mut self, session: u32, spec: SessionSpec) -> Result<(), WorkerError> {
        let lane = self.lanes.entry(session).or_insert_with(|| Lane {
            codec: spec.codec,
            waiting: VecDeque::new(),
            load: SessionLoad::default(),
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
        self.add(session, Request::OpenSession { session, spec });
        Ok(())
    }

    /// The session's next unit, or a refusal of it.
    pub fn push(&mut self, session: u32, unit: AccessUnit) -> Result<(), WorkerError> {
        let AccessUnit { codec, pts, keyframe, data } = unit;
        let waiting = self.bytes;
        let lane = self.opened(session)?;
        if codec != lane.codec {
            let (expected, got) = (lane.codec.name(), codec.name());
            return Err(Fault::Decode(DecodeError::WrongCodec { expected, got }).into());
        }
        let SessionLoad { units, bytes, .. } = lane.load;
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
        self.add(session, Request::AccessUnit { session, pts, keyframe, follows_gap, data });
        Ok(())
    }

    /// Units are missing before the session's next one.
    pub fn lose(&mut self, session: u32) -> Result<(), WorkerError> {
        self.opened(session)?.has_gap = true;
        Ok(())
    }

    pub fn close(&mut self, session: u32) -> Result<(), WorkerError> {
        self.opened(session)?.is_open = false;
        self.add(session, Request::CloseSession { session });
        Ok(())
    }

    pub fn load(&self, session: u32) -> Option<SessionLoad> {
        self.lanes.get(&session).filter(|lane| lane.is_open).map(|lane| lane.load)
    }

    /// The next request for the worker, of the session whose turn it is.
    pub fn next(&mut self, now: Instant) -> Option<Request> {
        let session = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&session)?;
        let request = lane.waiting.pop_front()?;
        match &request {
            // Nothing answers it, and what comes next may follow at once.
            Request::OpenSession { spec, .. } => {
                lane.running = Some(Running {
                    check: SessionCheck::new(*spec),
                    said: 0,
                    budget: OutputBudget::new(self.session_output_bytes, Life::Open),
                    is_cut: false,
                });
                if !lane.waiting.is_empty() {
                    self.turns.push_front(session);
                }
            }
            Request::AccessUnit { data, .. } => {
                lane.under_way = Some(UnderWay { since: now, unit_bytes: Some(data.len()) });
            }
            _ => lane.under_way = Some(UnderWay { since: now, unit_bytes: None }),
        }
        if lane.under_way.is_some() {
            self.busy_since.get_or_insert(now);
        }
        Some(request)
    }

    /// The worker has worked off what was under way.
    pub fn taken(&mut self, session: u32, now: Instant) -> Result<(), ProtocolError> {
        let unexpected = ProtocolError::Unexpected("taken");
        let lane = self.lanes.get_mut(&session).ok_or(unexpected.clone())?;
        let under_way = lane.under_way.take().ok_or(unexpected)?;
        match under_way.unit_bytes {
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
        let is_busy = self.lanes.values().any(|lane| lane.under_way.is_some());
        self.busy_since = is_busy.then_some(now);
        Ok(())
    }

    /// Looks at what the worker says about a session, in so many bytes.
    pub fn look(
        &mut self,
        session: u32,
        event: &SessionEvent,
        bytes: u64,
        now: Instant,
    ) -> Result<Looked, ProtocolError> {
        let unexpected = ProtocolError::Unexpected("session");
        let lane = self.lanes.get_mut(&session).ok_or(unexpected.clone())?;
        let running = lane.running.as_mut().ok_or(unexpected)?;
        running.check.look(event)?;
        if running.is_cut {
            return Ok(Looked::Unwanted);
        }
        running.said += bytes;
        let Err(error) = running.budget.check(running.said, now) else { return Ok(Looked::Wanted) };
        running.is_cut = true;
        // Before its units: those of a session that is closed cost the worker nothing.
        if lane.waiting.is_empty() && lane.under_way.is_none() {
            self.turns.push_back(session);
        }
        lane.waiting.push_front(Request::CloseSession { session });
        Ok(Looked::Cut(Fault::Other { kind: error.kind(), message: error.to_string() }))
    }

    /// Whether the worker stands still at `now`: it has finished nothing for as long as `stall`. What
    /// waits for one of its threads is not held against it, but for no longer than [`TURN_STALLS`].
    pub fn is_stalled(&self, stall: Duration, now: Instant) -> bool {
        let over = |since: Instant, limit| now.saturating_duration_since(since) > limit;
        let under_way = self.lanes.values().filter_map(|lane| lane.under_way.as_ref());
        self.busy_since.is_some_and(|since| over(since, stall))
            || under_way.map(|way| way.since).any(|since| over(since, TURN_STALLS * stall))
    }

    fn opened(&mut self, session: u32) -> Result<&mut Lane, WorkerError> {
        let lane = self.lanes.get_mut(&session).filter(|lane| lane.is_open);
        lane.ok_or(WorkerError::NoSession { session })
    }

    fn add(&mut self, session: u32, request: Request) {
        let Some(lane) = self.lanes.get_mut(&session) else { return };
        if lane.waiting.is_empty() && lane.under_way.is_none() {
            self.turns.push_back(session);
        }
        lane.waiting.push_back(request);
    }
}

#[cfg(test)]
mod tests;
