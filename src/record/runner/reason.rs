//! A reasoning job: its source is ingested, models are asked meanwhile, and both make markers.
//!
//! Answers of models are on the timeline before the decoding is: if a job fails after its source was opened,
//! its run fails too, so that no later job records the answers again.

use std::{sync::Arc, time::Duration};

use decode::StreamInfo;
use gate::SelectionReason as GateReason;
use media::{Dimensions, RunId};
use timeline::{
    AnalysisGenerated, AnalysisKey, Event, RunCompleted, SemanticFallbackActivated, SemanticOutcome,
};
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};
use worker::{ChunkBuilder, FrameChunk, ModelImage, WireError, WorkerError};

use super::{Begun, IngestError, IngestJob, decode_events::DecodedSource, job::JobThread};
use crate::record::{
    gate_replay::{self, FrameAnalysis, ModelOutcome},
    reason::{
        ChunkComparer, DescriptionOptions, EventContext, FrameRange, LabelOptions, ModelStage,
        ReasonDriver, ReasonJob, ReasonOutcome, Reasoned,
    },
    recording::{self, failed},
};

/// Chunks that wait between the decoder and the models: with the one being sent, a job has two
/// chunks more in memory than it asks about.
const CHUNKS_WAITING: usize = 1;
/// The same for remote sources, of which a playlist segment brings several chunks at once.
const LIVE_CHUNKS_WAITING: usize = 8;
/// Smallest side, in pixels, of a picture that models accept: two patches of Qwen's processors.
pub(super) const SIDE_MIN: u32 = 28;
/// Wall-clock limit of a worker that waits for models: a slow one takes seconds per chunk.
pub(super) const WALL: Duration = Duration::from_secs(12 * 3600);

/// Builds the chunks of a job and sends them to its driver.
pub(super) struct ChunkSender {
    pub chunker: ChunkBuilder<ModelImage>,
    /// Channel of chunks whose frames are all recorded.
    pub to: mpsc::Sender<FrameChunk>,
}

impl ChunkSender {
    /// Fails if the crop or scale would make pictures too small for models.
    pub fn check(&self, stream: &StreamInfo) -> Result<(), IngestError> {
        let least = |extent: Dimensions| extent.width.min(extent.height);
        let picture = stream.extent.rotated(stream.rotation);
        let (_, shown) = self.chunker.options().images_per_chunk(picture);
        if least(shown) < SIDE_MIN && least(picture) >= SIDE_MIN {
            return Err(IngestError::Crop { shown });
        }
        Ok(())
    }

    /// Takes the frame's image, and its reason if selected; returns the chunk that is complete with it.
    pub fn take(
        &mut self,
        view: Option<ModelImage>,
        selected: Option<GateReason>,
    ) -> Result<Option<FrameChunk>, WireError> {
        match (view, self.chunker.wants(selected)) {
            (Some(view), true) => {
                let view = ModelImage { reason: selected, ..view };
                self.chunker.take(view.frame_index, selected, view);
            }
            (None, false) => {}
            (Some(_), false) => return Err(WireError::Unexpected("view")),
            (None, true) => return Err(WireError::Invalid("view")),
        }
        Ok(self.chunker.end())
    }

    /// Sends a chunk whose frames are all recorded; blocks while the channel is full.
    pub fn send(&self, chunk: FrameChunk) -> Result<(), IngestError> {
        // The channel is closed: the job is cancelled, or its requests to models have failed.
        let sent = self.to.blocking_send(chunk);
        sent.map_err(|_| IngestError::Worker(WorkerError::Cancelled))
    }
}

/// Requests of a job to models; cancelled when dropped.
struct Asks {
    told: JoinHandle<ReasonOutcome>,
    cancel: CancellationToken,
    _end: DropGuard,
}

impl Asks {
    fn begin(
        Begun { runner, guard, log, .. }: &Begun,
        subject: EventContext,
        (description, waiting): (DescriptionOptions, usize),
    ) -> (Asks, ChunkSender) {
        let (to, taken) = mpsc::channel(waiting);
        let cancel = guard.token.waiting.child_token();
        let DescriptionOptions { views, inquiry, describer, novelty } = description;
        let judge = novelty.map(|novelty| ChunkComparer::new(novelty, log.run.id().seed()));
        let driver = ReasonDriver {
            log: log.clone(),
            metrics: Arc::clone(&runner.parts.metrics),
            describer,
            subject,
            token: guard.token.clone(),
        };
        let told = log.runtime.spawn(driver.run(inquiry, judge, taken, cancel.clone()));
        let _end = cancel.clone().drop_guard();
        (Asks { told, cancel, _end }, ChunkSender { chunker: ChunkBuilder::new(views), to })
    }

