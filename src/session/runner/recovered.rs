//! Recordings of ingests whose server ended, put on the timeline at the next start.

use std::iter::once;

use timeline::{
    Event, EventKind, FramesDecoded, IngestReceived, KeyframeStored, Recorded, RunFailed, Timeline,
    TimelineError,
};

use super::{
    IngestError, Runner,
    record::{RunLog, append_all},
    stores::Stores,
    under_way::INTERRUPTED,
};
use crate::session::registry::{JobOrder, Run};

/// Events of an ingest that are on the timeline already, since the start before this told a part.
#[derive(Default)]
struct Told {
    received: bool,
    /// The frame of the last still.
    still: Option<u64>,
}

impl Told {
    fn of(timeline: &Timeline, run: &Run) -> Result<Told, TimelineError> {
        let Some(started) = timeline.latest(run.id(), EventKind::IngestStarted) else {
            return Ok(Told::default());
        };
        let since = |kind| timeline.latest(run.id(), kind).filter(|head| head.seq > started.seq);
        let still = since(EventKind::KeyframeStored).map(|head| timeline.get_parts(head.seq));
        let still = match still.transpose()?.flatten().map(|parts| parts.decode()).transpose()? {
            Some(Event::KeyframeStored(still)) => Some(still.frame_index),
            _ => None,
        };
        Ok(Told { received: since(EventKind::IngestReceived).is_some(), still })
    }
}

impl Runner {
    /// Appends what the ingest `order` had recorded and that it was cut off; tells how many frames
    /// there are. Nothing is appended where it had recorded none.
    pub(super) fn recover(&self, order: &JobOrder, log: &RunLog) -> Result<u64, IngestError> {
        let (recordings, timeline) = (&self.parts.recordings, self.parts.registry.timeline());
        let Some(parts) = recordings.read(order.id)? else { return Ok(0) };
        let mut signals = timeline.column_writer();
        let (mut received, mut decoded) = (None, None);
        for part in parts {
            match part {
                Recorded::Signals(rows) => rows.iter().try_for_each(|row| signals.push(row))?,
                Recorded::Event(event) => match *event {
                    Event::IngestReceived(event) => received = Some(event),
                    Event::FramesDecoded(event) => decoded = Some(event),
                    _ => {}
                },
            }
        }
        let frames = signals.count();
        let (Some(received), Some(decoded)) = (received, decoded) else { return Ok(0) };
        let told = Told::of(timeline, &log.run)?;
        let Some(parts) = recordings.read(order.id)?.filter(|_| frames > 0) else { return Ok(0) };
        let mut stored = Stores::new(&self.parts, &log.run);
        stored.record_column(signals.column_bytes());
        let (signals, _column) = signals.finish()?;
        let stills = parts.filter_map(|part| match part {
            Recorded::Event(event) => match *event {
                Event::KeyframeStored(still) => Some(still),
                _ => None,
            },
            Recorded::Signals(_) => None,
        });
        let is_new = |still: &KeyframeStored| {
            still.frame_index < frames && told.still.is_none_or(|last| still.frame_index > last)
        };
        let stills = stills
            .filter(is_new)
            .filter(|still| stored.keep_still(still.image_sha256, still.image_bytes))
            .map(Event::KeyframeStored);
        let received = IngestReceived { decoded_frames: Some(frames), ..received };
        let received = Some(Event::IngestReceived(received)).filter(|_| !told.received);
        let decoded = FramesDecoded {
            decoded_frames: frames,
            truncated: true,
            reason: Some(INTERRUPTED.to_owned()),
            signals,
            ..decoded
        };
        let events = received.into_iter().chain(stills).chain(once(Event::FramesDecoded(decoded)));
        let appended = append_all(log, events, Some(interrupted(order)));
        stored.keep(&log.run);
        appended.map(|_| frames).map_err(|(error, _)| error)
    }
}

/// Event that a job of a run was cut off.
pub(super) fn interrupted(order: &JobOrder) -> Event {
    let reason = INTERRUPTED.to_owned();
    Event::RunFailed(RunFailed { request_id: Some(order.request), reason })
}
