//! Tests that a job's result does not depend on the division of its file into segments.
//!
//! Long because each result is checked against its definition.

mod devices;
mod kept;
mod resumed;

use std::{
    ops::Range,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use decode::{FrameSink, SegmentInfo};
use gate::SelectionReason;
use media::{
    Dimensions, ErrorKind, Frame, HostFrameBuffer, PixelLayout, Pixels, Plane, SampleFormat,
    SampleRange, Score, Subsampling, Timebase, Timestamp,
};

use super::{
    merge_segments::SegmentMerger,
    sink::{SegmentResult, SegmentSink},
    *,
};
use crate::{
    ChunkBuilder, EncodedImage, FrameChunk, ModelImage, NoveltySpec, still::EmbeddingInputBuilder,
};

const EXTENT: Dimensions = Dimensions { width: 160, height: 96 };
const CHROMA: Dimensions = Dimensions { width: 80, height: 48 };

/// A picture held in vectors.
struct Painted {
    luma: Vec<u8>,
    chroma: [Vec<u8>; 2],
}

impl HostFrameBuffer for Painted {
    fn luma(&self) -> Plane<'_> {
        Plane::new(&self.luma, 160, EXTENT, SampleFormat::U8, 1).expect("fits")
    }

    fn chroma(&self) -> Option<[Plane<'_>; 2]> {
        let plane = |data| Plane::new(data, 80, CHROMA, SampleFormat::U8, 1).expect("fits");
        Some([plane(&self.chroma[0]), plane(&self.chroma[1])])
    }
}

/// The frames of the film, painted once.
static FILM: LazyLock<Vec<Frame>> = LazyLock::new(|| (0..240).map(painted).collect());

fn frame(index: u64) -> Frame {
    FILM[index as usize].clone()
}

/// First frame of the film's last shot, which is calm but for a few objects.
const CALM: u64 = 8 * 17;

/// Paints frame `index` of a synthetic film: drifting patterns, a hard cut every 17 frames, flashes, noise;
/// then a calm shot, in which one light pulses and another is switched on.
fn painted(index: u64) -> Frame {
    let shot = index.min(CALM) / 17;
    let flash = if index % 23 == 11 && index < CALM + 60 { 70 } else { 0 };
    let pulse = if (138..152).contains(&index) && index % 4 < 2 { 50 } else { 0 };
    let light = pulse + if index >= 205 { 80 } else { 0 };
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let luma = (0..160 * 96u64)
        .map(|at| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let noise = if shot % 3 == 2 { state % 48 } else { state % 3 };
            let (column, y) = (at % 160, at / 160);
            let x = column + if index < CALM { index % 17 } else { 0 };
            let moves = index > CALM + 20 && (20..60).contains(&y);
            let crosses = moves && column / 24 == (index - CALM - 20) / 16;
            let shade = if crosses { 80 } else { 0 };
            let pattern = (x * (3 + shot * 5) + y * (7 + shot * 3)) % 160
                / if index < CALM { 1 } else { 4 }
                + shade;
            (pattern + noise + flash + light).min(255) as u8
        })
        .collect();
    let chroma = [100, 160].map(|base| vec![(base + shot * 7 % 40) as u8; 80 * 48]);
    let layout = PixelLayout {
        subsampling: Subsampling::Yuv420,
        sample: SampleFormat::U8,
        interleaved_chroma: false,
        range: SampleRange::Limited,
    };
    Frame {
        pts: Timestamp::new(index as i64, Timebase::new(1, 25).expect("positive")),
        source_index: index,
        extent: EXTENT,
        layout,
        pixels: Pixels::Host(Arc::new(Painted { luma, chroma })),
    }
}

/// Sinks that receive the segments of the film.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sinks {
    /// A new sink per segment.
    Separate,
    /// One sink; no segment continues the one before.
    Restarted,
    /// One sink; each segment continues the one before.
    Continued,
}

impl Sinks {
    const ALL: [Sinks; 3] = [Sinks::Separate, Sinks::Restarted, Sinks::Continued];
}

/// Job to run on the film.
#[derive(Clone, Copy)]
struct Asked {
    sinks: Sinks,
    stills: bool,
    views: Option<ChunkImageOptions>,
    /// Returns the presentation time of a frame in milliseconds.
    at_ms: fn(u64) -> i64,
}

const ASKED: Asked =
    Asked { sinks: Sinks::Separate, stills: true, views: None, at_ms: |index| 40 * index as i64 };