    /// Waits for the outcome; requests in progress are cancelled unless `finishes`.
    fn end(self, finishes: bool, runtime: &Handle) -> Result<ReasonOutcome, IngestError> {
        if !finishes {
            self.cancel.cancel();
        }
        runtime.block_on(self.told).map_err(|_| IngestError::Lost)
    }
}

/// Decodes the source while models describe it, and records both results.
pub(super) fn run(begun: Begun, reason: ReasonJob) -> Result<Reasoned, IngestError> {
    let log = begun.log.clone();
    let ReasonJob { ingest, semantics, terms } = reason;
    let subject = EventContext {
        request_id: ingest.request_id,
        stream_id: ingest.stream_id.clone(),
        index_name: terms.index_name.clone(),
        words: ingest.words.clone(),
        keeps_output: terms.keeps_output,
    };
    let (missing, asking) = match semantics {
        ModelStage::Off => (None, None),
        ModelStage::Missing(why) => (Some(why), None),
        ModelStage::Chunks(description) => {
            let waiting =
                if ingest.source.is_remote() { LIVE_CHUNKS_WAITING } else { CHUNKS_WAITING };
            let asks = Asks::begin(&begun, subject, (description, waiting));
            (None, Some(asks))
        }
    };
    let (asks, chunks) = asking.unzip();
    let request_id = ingest.request_id;
    // Releases the permits of the decoding before it waits for the models.
    let decoded = JobThread::new(begun, ingest, chunks).decode();
    let finishes = decoded.as_ref().is_ok_and(|decoded| decoded.cut.is_none());
    let told = asks.map(|asks| asks.end(finishes, &log.runtime)).transpose();
    let semantic = match (&told, &missing) {
        (Ok(Some(told)), _) => told.semantic.clone(),
        (_, Some(why)) => missed(log.run.id(), why),
        _ => SemanticOutcome::default(),
    };
    log.run.set_semantic(semantic.clone());
    let (is_opened, decoded) = match decoded {
        Ok(decoded) => (true, Ok(decoded)),
        Err(undone) => (undone.is_opened, Err(undone.error)),
    };
    // If the driver was lost, an answer may have been recorded.
    let has_said = told
        .as_ref()
        .map_or(true, |told| told.as_ref().is_some_and(|told| !told.insights.is_empty()));
    let is_told = is_opened || has_said;
    let outcome = both(decoded, told)
        .and_then(|(decoded, told)| conclude(decoded, told, (semantic, missing), terms));
    match outcome {
        Err(error) if is_told && !matches!(error, IngestError::Worker(WorkerError::Cancelled)) => {
            if log.run.check_active().is_ok() {
                log.commit(vec![failed(Some(request_id), &error.told())])?;
            }
            Err(error)
        }
        outcome => outcome,
    }
}

/// Returns the outcome of a job without a model, and logs it.
fn missed(run: RunId, why: &str) -> SemanticOutcome {
    tracing::warn!(%run, error = why, "no model describes the chunks of the run: the gate decides");
    let error = Some(why.to_owned());
    SemanticOutcome { requested: true, error, fallback_used: true, ..SemanticOutcome::default() }
}

/// Returns the decoding and the outcome of the models if both succeeded; an error of the models
/// explains a cancelled decoding.
fn both(
    decoded: Result<DecodedSource, IngestError>,
    told: Result<Option<ReasonOutcome>, IngestError>,
) -> Result<(DecodedSource, ReasonOutcome), IngestError> {
    let told = told.map(Option::unwrap_or_default).and_then(|mut told| match told.failed.take() {
        Some(error) => Err(error.into()),
        None => Ok(told),
    });
    match (decoded, told) {
        (Ok(decoded), Ok(told)) => Ok((decoded, told)),
        (Ok(decoded), Err(error)) => Err(given_up(decoded, error)),
        (Err(IngestError::Worker(WorkerError::Cancelled)), Err(error)) | (Err(error), _) => {
            Err(error)
        }
    }
}

/// Closes the recording of a reasoning that fails with `error`.
fn given_up(decoded: DecodedSource, error: IngestError) -> IngestError {
    let last = Some(failed(Some(decoded.ingest.request_id), &error.told()));
    // A further error would be a consequence of the first.
    drop(decoded.record(Vec::new(), last));
    error
}

