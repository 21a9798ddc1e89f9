//! Bounds of what may be asked, and what a worker may answer.

use super::*;
use crate::{EmbeddingInput, jpeg::shortest};

fn score(millionths: u32) -> Score {
    Score::from_millionths(millionths)
}

#[test]
fn a_crop_is_a_part_of_the_picture() {
    let cases = [
        ("all", [0, 0, 1_000_000, 1_000_000], true),
        ("the last millionth", [999_999, 999_999, 1, 1], true),
        ("no width", [0, 0, 0, 1_000_000], false),
        ("no height", [500_000, 0, 500_000, 0], false),
        ("beyond the right", [500_000, 0, 500_001, 1_000_000], false),
        ("beyond the bottom", [0, 1_000_000, 1_000_000, 1], false),
    ];
    for (name, [x, y, width, height], fits) in cases {
        let crop = Crop::new(score(x), score(y), score(width), score(height));
        assert_eq!(crop.is_some(), fits, "{name}");
    }
}

#[test]
fn numbers_beyond_their_bounds_are_taken_for_the_nearest() {
    let options = |chunks, per_chunk, max_edge| ViewOptions {
        chunks,
        per_chunk,
        max_edge,
        crop: None,
        novelty: None,
    };
    let span = |ms| Chunking::Span { ms };
    let cases = [
        (
            "all below",
            options(Chunking::Frames(0), 0, Some(0)),
            options(Chunking::Frames(5), 1, Some(64)),
        ),
        (
            "all above",
            options(Chunking::Frames(501), 5, Some(4097)),
            options(Chunking::Frames(500), 4, Some(4096)),
        ),
        ("no time", options(span(0), 1, None), options(span(1), 1, None)),
        ("over a minute", options(span(60_001), 1, None), options(span(60_000), 1, None)),
        ("within", options(span(40), 4, Some(512)), options(span(40), 4, Some(512))),
    ];
    for (name, asked, taken) in cases {
        assert_eq!(asked.within_bounds(), taken, "{name}");
        let mut bytes = Vec::new();
        asked.put(&mut bytes);
        let read = ViewOptions::get(&mut Reader::new(&bytes));
        let expected = if asked == taken { Ok(asked) } else { Err("view options") };
        assert_eq!(read, expected.map_err(ProtocolError::Invalid), "{name} from the wire");
    }
}

const EXTENT: Extent = Extent { width: 512, height: 288 };

fn view(frame_index: u64) -> View {
    View {
        frame_index,
        pts: Timestamp::from_millis(0),
        reason: None,
        extent: EXTENT,
        jpeg: shortest(EXTENT),
        novelty: None,
    }
}

/// Chunk 1 of a job in chunks of 30 frames.
fn chunk(views: &[u64]) -> Chunk {
    let views = views.iter().map(|&index| view(index)).collect();
    Chunk { index: 1, first_frame: 30, frames: 12, start_pts_ms: 1200, end_pts_ms: 1640, views }
}

#[test]
fn a_worker_is_held_to_the_chunks_that_were_asked_for() {
    let resized = |width, height| {
        let mut chunk = chunk(&[33]);
        chunk.views[0].extent = Extent { width, height };
        chunk.views[0].jpeg = shortest(chunk.views[0].extent);
        chunk
    };
    let showing = |jpeg: Vec<u8>| {
        let mut chunk = chunk(&[33]);
        chunk.views[0].jpeg = jpeg;
        chunk
    };
    let weighing = |bytes: usize| {
        let mut jpeg = shortest(EXTENT);
        let end = jpeg.len() - 2;
        jpeg.splice(end..end, vec![0; bytes - jpeg.len()]);
        showing(jpeg)
    };
    let telling = || {
        let mut chunk = chunk(&[33]);
        let cells = vec![0; NoveltyInput::COLUMNS * NoveltyInput::ROWS];
        let picture = EmbeddingInput { side: 32, rgb: vec![0; 3 * 32 * 32] };
        chunk.views[0].novelty = Some(NoveltyInput { cells, picture });
        chunk
    };
    let cases = [
        ("as asked", chunk(&[30, 41]), true),
        ("its largest view", resized(288, 512), true),
        ("another index", Chunk { index: 2, ..chunk(&[30]) }, false),
        ("a gap", Chunk { first_frame: 31, frames: 11, ..chunk(&[31]) }, false),
        ("signals are missing", Chunk { frames: 13, ..chunk(&[30]) }, false),
        ("signals are left over", Chunk { frames: 11, ..chunk(&[30]) }, false),
        ("frames beyond all numbers", Chunk { frames: u64::MAX, ..chunk(&[30]) }, false),
        ("no view", chunk(&[]), false),
        ("more views than asked for", chunk(&[30, 31, 32]), false),
        ("a view twice", chunk(&[30, 30]), false),
        ("views in disorder", chunk(&[31, 30]), false),
        ("a view of another chunk", chunk(&[29, 30]), false),
        ("a view of no frame", chunk(&[42]), false),
        ("a view that is too wide", resized(513, 288), false),
        ("a view that is too high", resized(288, 513), false),
        ("an empty view", showing(Vec::new()), false),
        ("a view that is no JPEG", showing(b"<script>".to_vec()), false),
        ("a picture of another size", showing(shortest(Extent { width: 2, height: 1 })), false),
        ("the heaviest view", weighing(VIEW_BYTES_MAX), true),
        ("a view with more than was asked for", telling(), false),
        ("a view that is too heavy", weighing(VIEW_BYTES_MAX + 1), false),
    ];
    let options = ViewOptions {
        chunks: Chunking::Frames(30),
        per_chunk: 2,
        max_edge: Some(512),
        crop: None,
        novelty: None,
    };
    for (name, chunk, is_fine) in cases {
        let mut check = ChunkCheck::new(Some(options));
        let first = Chunk { index: 0, first_frame: 0, frames: 30, ..self::chunk(&[0]) };
        assert!(check.take(&first, 30), "{name}");
        assert_eq!(check.take(&chunk, 42), is_fine, "{name}");
    }
}

#[test]
fn chunks_are_as_long_as_asked_and_come_only_where_asked() {
    let first = |frames| Chunk { index: 0, first_frame: 0, frames, ..chunk(&[0]) };
    let options =
        |chunks| ViewOptions { chunks, per_chunk: 1, max_edge: None, crop: None, novelty: None };
    let span = Some(options(Chunking::Span { ms: 1000 }));
    let cases = [
        ("a long span", span, 400, true),
        ("frames", Some(options(Chunking::Frames(30))), 30, true),
        ("too many frames", Some(options(Chunking::Frames(30))), 31, false),
        ("none asked for", None, 30, false),
    ];
    for (name, options, frames, is_fine) in cases {
        let mut check = ChunkCheck::new(options);
        assert_eq!(check.take(&first(frames), frames), is_fine, "{name}");
    }
}