/// Output of a job.
#[derive(Debug, Default, PartialEq)]
struct Said {
    signals: Vec<Signal>,
    stills: Vec<Still>,
    /// Chunks, each with the number of signals that came before it.
    chunks: Vec<(u64, FrameChunk)>,
}

#[derive(Debug, PartialEq)]
struct Still {
    frame_index: u64,
    reason: SelectionReason,
    picture: EncodedImage,
}

/// Receives a job's events and makes the same decisions as the server.
struct Hearer {
    said: Said,
    gate: Gate,
    chunker: Option<ChunkBuilder<ModelImage>>,
}

impl Hearer {
    fn new(options: &JobOptions) -> Hearer {
        let (gate, chunker) = (Gate::new(options.gate), options.views.map(ChunkBuilder::new));
        Hearer { said: Said::default(), gate, chunker }
    }

    fn take(&mut self, event: JobEvent) {
        let JobEvent::Frames(records) = event else { return };
        for mut record in records {
            let signal = record.signal;
            let complete = self.chunker.as_mut().and_then(|chunker| chunker.begin(&signal));
            self.keep(complete);
            self.said.signals.push(signal);
            let decision = self.gate.offer(&signal);
            let reason = decision.selected.then_some(decision.reason);
            if let Some(chunker) = &mut self.chunker {
                let view = ModelImage::take(&mut record);
                assert_eq!(view.is_some(), chunker.wants(reason), "frame {}", signal.frame_index);
                if let Some(view) = view {
                    chunker.take(signal.frame_index, reason, ModelImage { reason, ..view });
                }
                let complete = chunker.end();
                self.keep(complete);
            }
            if let Some(picture) = record.pictures.still {
                let (frame_index, reason) = (signal.frame_index, reason.expect("it is selected"));
                self.said.stills.push(Still { frame_index, reason, picture });
            }
        }
    }

    fn keep(&mut self, chunk: Option<FrameChunk>) {
        self.said.chunks.extend(chunk.map(|chunk| (self.said.signals.len() as u64, chunk)));
    }

    /// Continues with the frames of another job.
    fn restart(&mut self) {
        let complete = self.chunker.as_mut().and_then(ChunkBuilder::restart);
        self.keep(complete);
    }

    fn end(mut self) -> Said {
        self.restart();
        self.said
    }
}

impl Said {
    fn of(options: &JobOptions, events: Vec<JobEvent>) -> Said {
        let mut hearer = Hearer::new(options);
        events.into_iter().for_each(|event| hearer.take(event));
        hearer.end()
    }
}

fn options(asked: Asked) -> JobOptions {
    JobOptions { stills: asked.stills, views: asked.views, ..JobOptions::default() }
}

/// Returns the events of a job whose segments `deliver` hands to the merger.
fn events_of(
    options: &JobOptions,
    measuring: &GateMeasurement,
    deliver: impl FnOnce(&Job<'_>, &mut SegmentMerger<'_>),
) -> Vec<JobEvent> {
    let events = Mutex::new(Vec::new());
    let emit = |event: JobEvent| {
        events.lock().expect("no panic").push(event);
        ControlFlow::Continue(())
    };
    let job = Job::new(options, Rotation::None, measuring, &emit);
    let mut merger = SegmentMerger::new(&job);
    deliver(&job, &mut merger);
    merger.finish().expect("finished");
    job.take_failure().expect("no failure");
    events.into_inner().expect("no panic")
}

/// Starts a segment, and gives the sink these frames of the film.
fn fill(sink: &mut SegmentSink<'_>, frames: Range<u64>, continues: bool, at_ms: fn(u64) -> i64) {
    let first_frame_index = frames.start;
    sink.begin(SegmentInfo { ordinal: 0, first_frame_index, continues_previous: continues });
    for index in frames {
        let pts = Timestamp::from_millis(at_ms(index));
        assert!(sink.frame(index, Frame { pts, ..frame(index) }).is_continue());
    }
}

/// Analyses the film, divided into segments of these lengths.
fn analyse(lengths: &[u64], asked: Asked) -> Said {
    analyse_by(lengths, asked, &GateMeasurement::default())
}

/// Like `analyse`, with this gate backend.
fn analyse_by(lengths: &[u64], asked: Asked, measuring: &GateMeasurement) -> Said {
    let options = options(asked);
    let events = events_of(&options, measuring, |job, merger| {
        let mut sink = SegmentSink::new(job);
        let mut next = 0;
        for (ordinal, length) in lengths.iter().enumerate() {
            if asked.sinks == Sinks::Separate {
                sink = SegmentSink::new(job);
            }
            let continues = asked.sinks == Sinks::Continued && ordinal > 0;
            fill(&mut sink, next..next + length, continues, asked.at_ms);
            next += length;
            merger.deliver(sink.end().expect("all there")).expect("delivered");
        }
    });
    Said::of(&options, events)
}

