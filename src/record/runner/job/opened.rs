//! The recording of an opened source: records of its frames in, batches and chunks out.

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

/// Longest time from one write of a recording to the next.
pub(super) const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Events and stills in a batch, and bytes of its stills, past which it is written at once.
const EVENTS_MAX: usize = 256;
const PICTURE_BYTES_MAX: usize = 8 << 20;

/// A source of which frames come.
pub(super) struct Opened {
    pub stream: StreamInfo,
    pub recorder: Recorder,
    pub to: To,
    /// Its markers are told as their segments close.
    pub analysis: Option<AnalysisGenerated>,
    /// Time at which the last frame came.
    pub came: Option<Instant>,
}

/// The way of a batch to the disk.
pub(super) enum To {
    /// Here: a file waits for it. With the time of the last write; none before the first, which shows at once that
    /// something comes.
    Here(Box<Recording>, Option<Instant>),
    /// Beside the decoding: live media wait for nobody.
    Beside(Writer),
}

impl To {
    /// [`Recording::has_written`], of all that was given.
    pub fn has_written(&self) -> bool {
        match self {
            To::Here(recording, _) => recording.has_written(),
            To::Beside(writer) => writer.has_written(),
        }
    }

    /// The recording, and what became of the rest that was given.
    pub fn finish(self) -> Result<(Recording, Result<(), RecordError>), IngestError> {
        match self {
            To::Here(recording, _) => Ok((*recording, Ok(()))),
            To::Beside(writer) => writer.finish(),
        }
    }
}

impl Opened {
    /// Adds the rows so far, and writes what follows from them if enough of it waits.
    pub fn write_due(&mut self) -> Result<(), RecordError> {
        let To::Here(recording, written_at) = &mut self.to else { return self.write() };
        let batch = self.recorder.pending();
        let is_full = batch.stills.len() + batch.events.len() >= EVENTS_MAX
            || batch.picture_bytes() >= PICTURE_BYTES_MAX;
        let is_due = written_at.is_none_or(|at| at.elapsed() >= WRITE_EVERY);
        if is_full || is_due { self.write() } else { recording.push(self.recorder.take_rows()) }
    }

    /// Takes the next frame, with its pictures and the chunks that it completes, and what is told behind it; returns true if it
    /// is selected.
    pub fn frame(
        &mut self,
        mut record: FrameRecord,
        stills: bool,
        mut chunks: Option<&mut ChunkSender>,
        told: Option<(u64, Event)>,
    ) -> Result<bool, IngestError> {
        if let Some(chunks) = &mut chunks {
            self.send(chunks.begin(&record.signal), chunks)?;
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

    /// Hands a chunk over, behind all of its frames; of live media, where there is room for it.
    pub fn send(
        &mut self,
        chunk: Option<FrameChunk>,
        chunks: &ChunkSender,
    ) -> Result<(), IngestError> {
        let Some(chunk) = chunk else { return Ok(()) };
        self.write()?;
        match &self.to {
            To::Here(..) => chunks.send(chunk),
            To::Beside(_) if chunks.to().is_closed() => {
                Err(IngestError::Worker(WorkerError::Cancelled))
            }
            To::Beside(writer) => {
                writer.hand_over(chunk);
                Ok(())
            }
        }
    }

    /// Writes all so far; of live media, has it written soon.
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
