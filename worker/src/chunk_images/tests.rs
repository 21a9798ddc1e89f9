//! Tests of the bounds of options.

use super::*;

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
    let options = |chunks, per_chunk, max_edge| ChunkImageOptions {
        max_edge,
        ..ChunkImageOptions::new(chunks, per_chunk)
    };
    let span = |ms| ChunkBoundary::Span { ms };
    let cases = [
        (
            "all below",
            options(ChunkBoundary::Frames(0), 0, Some(0)),
            options(ChunkBoundary::Frames(5), 1, Some(64)),
        ),
        (
            "all above",
            options(ChunkBoundary::Frames(501), 5, Some(4097)),
            options(ChunkBoundary::Frames(500), 4, Some(4096)),
        ),
        ("no time", options(span(0), 1, None), options(span(1), 1, None)),
        ("over a minute", options(span(60_001), 1, None), options(span(60_000), 1, None)),
        ("within", options(span(40), 4, Some(512)), options(span(40), 4, Some(512))),
    ];
    for (name, asked, taken) in cases {
        assert_eq!(asked.within_bounds(), taken, "{name}");
        let bytes = postcard::to_stdvec(&asked).expect("written");
        let read = postcard::from_bytes::<ChunkImageOptions>(&bytes);
        assert_eq!(read.is_ok(), asked == taken, "{name} from the wire");
    }
}
