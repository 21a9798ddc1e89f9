//! Tests of records that no sound worker sends, for files and live sessions, and of their messages.

use gate::GateConfig;
use media::{Codec, Rotation};

use super::*;
use crate::{
    ChunkBoundary, ChunkImageOptions, ClipSpec, JobOptions, SessionSpec, jpeg::shortest,
    session::LIMITS,
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
    let views = ChunkImageOptions::new(ChunkBoundary::Frames(30), 2);
    let views = ChunkImageOptions { max_edge: Some(EDGE), novelty, ..views };
    let options = JobOptions {
        max_frames: FRAMES_MAX,
        stills: true,
        views: Some(views),
        ..JobOptions::default()
    };
    let bare = SessionSpec::new(Codec::H264, GateConfig::default());
    let clip =
        ClipSpec { target_fps: 1, length_ms: 1000, delay_ms: 0, pictures: 1, max_edge: EDGE };
    let (view_edge, clip) = (Some(EDGE), Some(clip));
    let all = SessionSpec { stills: true, view_edge, clip, novelty, ..bare.clone() };
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
    let none = FrameImages::default;
    let still = |picture| FrameImages { still: Some(picture), ..none() };
    let input = |side| FrameImages { novelty: Some(novelty(side)), ..none() };
    let view = |picture| FrameImages { view: Some(FrameView::Own(picture)), ..input(32) };
    let shared = |still| FrameImages { still, view: Some(FrameView::Still), ..input(32) };
    let clip = |picture| FrameImages { clip: Some(picture), ..none() };
    let text = EncodedImage { extent: EXTENT, jpeg: b"<script>".to_vec() };
    let other = EncodedImage { jpeg: shortest(Dimensions { width: 2, height: 1 }), extent: EXTENT };
    let of_pictures = [true, true, false];
    // True for each of the three checks that accepts the record.
    let rows = [
        ("no picture", none(), [true; 3]),
        ("a still", still(picture(320, 180)), of_pictures),
        ("a still that is none", still(text.clone()), [false; 3]),
        ("of another size than it says", still(other.clone()), [false; 3]),
        ("a side that no source has", still(picture(8193, 1)), [false; 3]),
        ("a side that no live source has", still(picture(8192, 1)), [true, false, false]),
        ("a view", view(picture(288, EDGE)), of_pictures),
        ("a view that is too wide", view(picture(EDGE + 1, 288)), [false; 3]),
        ("a view that is too high", view(picture(288, EDGE + 1)), [false; 3]),
        ("a view that is none", view(text), [false; 3]),
        ("a view of another size", view(other), [false; 3]),
        ("the heaviest view", view(weighing(VIEW_BYTES_MAX)), of_pictures),
        ("a view that is too heavy", view(weighing(VIEW_BYTES_MAX + 1)), [false; 3]),
        ("the still as a view", shared(Some(picture(9, 9))), of_pictures),
        ("a large still as a view", shared(Some(picture(EDGE + 1, 9))), [false; 3]),
        ("no still as a view", shared(None), [false; 3]),
        ("a view without input", FrameImages { novelty: None, ..view(picture(9, 9)) }, [false; 3]),
        ("novelty of another size", input(33), [false; 3]),
        ("novelty alone", input(32), of_pictures),
        ("a clip's picture", clip(picture(EDGE, 9)), [false, true, false]),
        ("a clip's picture that is too wide", clip(picture(EDGE + 1, 9)), [false; 3]),
        ("the heaviest of a clip", clip(weighing(CLIP_PICTURE_BYTES_MAX)), [false, true, false]),
        ("too heavy for a clip", clip(weighing(CLIP_PICTURE_BYTES_MAX + 1)), [false; 3]),
    ];
    for (name, pictures, expected) in rows {
        let said = [record(10, pictures)];
        let judged = checks().map(|mut check| check.look(&said).is_ok());
        assert_eq!(judged, expected, "{name}");
    }
    let many: Vec<_> = (10..=FRAMES_MAX).map(|at| record(at, none())).collect();
    for mut check in checks() {
        for (name, said) in [
            ("a gap", &[record(11, none())][..]),
            ("the same again", &[record(9, none())][..]),
            ("more frames than asked for", &many[..]),
        ] {
            assert!(check.look(said).is_err(), "{name}");
        }
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
        let mut gathered = Gathered::default();
        for (at, size) in sizes.into_iter().enumerate() {
            gathered.push(record(at as u64, of(size)));
        }
        let messages: Vec<usize> = gathered.take().iter().map(Vec::len).collect();
        assert_eq!(messages, expected, "{name}");
        assert!(gathered.take().is_empty(), "{name}");
    }
}
