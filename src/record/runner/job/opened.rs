//! The recording of an opened source: records of its frames in, batches and chunks out.

use std::time::{Duration, Instant};

use decode::StreamInfo;
use timeline::{AnalysisGenerated, Event};
use worker::{Chunk, FrameRecord, ProtocolError, View};

use super::super::{IngestError, reason::Chunks};
use crate::record::{
    recorder::Recorder,
    recording::{RecordError, Recording},
};

/// Longest time from one write of a file's recording to the next.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Events and stills in a batch, and bytes of its stills, past which it is written at once.
const EVENTS_MAX: usize = 256;
const PICTURE_BYTES_MAX: usize = 8 << 20;

/// A source of which frames come.
pub(super) struct Opened {
    pub stream: StreamInfo,
    pub recorder: Recorder,
    pub recording: Recording,
    /// Its markers are told as their segments close.
    pub analysis: Option<AnalysisGenerated>,
    /// Time of the last write; none before the first, which shows at once that something comes.
    pub written_at: Option<Instant>,
    /// Time at which the last frame came.
    pub came: Option<Instant>,
}

impl Opened {
    /// Adds the rows so far, and writes what follows from them if enough of it waits; of live media, whatever tells
    /// something.
    pub fn write_due(&mut self, is_live: bool) -> Result<(), RecordError> {
        let batch = self.recorder.pending();
        let is_full = batch.stills.len() + batch.events.len() >= EVENTS_MAX
            || batch.picture_bytes() >= PICTURE_BYTES_MAX;
        let is_due = self.written_at.is_none_or(|at| at.elapsed() >= WRITE_EVERY);
        if is_full || is_due || is_live && batch.tells() {
            self.write()
        } else {
            self.recording.push(self.recorder.take_rows())
        }
    }

    /// Takes the next frame, with its pictures and the chunks that it completes, and what is told behind it; returns true if it
    /// is selected.
    pub fn frame(
        &mut self,
        mut record: FrameRecord,
        stills: bool,
        mut chunks: Option<&mut Chunks>,
        told: Option<(u64, Event)>,
    ) -> Result<bool, IngestError> {
        if let Some(chunks) = &mut chunks {
            self.send(chunks.begin(&record.signal), chunks)?;
        }
        let view = View::take(&mut record);
        let still = record.pictures.still.map(|still| still.jpeg.into());
        let is_kept = still.is_some();
        let decision = self.recorder.frame(record.signal, still)?;
        if let Some((frame_index, event)) = told {
            self.recorder.tell(frame_index, event);
        }
        if stills && decision.selected && !is_kept {
            return Err(ProtocolError::Invalid("still").into());
        }
        if let Some(chunks) = chunks {
            let complete = chunks.take(view, decision.selected.then_some(decision.reason))?;
            self.send(complete, chunks)?;
        }
        Ok(decision.selected)
    }

    /// Hands a chunk over, behind all of its frames.
    pub fn send(&mut self, chunk: Option<Chunk>, chunks: &Chunks) -> Result<(), IngestError> {
        let Some(chunk) = chunk else { return Ok(()) };
        self.write()?;
        chunks.send(chunk)
    }

    pub fn write(&mut self) -> Result<(), RecordError> {
        self.recording.write(self.recorder.take())?;
        self.written_at = Some(Instant::now());
        Ok(())
    }
}
