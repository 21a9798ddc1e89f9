//! What waits for a worker, session by session: whose turn it is, and what is refused. Pure.
//!
//! Of each session one unit at most is under way, so a session with much to decode delays another by
//! one unit and no more. A session that is over its bound loses its newest units whole, and all that
//! follow up to the next keyframe; the others lose nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::Instant,
};

use decode::DecodeError;
use media::{AccessUnit, Codec};

use super::SessionLoad;
use crate::{
    Fault, SessionEvent, SessionSpec, WorkerError, protocol::Request, session::SessionCheck,
    wire::ProtocolError,
};

/// Bytes of one session that may wait: ten seconds at 1.5 Mb/s, or one at 16 Mb/s.
pub(super) const SESSION_BYTES_MAX: usize = 2 << 20;
/// Units of one session that may wait: two seconds at 30 a second.
pub(super) const SESSION_UNITS_MAX: usize = 64;
/// Bytes of all sessions that may wait: those of eight whose decoder stands still.
pub(super) const BACKLOG_BYTES_MAX: usize = 8 * SESSION_BYTES_MAX;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<u32, Lane>,
    /// Sessions with something to send and nothing under way, the next one first.
    turns: VecDeque<u32>,
    bytes: usize,
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
    /// Of the session that the worker has.
    check: Option<SessionCheck>,
}

struct UnderWay {
    since: Instant,
    /// Bytes of the unit; `None` for the session's end.
    unit_bytes: Option<usize>,
}

impl Lanes {
    pub fn open(&mut self, session: u32, spec: SessionSpec) -> Result<(), WorkerError> {
        let lane = self.lanes.entry(session).or_insert_with(|| Lane {
            codec: spec.codec,
            waiting: VecDeque::new(),
            load: SessionLoad::default(),
            is_open: false,
            under_way: None,
            is_refusing: false,
            has_gap: false,
            check: None,
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
            || (waiting > 0 && waiting + data.len() > BACKLOG_BYTES_MAX);
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
                lane.check = Some(SessionCheck::new(*spec));
                if !lane.waiting.is_empty() {
                    self.turns.push_front(session);
                }
            }
            Request::AccessUnit { data, .. } => {
                lane.under_way = Some(UnderWay { since: now, unit_bytes: Some(data.len()) });
            }
            _ => lane.under_way = Some(UnderWay { since: now, unit_bytes: None }),
        }
        Some(request)
    }

    /// The worker has worked off what was under way.
    pub fn taken(&mut self, session: u32) -> Result<(), ProtocolError> {
        let unexpected = ProtocolError::Unexpected("taken");
        let lane = self.lanes.get_mut(&session).ok_or(unexpected.clone())?;
        let under_way = lane.under_way.take().ok_or(unexpected)?;
        match under_way.unit_bytes {
            Some(bytes) => {
                lane.load.units -= 1;
                lane.load.bytes -= bytes;
                self.bytes -= bytes;
            }
            None => lane.check = None,
        }
        if !lane.waiting.is_empty() {
            self.turns.push_back(session);
        } else if !lane.is_open {
            self.lanes.remove(&session);
        }
        Ok(())
    }

    /// Looks at what the worker says about a session.
    pub fn look(&mut self, session: u32, event: &SessionEvent) -> Result<(), ProtocolError> {
        let check = self.lanes.get_mut(&session).and_then(|lane| lane.check.as_mut());
        check.ok_or(ProtocolError::Unexpected("session"))?.look(event)
    }

    /// Since when the worker has been at what it has been at longest.
    pub fn oldest(&self) -> Option<Instant> {
        self.lanes.values().filter_map(|lane| lane.under_way.as_ref()).map(|way| way.since).min()
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