fn shown(chunks: ChunkBoundary, per_chunk: u8) -> Option<ChunkImageOptions> {
    Some(ChunkImageOptions { max_edge: Some(64), ..ChunkImageOptions::new(chunks, per_chunk) })
}

/// Divisions of 240 frames into segments.
fn cuts() -> [(&'static str, Vec<u64>); 8] {
    let cuts = [
        ("tens", vec![10; 24]),
        ("single frames", vec![1; 240]),
        ("shorter than what is held", vec![5; 48]),
        ("one longer than what is held", vec![12; 20]),
        ("uneven, some empty", vec![1, 0, 60, 3, 40, 0, 0, 11, 25, 100]),
        ("long", vec![100, 140]),
        ("long before short", vec![200, 20, 20]),
        ("short before long", vec![20, 20, 200]),
    ];
    for (name, lengths) in &cuts {
        assert_eq!(lengths.iter().sum::<u64>(), 240, "{name}");
    }
    cuts
}

#[test]
fn how_a_file_is_cut_into_segments_changes_nothing() {
    let whole = analyse(&[240], ASKED);
    assert_eq!(whole.signals.len(), 240);
    assert!(whole.stills.len() > 10, "cuts, keepalives: {}", whole.stills.len());
    let moving =
        whole.signals.iter().filter(|it| it.activity.is_some_and(|it| it.score > Score::ZERO));
    assert!(moving.count() > 20, "something crosses the calm shot");
    for reason in [SelectionReason::ExposureShift, SelectionReason::FlickerSuspected] {
        assert!(whole.stills.iter().any(|still| still.reason == reason), "{reason:?}");
    }
    for (name, lengths) in cuts() {
        for sinks in Sinks::ALL {
            let cut = analyse(&lengths, Asked { sinks, ..ASKED });
            assert!(cut == whole, "{name}, {sinks:?}");
            // Without stills every signal comes from the file's only window.
            let bare = analyse(&lengths, Asked { sinks, stills: false, ..ASKED });
            assert!(bare.signals == whole.signals, "{name}, {sinks:?}, no stills");
        }
    }
}

/// Two slow frames, then a burst, then a pause; times never go back.
fn uneven_ms(index: u64) -> i64 {
    let (round, at) = ((index / 12) as i64, (index % 12) as i64);
    round * 1500 + if at < 2 { at * 300 } else { 600 + at * 11 }
}

#[test]
fn how_a_file_is_cut_into_segments_changes_no_chunk() {
    let cases = [
        ("shorter than a segment", ChunkBoundary::Frames(7), 2),
        ("all frames", ChunkBoundary::Frames(5), 4),
        ("across segments", ChunkBoundary::Frames(64), 4),
        ("longer than the film", ChunkBoundary::Frames(500), 3),
        ("time", ChunkBoundary::Span { ms: 700 }, 3),
        ("no time", ChunkBoundary::Span { ms: 1 }, 1),
        ("much time", ChunkBoundary::Span { ms: 60_000 }, 4),
    ];
    for (case, (name, chunks, per_chunk)) in cases.into_iter().enumerate() {
        let (stills, views) = (per_chunk == 3, shown(chunks, per_chunk));
        let asked = Asked { stills, views, at_ms: uneven_ms, ..ASKED };
        let whole = analyse(&[240], asked);
        let without = analyse(&[240], Asked { views: None, ..asked });
        assert!(whole.signals == without.signals && whole.stills == without.stills, "{name}");
        // Over all cases, each division is tried with each kind of sinks.
        let sinks = Sinks::ALL.into_iter().cycle().skip(case % 3);
        for ((cut, lengths), sinks) in cuts().into_iter().zip(sinks) {
            let got = analyse(&lengths, Asked { sinks, ..asked });
            assert!(got == whole, "{name}, {cut}, {sinks:?}");
        }
    }
}

/// Returns the index and the reason of each view, by the definition of views.
fn views_by_definition(
    signals: &[Signal],
    chunk: &FrameChunk,
    options: ChunkImageOptions,
) -> Vec<(u64, Option<SelectionReason>)> {
    let mut gate = Gate::new(GateConfig::default());
    let decisions: Vec<_> = signals.iter().map(|signal| gate.offer(signal)).collect();
    let places = usize::from(options.per_chunk);
    let frames = chunk.first_frame as usize..(chunk.first_frame + chunk.frames) as usize;
    let strength = |reason| SelectionReason::ALL.iter().position(|other| *other == reason);
    let mut views: Vec<_> = frames
        .clone()
        .filter(|&index| decisions[index].selected)
        .map(|index| (index, Some(decisions[index].reason)))
        // A keepalive says nothing about the picture.
        .filter(|(_, reason)| *reason != Some(SelectionReason::PeriodicKeepalive))
        .collect();
    views.sort_by_key(|(index, reason)| (reason.and_then(strength), *index));
    views.truncate(places);
    for k in 0..places {
        let even = match options.chunks {
            ChunkBoundary::Frames(len) => Some(frames.start + k * len as usize / places),
            ChunkBoundary::Span { ms } => {
                let ms = i64::from(ms);
                let span = chunk.start_pts_ms.div_euclid(ms) * ms;
                // The frame lies at or after the start of the k-th part of the span.
                let is_late = |ms_in| (ms_in - span) * places as i64 >= k as i64 * ms;
                frames.clone().find(|&index| is_late(signals[index].pts_ms))
            }
        };
        let is_new = |even| frames.contains(&even) && views.iter().all(|(index, _)| *index != even);
        if let Some(even) = even.filter(|&even| is_new(even) && views.len() < places) {
            let gate::Decision { selected, reason, .. } = decisions[even];
            views.push((even, selected.then_some(reason)));
        }
    }
    views.sort_by_key(|(index, _)| *index);
    views.into_iter().map(|(index, reason)| (index as u64, reason)).collect()
}

#[test]
fn selected_frames_are_shown_first_and_then_those_at_even_distances() {
    let cases = [
        ("a cut in nearly each", ChunkBoundary::Frames(30), 1),
        ("places left", ChunkBoundary::Frames(30), 4),
        ("more cuts than places", ChunkBoundary::Frames(120), 2),
        ("the tail is a frame", ChunkBoundary::Frames(239), 4),
        ("one chunk", ChunkBoundary::Frames(500), 4),
        ("time", ChunkBoundary::Span { ms: 1000 }, 4),
        ("shorter than a gap", ChunkBoundary::Span { ms: 250 }, 2),
    ];
    for (name, chunks, per_chunk) in cases {
        let asked = Asked { views: shown(chunks, per_chunk), at_ms: uneven_ms, ..ASKED };
        let said = analyse(&[100, 140], asked);
        let (mut next, mut reasons) = (0, 0);
        for (index, (heard, chunk)) in said.chunks.iter().enumerate() {
            let named = format!("{name}, chunk {index}");
            assert_eq!((chunk.index, chunk.first_frame), (index as u64, next), "{named}");
            next += chunk.frames;
            assert_eq!(next, *heard, "{named} comes with its last signal");
            let time = |frame: u64| said.signals[frame as usize].pts_ms;
            let times = (time(chunk.first_frame), time(next - 1));
            assert_eq!((chunk.start_pts_ms, chunk.end_pts_ms), times, "{named}");
            let is_last = index + 1 == said.chunks.len();
            match chunks {
                ChunkBoundary::Frames(len) => {
                    assert!(chunk.frames == u64::from(len) || is_last, "{named}");
                }
                ChunkBoundary::Span { ms } => {
                    let span = |ms_in: i64| ms_in.div_euclid(ms.into());
                    assert_eq!(span(times.0), span(times.1), "{named}");
                    assert!(is_last || span(time(next)) != span(times.1), "{named}");
                }
            }
            let expected =
                views_by_definition(&said.signals, chunk, asked.views.expect("asked for"));
            let got: Vec<_> =
                chunk.views.iter().map(|view| (view.frame_index, view.reason)).collect();
            assert_eq!(got, expected, "{named}");
            assert!(!got.is_empty(), "{named}");
            for view in &chunk.views {
                assert_eq!(view.pts_ms, time(view.frame_index), "{named}");
                assert_eq!(view.picture.extent, Dimensions { width: 64, height: 38 }, "{named}");
            }
            reasons += got.iter().filter(|(_, reason)| reason.is_some()).count();
        }
        assert_eq!(next, 240, "{name}");
        assert!(reasons > 0, "{name}");
    }
}

#[test]
fn a_view_of_all_of_the_picture_is_the_still() {
    let views = shown(ChunkBoundary::Frames(30), 4)
        .map(|some| ChunkImageOptions { max_edge: None, ..some });
    let said = analyse(&[240], Asked { views, ..ASKED });
    let mut same = 0;
    for view in said.chunks.iter().flat_map(|(_, chunk)| &chunk.views) {
        let still = said.stills.iter().find(|still| still.frame_index == view.frame_index);
        assert_eq!(still.is_some(), view.reason.is_some(), "frame {}", view.frame_index);
        if let Some(still) = still {
            assert!(still.picture == view.picture);
            same += 1;
        }
    }
    assert!(same > 7, "{same}");
}

#[test]
fn views_bring_what_novelty_is_told_from_where_it_is_asked_for() {
    let novelty = Some(NoveltySpec { side: 32 });
    let views =
        shown(ChunkBoundary::Frames(30), 4).map(|some| ChunkImageOptions { novelty, ..some });
    let mut maker = EmbeddingInputBuilder::default();
    for (name, lengths) in cuts() {
        let said = analyse(&lengths, Asked { views, ..ASKED });
        let shown: Vec<&ModelImage> =
            said.chunks.iter().flat_map(|(_, chunk)| &chunk.views).collect();
        assert_eq!(shown.len(), 4 * 8, "{name}");
        for view in shown {
            let input = maker.make(&frame(view.frame_index), Rotation::None, None, 32);
            assert_eq!(view.novelty, Some(input.expect("an input")), "{name}");
        }
    }
    let said = analyse(&[240], Asked { views: shown(ChunkBoundary::Frames(30), 4), ..ASKED });
    assert!(said.chunks.iter().flat_map(|(_, chunk)| &chunk.views).all(|v| v.novelty.is_none()));
}

#[test]
fn a_segment_that_starts_over_counts_once() {
    for views in
        [None, shown(ChunkBoundary::Frames(8), 3), shown(ChunkBoundary::Span { ms: 300 }, 3)]
    {
        let asked = Asked { views, ..ASKED };
        let options = options(asked);
        let events = events_of(&options, &GateMeasurement::default(), |job, merger| {
            let mut sink = SegmentSink::new(job);
            // The first attempt ends in the middle of a chunk.
            for attempt in [13, 20] {
                fill(&mut sink, 0..attempt, false, ASKED.at_ms);
            }
            merger.deliver(sink.end().expect("all there")).expect("delivered");
        });
        assert_eq!(Said::of(&options, events), analyse(&[20], asked));
    }
}

#[test]
fn a_receiver_that_stops_ends_the_job() {
    let emit = |_: JobEvent| ControlFlow::Break(());
    let options = options(Asked { stills: false, ..ASKED });
    let measuring = GateMeasurement::default();
    let job = Job::new(&options, Rotation::None, &measuring, &emit);
    let mut sink = SegmentSink::new(&job);
    sink.begin(SegmentInfo { ordinal: 0, first_frame_index: 0, continues_previous: false });
    assert!(sink.frame(0, frame(0)).is_break());
    assert_eq!(job.take_failure(), Err(JobFault::Stopped));
}

#[test]
fn a_receiver_that_stops_at_frames_gets_no_other() {
    let messages = AtomicU64::new(0);
    let emit = |event: JobEvent| match event {
        JobEvent::Frames(_) => {
            messages.fetch_add(1, Relaxed);
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    let options = options(Asked { views: shown(ChunkBoundary::Frames(8), 1), ..ASKED });
    let measuring = GateMeasurement::default();
    let job = Job::new(&options, Rotation::None, &measuring, &emit);
    let mut sink = SegmentSink::new(&job);
    fill(&mut sink, 0..40, false, ASKED.at_ms);
    let segment = sink.end().expect("all there");
    assert_eq!(SegmentMerger::new(&job).deliver(segment), Err(JobFault::Stopped));
    assert_eq!(messages.into_inner(), 1);
}

#[test]
fn a_segment_whose_end_failed_is_not_delivered() {
    let emit = |event: JobEvent| -> ControlFlow<()> { panic!("{event:?}") };
    let options = options(Asked { views: shown(ChunkBoundary::Frames(8), 1), ..ASKED });
    let measuring = GateMeasurement::default();
    let job = Job::new(&options, Rotation::None, &measuring, &emit);
    let fault = JobFault::Other { kind: ErrorKind::Internal, message: "lost".to_owned() };
    job.fail(fault.clone());
    assert_eq!(SegmentMerger::new(&job).deliver(SegmentResult::default()), Err(fault));
}
