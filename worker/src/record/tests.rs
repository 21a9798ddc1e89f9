//! Tests of records that no sound worker sends, for files and live sessions, and of their messages.

use gate::GateConfig;
use media::{Codec, Rotation};

use super::*;
use crate::{
    ChunkBoundary, ChunkImageOptions, ClipSpec, JobOptions, ModelImageSpec, SessionSpec,
    jpeg::shortest, session::LIMITS,
};

const EXTENT: Dimensions = Dimensions { width: 320, height: 180 };
const FRAMES_MAX: u64 = 100;
const EDGE: u32 = 512;

fn record(frame_index: u64, pictures: FrameImages) -> FrameRecord {
    let signal = Signal::plain(frame_index, 40 * frame_index as i64);
    FrameRecord { signal, pts: None, pictures }
}

fn picture(width: u32, height: u32) -> EncodedImage {
    let extent = Dimensions { width, height };
    EncodedImage { extent, jpeg: shortest(extent) }
}

/// Makes a picture of this many bytes.
fn weighing(bytes: usize) -> EncodedImage {
    let mut picture = picture(EDGE, 288);
    let end = picture.jpeg.len() - 2;
    picture.jpeg.splice(end..end, vec![0; bytes - picture.jpeg.len()]);
    picture
}

fn novelty(side: u32) -> NoveltyInput {
    let cells = vec![0; NoveltyInput::COLUMNS * NoveltyInput::ROWS];
    NoveltyInput {
        cells,
        picture: EmbeddingInput { side, rgb: vec![0; 3 * (side * side) as usize] },
    }
}

/// Checks after ten frames: of a file and of a live session with all options, and of signals only.
fn checks() -> [RecordCheck; 3] {
    let novelty = Some(NoveltySpec { side: 32 });
    let views = ChunkImageOptions {
        chunks: ChunkBoundary::Frames(30),
        per_chunk: 2,
        max_edge: Some(EDGE),
        crop: None,
        novelty,
    };
    let options = JobOptions {
        max_frames: FRAMES_MAX,
        stills: true,
        views: Some(views),
        ..JobOptions::default()
    };
    let bare = SessionSpec::new(Codec::H264, GateConfig::default());
    let clip =
        ClipSpec { target_fps: 1, length_ms: 1000, delay_ms: 0, pictures: 1, max_edge: EDGE };
    let view = Some(ModelImageSpec { max_edge: Some(EDGE) });
    let all = SessionSpec { stills: true, view, clip: Some(clip), novelty, ..bare.clone() };
    let file = PictureSpec::of_job(&options, Rotation::Quarter);
    let live = |spec: &SessionSpec| {
        let pictures = PictureSpec::of_session(spec);
        RecordCheck::new(0, FRAMES_MAX, LIMITS.side_px, spec.stills, pictures)
    };
    let mut checks = [RecordCheck::new(0, FRAMES_MAX, 8192, true, file), live(&all), live(&bare)];
    let ten: Vec<_> = (0..10).map(|at| record(at, FrameImages::default())).collect();
    checks.iter_mut().for_each(|check| check.look(&ten).expect("ten frames"));
    checks
}