/// Records the decoding, the outcome of the models, and the markers of both.
fn conclude(
    mut decoded: DecodedSource,
    told: ReasonOutcome,
    (semantic, missing): (SemanticOutcome, Option<String>),
    terms: LabelOptions,
) -> Result<Reasoned, IngestError> {
    let cut = decoded.cut.take();
    let is_cut = cut.is_some() || told.is_cut;
    let (request_id, stream_id) = (decoded.ingest.request_id, decoded.ingest.stream_id.clone());
    let log = decoded.sealed.log.clone();
    let timeline = log.registry.timeline();
    // Held until the analysis is on the timeline, so that no other takes its ordinal.
    let _turn = log.runtime.block_on(log.run.analysis_turn());
    let signals = timeline.signals(&decoded.sealed.signals);
    let read =
        signals.and_then(|signals| Ok((signals, log.run.next_analysis(timeline, &stream_id)?)));
    let (signals, key) = match read {
        Ok(read) => read,
        Err(error) => return Err(given_up(decoded, error.into())),
    };
    let IngestJob { words, gate, .. } = &decoded.ingest;
    let mut frames = gate_replay::replay(signals, *gate, |name| words.event_type(name));
    spread(&mut frames, told.insights);
    let fallback = missing.map(|why| {
        let insight = Arc::new(ModelOutcome::Unsaid(why.clone()));
        frames.iter_mut().for_each(|frame| frame.insight = Some(Arc::clone(&insight)));
        let stream_id = stream_id.clone();
        let fallback = SemanticFallbackActivated { request_id, stream_id, reason: why };
        Event::SemanticFallbackActivated(fallback)
    });
    let markers = gate_replay::markers(&key, &frames, terms.markers);
    let beside = gate_replay::markers_beside(&key, &frames, terms.markers, &markers);
    let generated = generated(&decoded, &key, &terms, &frames, markers.len());
    let completed = RunCompleted {
        request_id: Some(request_id),
        stream_id: Some(stream_id),
        frames: frames.len() as u64,
        markers: markers.len() as u64,
        index_name: terms.index_name,
        semantic: Some(semantic.clone()),
        reason: None,
    };
    let emitted = markers.iter().cloned().chain(beside);
    let events = fallback.into_iter().chain(emitted.map(Event::MarkerEmitted));
    let tail = events.chain([Event::AnalysisGenerated(generated)]).collect();
    let last = match &cut {
        Some(error) => error.end_of_run(request_id),
        None => (!is_cut).then_some(Event::RunCompleted(completed)),
    };
    let (ingested, is_whole) = decoded.record(tail, last)?;
    match cut {
        Some(error) => Err(error),
        None if is_cut || !is_whole => Err(IngestError::Worker(WorkerError::Cancelled)),
        None => Ok(Reasoned { ingested, frames, markers, totals: told.totals, semantic }),
    }
}

fn generated(
    decoded: &DecodedSource,
    key: &AnalysisKey,
    terms: &LabelOptions,
    frames: &[FrameAnalysis],
    markers: usize,
) -> AnalysisGenerated {
    let DecodedSource { ingest, stream, sealed, .. } = decoded;
    AnalysisGenerated {
        frames: frames.len() as u64,
        window_size: terms.windowing.frames,
        segment_ms: terms.windowing.span_ms,
        sample_fps: decoded.sample_fps().or_else(|| Some(gate_replay::rate_of(frames))),
        mode: Some(terms.mode.clone()),
        model: terms.model.as_str().to_owned(),
        markers: markers as u64,
        ..recording::analysis(key, &ingest.opened(stream), &sealed.log.run)
    }
}

/// Sets the model outcome of each chunk on the frames of the chunk.
fn spread(frames: &mut [FrameAnalysis], insights: Vec<(FrameRange, Arc<ModelOutcome>)>) {
    for (span, insight) in insights {
        let of_chunk = frames.iter_mut().skip(span.first_frame as usize);
        of_chunk
            .take(span.frames as usize)
            .for_each(|frame| frame.insight = Some(Arc::clone(&insight)));
    }
}

#[cfg(test)]
mod tests {
    use media::Signal;
    use worker::{ChunkBoundary, ChunkImageOptions, EncodedImage};

    use super::*;

    /// The only wanted view of the chunk is that of its first frame.
    #[test]
    fn views_of_a_file_are_those_that_are_wanted() {
        let extent = Dimensions { width: 1, height: 1 };
        let options = ChunkImageOptions::new(ChunkBoundary::Frames(30), 1);
        let view = |frame_index| ModelImage {
            frame_index,
            pts_ms: 0,
            reason: None,
            picture: EncodedImage { extent, jpeg: Vec::new() },
            novelty: None,
        };
        let rows = [
            ([true, false], Ok(None)),
            ([true, true], Err(WireError::Unexpected("view"))),
            ([false, false], Err(WireError::Invalid("view"))),
        ];
        for (shown, expected) in rows {
            let mut chunks =
                ChunkSender { chunker: ChunkBuilder::new(options), to: mpsc::channel(1).0 };
            let told: Result<Vec<_>, _> = (0..)
                .zip(shown)
                .map(|(frame_index, is_shown)| {
                    chunks.chunker.begin(&Signal::plain(frame_index, 0));
                    chunks.take(is_shown.then(|| view(frame_index)), None)
                })
                .collect();
            assert_eq!(told.map(|_| None::<FrameChunk>), expected, "{shown:?}");
        }
    }
}
