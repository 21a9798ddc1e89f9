//! Tests of the tracker: chunks in, answers in any order, totals out.

use media::Dimensions;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

pub fn inquiry() -> PromptConfig {
    PromptConfig {
        task: "Count vans.".to_owned(),
        is_clip: false,
        is_chained: false,
        compares: false,
        concurrency: 2,
    }
}

pub fn view(pts_ms: i64) -> ModelImage {
    ModelImage {
        frame_index: 0,
        pts_ms,
        reason: None,
        picture: worker::EncodedImage {
            extent: Dimensions { width: 2, height: 2 },
            jpeg: pts_ms.to_string().into_bytes(),
        },
        novelty: None,
    }
}

/// Chunk of one second and thirty frames, with pictures at `shown_ms` after its start.
pub fn chunk(index: u64, shown_ms: &[i64]) -> FrameChunk {
    let start = index as i64 * 1000;
    FrameChunk {
        index,
        first_frame: index * 30,
        frames: 30,
        start_pts_ms: start,
        end_pts_ms: start + 967,
        views: shown_ms.iter().map(|at| view(start + at)).collect(),
    }
}

fn shown(question: &ChunkPrompt) -> Vec<(&str, &str)> {
    let text = |image| std::str::from_utf8(image).expect("ours");
    question.images.iter().map(|image| (&*image.caption, text(&image.jpeg))).collect()
}

#[test]
fn a_chain_tells_what_was_said_last() {
    let mut ledger = ChunkTracker::new(PromptConfig { is_chained: true, ..inquiry() });
    // Description of each chunk, and the previous description in the next prompt.
    let rows = [
        (Some("a van arrives"), Some("a van arrives")),
        (None, Some("a van arrives")),
        (Some("it leaves"), Some("it leaves")),
    ];
    assert_eq!(ledger.ask(chunk(0, &[0]), MS(0)).prompt.version.to_string(), "describe-1");
    for (index, (said, told)) in (0..).zip(rows) {
        ledger.complete(index, said, TokenUsage::default(), MS(1), MS(1));
        let prompt = ledger.ask(chunk(index + 1, &[0]), MS(1)).prompt;
        assert_eq!(prompt.version.to_string(), "describe-1+chain-1");
        assert!(told.is_some_and(|told| prompt.text.contains(told)), "{}", prompt.text);
    }
    let mut apart = ChunkTracker::new(inquiry());
    apart.ask(chunk(0, &[0]), MS(0));
    apart.complete(0, Some("a van arrives"), TokenUsage::default(), MS(1), MS(1));
    assert!(!apart.ask(chunk(1, &[0]), MS(1)).prompt.text.contains("van arrives"));
}

#[test]
fn a_comparison_shows_the_picture_before_without_its_answer() {
    let mut ledger = ChunkTracker::new(PromptConfig { compares: true, ..inquiry() });
    let first = ledger.ask(chunk(0, &[0, 900]), MS(0));
    assert_eq!(first.prompt.version.to_string(), "describe-1");
    assert_eq!(shown(&first), [("Picture 1 of 1, at 0.900 s:", "900")]);
    let second = ledger.ask(chunk(1, &[100]), MS(0));
    assert_eq!(second.prompt.version.to_string(), "diff-1");
    let text = &second.prompt.text;
    assert!(text.contains("between 1.000 s and 1.967 s"), "of the chunk: {text}");
    assert_eq!(
        shown(&second),
        [("Picture 1 of 2, at 0.900 s:", "900"), ("Picture 2 of 2, at 1.100 s:", "1100")]
    );
}

#[test]
fn lag_is_time_spent_beyond_the_media_and_never_negative() {
    let mut ledger = ChunkTracker::new(PromptConfig { concurrency: 8, ..inquiry() });
    (2..5).for_each(|index| drop(ledger.ask(chunk(index, &[0]), MS(100 * index))));
    let tokens = TokenUsage { prompt: 10, completion: 2, thinking: 1, total: 13 };
    // The media begins at 2 s; chunk 3 ends 1967 ms after that.
    let (span, timing) =
        ledger.complete(3, Some("x"), tokens, MS(150), MS(500)).expect("it was asked");
    assert_eq!((span.first_frame, span.frames, span.start_pts_ms), (90, 30, 3000));
    assert_eq!(timing, Timing { process_ms: 200, lag_ms: 0 });
    let (_, late) = ledger.complete(2, None, tokens, MS(150), MS(60_000)).expect("it was asked");
    assert_eq!(late, Timing { process_ms: 59_800, lag_ms: 60_000 - 967 });
    let totals = ledger.totals();
    assert_eq!((totals.lag_p95_ms, totals.lag_p99_ms), (59_033, 59_033));
    assert_eq!((totals.chunks_analyzed, totals.latency), (1, MS(300)));
    assert_eq!(totals.tokens, tokens + tokens, "failed asks cost too");
}

#[test]
fn a_percentile_is_a_value_that_so_many_keep_to() {
    let hundred: Vec<i64> = (1..=100).collect();
    let cases: [(&[i64], usize, i64); 7] = [
        (&[], 95, 0),
        (&[7], 95, 7),
        (&[1, 2], 95, 2),
        (&[1, 2], 50, 1),
        (&hundred, 95, 95),
        (&hundred, 99, 99),
        (&hundred[..20], 95, 19),
    ];
    for (sorted, percent, expected) in cases {
        assert_eq!(percentile(sorted, percent), expected, "{percent} % of {}", sorted.len());
    }
}
