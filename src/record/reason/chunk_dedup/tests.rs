//! Tests of the comparison of chunks.

use std::time::Duration;

use embed::{BatchLimits, EmbedError, Embedder, Embedding, ModelInputImage};
use worker::{EmbeddingInput, NoveltyInput};

use super::*;
use crate::record::reason::chunk_tracker::tests::view;

/// Model that embeds the first pixel only, and fails for a black one.
struct FirstPixel;

impl embed::EmbeddingModel for FirstPixel {
    fn side(&self) -> u32 {
        32
    }

    fn provider(&self) -> &'static str {
        "test"
    }

    fn embed(&mut self, pictures: &[ModelInputImage]) -> Result<Vec<Embedding>, EmbedError> {
        let first =
            |picture: &ModelInputImage| picture.rgb()[..3].iter().map(|&v| f32::from(v)).collect();
        let seen: Result<Vec<Embedding>, _> =
            pictures.iter().map(|picture| Embedding::new(first(picture))).collect();
        seen.map_err(|_| EmbedError::Model("black".to_owned()))
    }
}

/// Comparer without shadow checks.
pub fn judge() -> ChunkComparer {
    let embedder = Embedder::start(FirstPixel, BatchLimits::default(), Duration::from_secs(60));
    let novelty = ChunkNovelty {
        eyes: ImageEmbedder::Model(Arc::new(embedder.expect("a thread"))),
        rule: ReuseRule { shadow_one_in: 0, ..ReuseRule::default() },
        metrics: Arc::new(Metrics::new()),
    };
    ChunkComparer::new(novelty, 7)
}

pub fn input([r, g, b]: [u8; 3]) -> NoveltyInput {
    let cells = vec![g; NoveltyInput::COLUMNS * NoveltyInput::ROWS];
    NoveltyInput { cells, picture: EmbeddingInput { side: 32, rgb: [r, g, b].repeat(32 * 32) } }
}

fn chunk(index: u64, colours: &[Option<[u8; 3]>]) -> FrameChunk {
    let start_pts_ms = index as i64 * 500;
    let views = colours.iter().zip(0..).map(|(colour, at)| ModelImage {
        frame_index: index * 30 + at as u64,
        novelty: colour.map(input),
        ..view(start_pts_ms + 100 * at)
    });
    let (first_frame, end_pts_ms) = (index * 30, start_pts_ms + 480);
    FrameChunk { index, first_frame, frames: 30, start_pts_ms, end_pts_ms, views: views.collect() }
}

const RED: Option<[u8; 3]> = Some([200, 50, 50]);
const DARKER: Option<[u8; 3]> = Some([200, 40, 50]);
const BLUE: Option<[u8; 3]> = Some([50, 50, 200]);
const BLACK: Option<[u8; 3]> = Some([0, 0, 0]);

#[tokio::test]
async fn a_chunk_is_the_same_as_the_last_one_asked_about_or_it_is_new() {
    type Row = (&'static str, &'static [&'static [Option<[u8; 3]>]], &'static [Option<u64>]);
    let rows: [Row; 9] = [
        ("a still scene", &[&[RED], &[RED], &[DARKER]], &[None, Some(0), Some(0)]),
        ("another scene, and back", &[&[RED], &[BLUE], &[RED]], &[None, None, None]),
        ("all views count", &[&[RED, RED], &[RED, BLUE], &[BLUE, BLUE]], &[None, None, None]),
        ("one that moves stands for none", &[&[RED, BLUE], &[BLUE, BLUE]], &[None, None]),
        ("one that stands still does", &[&[RED, DARKER], &[RED, RED]], &[None, Some(0)]),
        (
            "2 s and no longer",
            &[&[RED] as &[_]; 6],
            &[None, Some(0), Some(0), Some(0), Some(0), None],
        ),
        ("what cannot be seen is new", &[&[RED], &[BLACK], &[RED]], &[None, None, None]),
        ("what is not given is new", &[&[RED], &[None], &[RED]], &[None, None, None]),
        ("nor stands for others", &[&[BLACK], &[BLACK], &[RED, BLACK]], &[None, None, None]),
    ];
    for (name, chunks, expected) in rows {
        let mut judge = judge();
        let mut found = Vec::new();
        for (index, colours) in chunks.iter().enumerate() {
            let judged = judge.judging(chunk(index as u64, colours)).await;
            judge = judged.judge;
            found.push(judged.same_as);
            assert!(judged.chunk.views.len() == colours.len(), "{name}");
        }
        assert_eq!(found, expected, "{name}");
    }
}

#[tokio::test]
async fn what_is_new_is_counted_once() {
    let mut judge = judge();
    let metrics = Arc::clone(&judge.novelty.metrics);
    for (index, colours) in [[RED; 3], [RED; 3], [BLUE; 3], [BLACK; 3]].iter().enumerate() {
        judge = judge.judging(chunk(index as u64, colours)).await.judge;
    }
    let count = |decision| metrics.novelty_decisions.of(decision).get();
    let counted = [
        count(NoveltyDecision::First),
        count(NoveltyDecision::Distance),
        count(NoveltyDecision::Failed),
    ];
    assert_eq!(counted, [1; 3]);
    assert_eq!(count(NoveltyDecision::Reuse), 0, "not before there is an answer");
    assert_eq!(metrics.embedding_seconds.get_sample_count(), 10, "the last stops at the first");
}
