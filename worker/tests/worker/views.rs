//! Views of clips: a worker's equal those made in this process, for any number of threads, and each is a JPEG
//! of the announced size.

use std::path::Path;

use clips::{pick_one, pick_with};
use gate::{Gate, GateConfig};
use media::{Dimensions, Score};
use turbojpeg::read_header;
use worker::{
    ChunkBoundary, ChunkBuilder, ChunkImageOptions, Crop, FrameChunk, JobOptions, JobSpec,
    ModelImage,
};

use crate::{
    jobs,
    support::{self, Heard, alone, long_clip, run, spec, with},
};

fn options(chunks: ChunkBoundary, per_chunk: u8, max_edge: Option<u32>) -> ChunkImageOptions {
    ChunkImageOptions { max_edge, ..ChunkImageOptions::new(chunks, per_chunk) }
}

fn in_process(path: &Path, views: ChunkImageOptions, threads: usize) -> Heard {
    let options = JobOptions { stills: false, views: Some(views), threads, ..support::options() };
    jobs::in_process(path, &options)
}

fn in_worker(path: &Path, views: ChunkImageOptions, threads: usize) -> Heard {
    let options = JobOptions { stills: false, views: Some(views), threads, ..support::options() };
    run(JobSpec { options, ..spec(path) }).expect("a result").settled()
}

/// Returns the chunks of the events; fails if a view is of a frame of which none is wanted.
fn chunks_of(heard: &Heard, options: ChunkImageOptions) -> Vec<FrameChunk> {
    let (mut gate, mut chunker) = (Gate::new(GateConfig::default()), ChunkBuilder::new(options));
    let (mut views, mut chunks) = (heard.views.iter().peekable(), Vec::new());
    for signal in &heard.signals {
        chunks.extend(chunker.begin(signal));
        let decision = gate.offer(signal);
        let reason = decision.selected.then_some(decision.reason);
        let view = views.next_if(|view| view.frame_index == signal.frame_index);
        assert_eq!(view.is_some(), chunker.wants(reason), "frame {}", signal.frame_index);
        if let Some(view) = view {
            chunker.take(signal.frame_index, reason, ModelImage { reason, ..view.clone() });
        }
        chunks.extend(chunker.end());
    }
    chunks.extend(chunker.finish());
    chunks
}

/// Checks that every frame is in one chunk, and that every view matches its description.
fn assert_whole(heard: &Heard, views: ChunkImageOptions, name: &str) {
    let mut next = 0;
    for (index, chunk) in chunks_of(heard, views).iter().enumerate() {
        assert_eq!((chunk.index, chunk.first_frame), (index as u64, next), "{name}");
        next += chunk.frames;
        assert!(!chunk.views.is_empty(), "{name}: chunk {index}");
        assert!(chunk.views.len() <= views.per_chunk.into(), "{name}: chunk {index}");
        for view in &chunk.views {
            let header = read_header(&view.picture.jpeg).expect("a JPEG");
            let Dimensions { width, height } = view.picture.extent;
            let size = (width as usize, height as usize);
            assert_eq!((header.width, header.height), size, "{name}: frame {}", view.frame_index);
        }
    }
    assert_eq!(next, heard.signals.len() as u64, "{name}");
}

#[test]
fn the_number_of_threads_changes_no_chunk() {
    let _alone = alone();
    let built_in = [
        ("street.mp4", options(ChunkBoundary::Frames(30), 4, Some(256))),
        ("talk.mp4", options(ChunkBoundary::Frames(5), 1, Some(128))),
        ("bikes.mp4", options(ChunkBoundary::Frames(500), 4, None)),
        ("water.webm", options(ChunkBoundary::Span { ms: 333 }, 3, Some(200))),
        ("edit-list.mp4", options(ChunkBoundary::Span { ms: 60_000 }, 4, Some(64))),
        ("hevc.mp4", options(ChunkBoundary::Frames(20), 2, Some(1024))),
        ("vfr.mp4", options(ChunkBoundary::Span { ms: 1000 }, 4, Some(300))),
    ];
    let media = [
        ("surv_car-detection.mp4", options(ChunkBoundary::Frames(30), 4, Some(256))),
        ("talk_friday.mp4", options(ChunkBoundary::Frames(5), 1, Some(128))),
        ("nature_flower.mp4", options(ChunkBoundary::Frames(500), 4, None)),
        ("nature_water.webm", options(ChunkBoundary::Span { ms: 333 }, 3, Some(200))),
        ("anim_adx-dash.mp4", options(ChunkBoundary::Span { ms: 60_000 }, 4, Some(64))),
        ("phone_adx-topshots.mp4", options(ChunkBoundary::Frames(20), 2, Some(1024))),
        ("screen_mb-vfr.mp4", options(ChunkBoundary::Span { ms: 1000 }, 4, Some(300))),
    ];
    for (path, views) in pick_with(&built_in, &media) {
        let name = path.display().to_string();
        let one = in_process(&path, views, 1);
        assert_whole(&one, views, &name);
        let stream = one.opened.as_ref().expect("opened");
        let (upright, shown) =
            (stream.extent.rotated(stream.rotation), one.views[0].picture.extent);
        let longer = |extent: Dimensions| extent.width.max(extent.height);
        assert_eq!(longer(shown), longer(upright).min(views.max_edge.unwrap_or(4096)), "{name}");
        assert_eq!(shown.width > shown.height, upright.width > upright.height, "{name}");
        assert!(in_worker(&path, views, 3) == one, "{name} in a worker on three threads");
    }
}

#[test]
fn views_of_a_turned_clip_are_cropped_as_it_is_seen() {
    let _alone = alone();
    let path = pick_one("rotated.mp4", "anim_mb-rotate-bbb.mp4");
    let score = |value| Score::from_f64(value).expect("a fraction");
    let crop = Crop::new(score(0.25), score(0.5), score(0.5), score(0.25));
    assert!(crop.is_some());
    let views = ChunkImageOptions { crop, ..options(ChunkBoundary::Frames(30), 1, Some(400)) };
    let heard = in_process(&path, views, 1);
    let stream = heard.opened.as_ref().expect("opened");
    let upright = stream.extent.rotated(stream.rotation);
    assert_ne!(upright, stream.extent);
    let shown = heard.views[0].picture.extent;
    // 540x480 of 1080x1920, scaled to 400 across.
    let region = crop.expect("inside").region(upright);
    assert_eq!((region.width, region.height), (upright.width / 2, upright.height / 4));
    assert_eq!(shown.width.max(shown.height), 400);
    assert_eq!(shown.height, (region.height * 400 + region.width / 2) / region.width);
}

#[test]
fn numbers_beyond_their_bounds_are_taken_for_the_nearest() {
    let _alone = alone();
    let path = long_clip();
    let beyond = options(ChunkBoundary::Frames(0), 9, Some(1));
    let spec = with(spec(&path), |it| (it.views, it.max_frames) = (Some(beyond), 12));
    let heard = run(spec).expect("a result");
    let chunks = chunks_of(&heard, beyond);
    let frames: Vec<u64> = chunks.iter().map(|chunk| chunk.frames).collect();
    assert_eq!(frames, [5, 5, 2]);
    assert_eq!(chunks[0].views.len(), 4);
    assert_eq!(chunks[0].views[0].picture.extent, Dimensions { width: 64, height: 36 });
}
