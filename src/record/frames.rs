//! Recorded frames of a run: of a recording in progress as far as it has come, else those that an event names.

use std::sync::Arc;

use media::{JobId, Signal, StreamId};
use timeline::{FramesDecoded, OpenColumns, Timeline, TimelineError};

use crate::runs::registry::Run;

/// Rows one after the other; ends after the first error.
pub type Rows = Box<dyn Iterator<Item = Result<Signal, TimelineError>> + Send>;

/// The newest frames of a run, or of one of its streams.
pub struct Frames {
    /// The event that names them, or is to.
    pub decoded: FramesDecoded,
    timeline: Timeline,
    columns: OpenColumns,
    run: Arc<Run>,
    /// Job that records them, and the rows there were.
    growing: Option<(JobId, usize)>,
}

impl Frames {
    /// Those of `run`, and of `stream` where one is given; waits for the disk.
    pub fn find(
        timeline: &Timeline,
        columns: &OpenColumns,
        run: &Arc<Run>,
        stream: Option<&StreamId>,
    ) -> Result<Option<Frames>, TimelineError> {
        let frames = |decoded, growing| Frames {
            decoded,
            timeline: timeline.clone(),
            columns: columns.clone(),
            run: Arc::clone(run),
            growing,
        };
        let growing = run.growing();
        let growing = growing.filter(|it| stream.is_none_or(|id| it.decoded.stream_id == *id));
        if let Some(growing) = growing
            && let Some(rows) = columns.read(run.id(), growing.job)?
        {
            let rows = (growing.job, rows.count());
            return Ok(Some(frames(growing.decoded.clone(), Some(rows))));
        }
        let named = timeline.latest_frames(run.id(), stream)?;
        Ok(named.map(|(_, decoded)| frames(decoded, None)))
    }

    /// Their signals, the same each time.
    pub fn rows(&self) -> Result<Rows, TimelineError> {
        let Some((job, count)) = self.growing else {
            return self.timeline.signal_rows(&self.decoded.signals);
        };
        if let Some(rows) = self.columns.read(self.run.id(), job)? {
            return Ok(Box::new(rows.take(count).map(Ok)));
        }
        // The recording has ended meanwhile: an event names its rows.
        let stream = Some(&self.decoded.stream_id);
        match self.timeline.latest_frames(self.run.id(), stream)? {
            Some((_, decoded)) => {
                Ok(Box::new(self.timeline.signal_rows(&decoded.signals)?.take(count)))
            }
            None => Ok(Box::new(std::iter::empty())),
        }
    }
}
