//! Writer thread for the recording of live media: a slow disk drops pictures, never a signal.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::mpsc::{Sender, error::TrySendError};
use worker::FrameChunk;

use super::{super::IngestError, opened::WRITE_EVERY};
use crate::{
    base::metrics::{Metrics, ShedReason},
    record::{
        recorder::{Batch, SIGNALS_MAX},
        recording::{RecordError, Recording},
    },
};

/// Handle to the writer thread, which ends when it is dropped.
pub(super) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<Recording>>,
}

struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    metrics: Arc<Metrics>,
    chunks: Option<Sender<FrameChunk>>,
}

#[derive(Default)]
struct Waiting {
    batch: Batch,
    /// Chunks whose frames are in this batch or an earlier one.
    chunks: Vec<FrameChunk>,
    is_writing: bool,
    /// True once no more batches follow.
    is_over: bool,
    /// True once a batch was written completely, or an event may be in the log.
    has_written: bool,
    /// First error that was not returned to the job.
    error: Option<RecordError>,
}

impl Writer {
    /// Starts a thread that writes `recording` and sends the chunks after their frames.
    pub fn start(
        recording: Recording,
        metrics: Arc<Metrics>,
        chunks: Option<Sender<FrameChunk>>,
    ) -> Result<Writer, IngestError> {
        let queue = Queue { waiting: Mutex::default(), changed: Condvar::new(), metrics, chunks };
        let queue = Arc::new(queue);
        let own = Arc::clone(&queue);
        let thread = thread::Builder::new().name("recording".to_owned());
        let thread = thread.spawn(move || own.write(recording)).map_err(IngestError::Thread)?;
        Ok(Writer { queue, thread: Some(thread) })
    }

    /// Queues `batch`, less stills without room; blocks at `SIGNALS_MAX` signals. Returns an earlier error.
    pub fn give(&self, batch: Batch) -> Result<(), RecordError> {
        let mut waiting = self.queue.until(|waiting| waiting.batch.signals.len() < SIGNALS_MAX);
        let shed = waiting.add(batch);
        self.queue.metrics.live_shed.of(ShedReason::Stills).inc_by(shed);
        self.queue.changed.notify_all();
        waiting.error.take().map_or(Ok(()), Err)
    }

    /// Queues a chunk to be sent after the queued batches; drops it if there is no room.
    pub fn hand_over(&self, chunk: FrameChunk) {
        let Some(to) = &self.queue.chunks else { return };
        let mut waiting = self.queue.waiting.lock();
        if waiting.chunks.len() < to.max_capacity() {
            waiting.chunks.push(chunk);
            self.queue.changed.notify_all();
        } else {
            self.queue.metrics.live_shed.of(ShedReason::Clips).inc();
        }
    }

    /// Waits until all batches are written; see [`Recording::has_written`].
    pub fn has_written(&self) -> bool {
        self.queue.until(Waiting::is_idle).has_written
    }

    /// Writes the rest; returns the recording and the first error not returned before.
    pub fn finish(mut self) -> Result<(Recording, Result<(), RecordError>), IngestError> {
        self.queue.end();
        let thread = self.thread.take().ok_or(IngestError::Lost)?;
        let recording = thread.join().map_err(|_| IngestError::Lost)?;
        let error = self.queue.waiting.lock().error.take();
        Ok((recording, error.map_or(Ok(()), Err)))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.end();
    }
}

impl Queue {
    /// Waits until `holds`, or until the end of the queue.
    fn until(&self, holds: impl Fn(&Waiting) -> bool) -> MutexGuard<'_, Waiting> {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| !waiting.is_over && !holds(waiting));
        waiting
    }

    fn end(&self) {
        self.waiting.lock().is_over = true;
        self.changed.notify_all();
    }

    fn write(&self, mut recording: Recording) -> Recording {
        let _end = End(self);
        let (mut written_at, mut is_refused) = (None::<Instant>, false);
        loop {
            let mut waiting = self.until(|waiting| !waiting.is_idle());
            if waiting.is_idle() {
                return recording;
            }
            let (batch, chunks) =
                (std::mem::take(&mut waiting.batch), std::mem::take(&mut waiting.chunks));
            waiting.is_writing = true;
            drop(waiting);
            let is_due = written_at.is_none_or(|at| at.elapsed() >= WRITE_EVERY);
            let is_written = !is_refused && (is_due || batch.tells() || !chunks.is_empty());
            let outcome = if is_refused {
                Ok(())
            } else if is_written {
                written_at = Some(Instant::now());
                recording.write(batch)
            } else {
                recording.push(batch.signals)
            };
            chunks.into_iter().for_each(|chunk| self.hand_over(chunk));
            let mut waiting = self.waiting.lock();
            waiting.is_writing = false;
            waiting.has_written = recording.has_written();
            // Nothing was written before the error: the whole recording will be removed.
            is_refused |= outcome.is_err() && !waiting.has_written;
            if let Err(error) = outcome {
                waiting.error.get_or_insert(error);
            }
            drop(waiting);
            self.changed.notify_all();
        }
    }

    fn hand_over(&self, chunk: FrameChunk) {
        let sent = self.chunks.as_ref().map(|to| to.try_send(chunk));
        // If the channel is closed, the job finds out with its next chunk.
        if let Some(Err(TrySendError::Full(_))) = sent {
            self.metrics.live_shed.of(ShedReason::Clips).inc();
        }
    }
}

/// Wakes the waiters if the writer thread panics.
struct End<'a>(&'a Queue);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Waiting {
    fn is_idle(&self) -> bool {
        self.batch.is_empty() && self.chunks.is_empty() && !self.is_writing
    }

    /// Adds `batch` without the stills that have no room; returns their number.
    fn add(&mut self, batch: Batch) -> u64 {
        let Batch { signals, stills, events } = batch;
        let before = stills.len() + self.batch.stills.len();
        self.batch.signals.extend(signals);
        self.batch.events.extend(events);
        for still in stills {
            if self.batch.has_room(&still.jpeg) {
                self.batch.stills.push(still);
            }
        }
        (before - self.batch.stills.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use gate::SelectionReason;
    use media::{EventType, Signal};

    use super::*;
    use crate::record::recorder::{Kept, STILLS_BYTES_MAX};

    #[test]
    fn load_sheds_pictures_and_never_a_signal() {
        // Bytes of each still, and how many stills of forty are kept.
        for (bytes, kept) in [(2 * STILLS_BYTES_MAX, 1), (STILLS_BYTES_MAX / 4, 4), (10, 32)] {
            let mut waiting = Waiting::default();
            let shed = (0..40).map(|frame_index| {
                let still = Kept {
                    frame_index,
                    pts_ms: 0,
                    event_type: EventType::SceneCut,
                    reason: SelectionReason::SceneCut,
                    jpeg: vec![0; bytes].into(),
                };
                let signals = vec![Signal::plain(frame_index, 0)];
                waiting.add(Batch { signals, stills: vec![still], events: Vec::new() })
            });
            assert_eq!(shed.sum::<u64>(), 40 - kept, "{bytes}");
            let Batch { signals, stills, .. } = waiting.batch;
            assert_eq!((signals.len(), stills.len() as u64), (40, kept), "{bytes}");
        }
    }
}
