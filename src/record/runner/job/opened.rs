//! Recording of an opened source: takes frame records, produces batches and chunks.

use std::time::{Duration, Instant};

use decode::StreamInfo;
use timeline::{AnalysisGenerated, Event};
use worker::{FrameChunk, FrameRecord, ModelImage, WireError, WorkerError};

use super::{
    super::{IngestError, reason::ChunkSender},
    writer::Writer,
};
use crate::record::{
    recorder::Recorder,
    recording::{RecordError, Recording},
};

/// Longest time between two writes of a recording.
pub(super) const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Events and stills in a batch, and bytes of its stills, from which it is written at once.
const EVENTS_MAX: usize = 256;
const PICTURE_BYTES_MAX: usize = 8 << 20;

/// Opened source whose frames are recorded.
pub(super) struct Opened {
    pub stream: StreamInfo,
    pub recorder: Recorder,
    pub to: To,
    /// Analysis of the recording's own markers, emitted as their segments close.
    pub analysis: Option<AnalysisGenerated>,
    /// Arrival of the last frame; after its connection, that of the last media if it was earlier.
    pub came: Option<Instant>,
}

pub(super) enum To {
    /// Written on this thread; a file's decoding waits. The time of the last write; `None` has the
    /// first frames written at once.
    Here(Box<Recording>, Option<Instant>),
    /// Written on another thread: live media do not wait.
    Beside(Writer),
}

impl To {
    /// See [`Recording::has_written`]; waits for all batches given.
    pub fn has_written(&self) -> bool {
        match self {
            To::Here(recording, _) => recording.has_written(),
            To::Beside(writer) => writer.has_written(),
        }
    }

    /// Ends the writing; returns the recording and the result of the remaining batches.
    pub fn finish(self) -> Result<(Recording, Result<(), RecordError>), IngestError> {
        match self {
            To::Here(recording, _) => Ok((*recording, Ok(()))),
            To::Beside(writer) => writer.finish(),
        }
    }
}

impl Opened {
    /// Writes the rows, and the whole batch if it is full or due.
    pub fn write_due(&mut self) -> Result<(), RecordError> {
        let To::Here(recording, written_at) = &mut self.to else { return self.write() };
        let batch = self.recorder.pending();
        let is_full = batch.stills.len() + batch.events.len() >= EVENTS_MAX
            || batch.picture_bytes() >= PICTURE_BYTES_MAX;
        let is_due = written_at.is_none_or(|at| at.elapsed() >= WRITE_EVERY);
        if is_full || is_due { self.write() } else { recording.push(self.recorder.take_rows()) }
    }

    /// Records the next frame, its images, the chunks that it completes and the event `told`;
    /// returns true if the frame is selected.
    pub fn frame(
        &mut self,
        mut record: FrameRecord,
        stills: bool,
        mut chunks: Option<&mut ChunkSender>,
        told: Option<(u64, Event)>,
    ) -> Result<bool, IngestError> {
        if let Some(chunks) = &mut chunks {
            self.send(chunks.chunker.begin(&record.signal), chunks)?;
        }
        let view = ModelImage::take(&mut record);
        let still = record.pictures.still.map(|still| still.jpeg.into());
        let is_kept = still.is_some();
        let decision = self.recorder.frame(record.signal, still)?;
        if let Some((frame_index, event)) = told {
            self.recorder.tell(frame_index, event);
        }
        if stills && decision.selected && !is_kept {
            return Err(WireError::Invalid("still").into());
        }
        if let Some(chunks) = chunks {
            let complete = chunks.take(view, decision.selected.then_some(decision.reason))?;
            self.send(complete, chunks)?;
        }
        Ok(decision.selected)
    }

    /// Sends a chunk after all of its frames are written; of live media, only if there is room for it.
    pub fn send(
        &mut self,
        chunk: Option<FrameChunk>,
        chunks: &ChunkSender,
    ) -> Result<(), IngestError> {
        let Some(chunk) = chunk else { return Ok(()) };
        self.write()?;
        match &self.to {
            To::Here(..) => chunks.send(chunk),
            To::Beside(_) if chunks.to.is_closed() => {
                Err(IngestError::Worker(WorkerError::Cancelled))
            }
            To::Beside(writer) => {
                writer.hand_over(chunk);
                Ok(())
            }
        }
    }

    /// Writes the batch; of live media, hands it to the writer thread.
    pub fn write(&mut self) -> Result<(), RecordError> {
        let batch = self.recorder.take();
        match &mut self.to {
            To::Here(recording, written_at) => {
                recording.write(batch)?;
                *written_at = Some(Instant::now());
                Ok(())
            }
            To::Beside(writer) => writer.give(batch),
        }
    }
}