#[test]
fn a_worker_says_one_record_of_each_frame_and_no_picture_but_what_was_asked_for() {
    let still = |picture| FrameImages { still: Some(picture), ..FrameImages::default() };
    let view = |picture| FrameImages {
        view: Some(FrameView::Own(picture)),
        novelty: Some(novelty(32)),
        ..FrameImages::default()
    };
    let clip = |picture| FrameImages { clip: Some(picture), ..FrameImages::default() };
    let none = FrameImages::default;
    let text = EncodedImage { extent: EXTENT, jpeg: b"<script>".to_vec() };
    let other = EncodedImage { jpeg: shortest(Dimensions { width: 2, height: 1 }), extent: EXTENT };
    let shared = FrameImages { view: Some(FrameView::Still), ..view(picture(2, 2)) };
    // True for each of the three checks that accepts the record.
    type Row = (&'static str, u64, FrameImages, [bool; 3]);
    let rows: Vec<Row> = vec![
        ("the next", 10, none(), [true; 3]),
        ("a gap", 11, none(), [false; 3]),
        ("the same again", 9, none(), [false; 3]),
        ("a still", 10, still(picture(320, 180)), [true, true, false]),
        ("a still that is none", 10, still(text.clone()), [false; 3]),
        ("of another size than it says", 10, still(other.clone()), [false; 3]),
        ("a side that no source has", 10, still(picture(8193, 1)), [false; 3]),
        ("a side that no live source has", 10, still(picture(8192, 1)), [true, false, false]),
        ("a view", 10, view(picture(288, EDGE)), [true, true, false]),
        ("a view that is too wide", 10, view(picture(EDGE + 1, 288)), [false; 3]),
        ("a view that is too high", 10, view(picture(288, EDGE + 1)), [false; 3]),
        ("a view that is none", 10, view(text.clone()), [false; 3]),
        ("a view of another size", 10, view(other), [false; 3]),
        ("the heaviest view", 10, view(weighing(VIEW_BYTES_MAX)), [true, true, false]),
        ("a view that is too heavy", 10, view(weighing(VIEW_BYTES_MAX + 1)), [false; 3]),
        (
            "the still as a view",
            10,
            FrameImages { still: Some(picture(9, 9)), ..shared.clone() },
            [true, true, false],
        ),
        (
            "a large still as a view",
            10,
            FrameImages { still: Some(picture(EDGE + 1, 9)), ..shared.clone() },
            [false; 3],
        ),
        ("no still as a view", 10, shared, [false; 3]),
        (
            "a view without what novelty needs",
            10,
            FrameImages { novelty: None, ..view(picture(9, 9)) },
            [false; 3],
        ),
        (
            "novelty of another size",
            10,
            FrameImages { novelty: Some(novelty(33)), ..none() },
            [false; 3],
        ),
        (
            "novelty alone",
            10,
            FrameImages { novelty: Some(novelty(32)), ..none() },
            [true, true, false],
        ),
        ("a clip's picture", 10, clip(picture(EDGE, 9)), [false, true, false]),
        ("a clip's picture that is too wide", 10, clip(picture(EDGE + 1, 9)), [false; 3]),
        (
            "the heaviest of a clip",
            10,
            clip(weighing(CLIP_PICTURE_BYTES_MAX)),
            [false, true, false],
        ),
        ("too heavy for a clip", 10, clip(weighing(CLIP_PICTURE_BYTES_MAX + 1)), [false; 3]),
    ];
    for (name, frame_index, pictures, expected) in rows {
        let said = [record(frame_index, pictures)];
        let judged = checks().map(|mut check| check.look(&said).is_ok());
        assert_eq!(judged, expected, "{name}");
    }
    let many: Vec<_> = (10..=FRAMES_MAX).map(|at| record(at, none())).collect();
    for mut check in checks() {
        assert!(check.look(&many).is_err(), "more frames than asked for");
    }
}

#[test]
fn messages_are_of_so_many_records_and_a_large_picture_goes_alone() {
    let of = |bytes: usize| match bytes {
        0 => FrameImages::default(),
        bytes => FrameImages { still: Some(weighing(bytes)), ..FrameImages::default() },
    };
    let rows = [
        ("none", vec![0; 3], vec![3]),
        ("more than a message", vec![0; RECORDS_MAX + 1], vec![RECORDS_MAX, 1]),
        ("a large one", vec![0, 0, PICTURE_BYTES + 1, 0, 0], vec![2, 1, 2]),
        ("two halves", vec![PICTURE_BYTES / 2; 3], vec![2, 1]),
    ];
    for (name, sizes, expected) in rows {
        let (mut gathered, mut messages) = (Gathered::default(), Vec::new());
        let say: Say<'_> = &mut |records| {
            messages.push(records.len());
            Ok(())
        };
        for (at, size) in sizes.into_iter().enumerate() {
            gathered.push(record(at as u64, of(size)), say).expect("said");
        }
        gathered.say(say).expect("said");
        assert_eq!(messages, expected, "{name}");
    }
}
