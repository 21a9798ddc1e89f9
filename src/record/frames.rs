//! Recorded frames of a run: those of its open recording as far as durable, else those that an event names.

use std::sync::Arc;

use media::{Signal, StreamId};
use timeline::{FramesDecoded, OpenColumns, OpenSnapshot, Timeline, TimelineError};

use crate::runs::registry::Run;

/// Rows in frame order; ends after the first error.
pub type Rows = Box<dyn Iterator<Item = Result<Signal, TimelineError>> + Send>;

/// Latest recorded frames of a run, or of one of its streams.
pub struct Frames {
    /// Event that names the frames, or will when the recording closes.
    pub decoded: FramesDecoded,
    timeline: Timeline,
    /// Open column of the frames while their recording is in progress.
    growing: Option<OpenSnapshot>,
}

impl Frames {
    /// Finds the frames of `run`, only of `stream` if one is given; blocks on the disk.
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

    /// Returns the signals of the frames, the same on each call.
    pub fn rows(&self) -> Result<Rows, TimelineError> {
        match &self.growing {
            Some(column) => Ok(Box::new(column.rows()?.map(Ok))),
            None => self.timeline.signal_rows(&self.decoded.signals),
        }
    }
}
