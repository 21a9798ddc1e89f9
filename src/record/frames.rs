//! Recorded frames of a run: of a recording in progress as far as it is durable, else those that an event names.

use std::sync::Arc;

use media::{Signal, StreamId};
use timeline::{FramesDecoded, OpenColumns, OpenSnapshot, Timeline, TimelineError};

use crate::runs::registry::Run;

/// Rows one after the other; ends after the first error.
pub type Rows = Box<dyn Iterator<Item = Result<Signal, TimelineError>> + Send>;

/// The newest frames of a run, or of one of its streams.
pub struct Frames {
    /// The event that names them, or is to.
    pub decoded: FramesDecoded,
    timeline: Timeline,
    /// Column that they are in, while they are recorded.
    growing: Option<OpenSnapshot>,
}

impl Frames {
    /// Those of `run`, and of `stream` where one is given; waits for the disk.
    pub fn find(
        timeline: &Timeline,
        columns: &OpenColumns,
        run: &Arc<Run>,
        stream: Option<&StreamId>,
    ) -> Result<Option<Frames>, TimelineError> {
        let frames = |decoded, growing| Frames { decoded, timeline: timeline.clone(), growing };
        let growing = run.growing();
        let growing = growing.filter(|it| stream.is_none_or(|id| it.decoded.stream_id == *id));
        if let Some(growing) = growing
            && let Some(column) = columns.snapshot(run.id(), growing.job, &growing.synced)?
        {
            return Ok(Some(frames(growing.decoded.clone(), Some(column))));
        }
        let named = timeline.latest_frames(run.id(), stream)?;
        Ok(named.map(|(_, decoded)| frames(decoded, None)))
    }

    /// Their signals, the same each time.
    pub fn rows(&self) -> Result<Rows, TimelineError> {
        match &self.growing {
            Some(column) => Ok(Box::new(column.rows()?.map(Ok))),
            None => self.timeline.signal_rows(&self.decoded.signals),
        }
    }
}
