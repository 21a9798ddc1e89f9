//! Tests of chunks that reuse the answer to another chunk.

use std::collections::BTreeMap;

use super::*;
use crate::{base::metrics::NoveltyDecision, record::reason::chunk_dedup};

/// Chunks from `first` on with one view each, of these colours, half a second apart.
fn coloured<const N: usize>(first: u64, colours: [[u8; 3]; N]) -> impl Iterator<Item = FrameChunk> {
    (first..).zip(colours).map(|(index, colour)| {
        let mut chunk = chunk(index);
        chunk.views[0].pts_ms = index as i64 * 500;
        chunk.views[0].novelty = Some(chunk_dedup::tests::input(colour));
        chunk
    })
}

/// Stage that reuses answers.
async fn reusing(describer: &Arc<Scripted>, inquiry: PromptConfig) -> Stage {
    stage(describer, inquiry, Some(chunk_dedup::tests::judge())).await
}

const RED: [u8; 3] = [200, 50, 50];
const BLUE: [u8; 3] = [50, 50, 200];

/// Recorded chunks by index, each with its description and the chunk whose answer it reuses.
fn descriptions(registry: &RunRegistry, run: &Run) -> BTreeMap<u64, (String, Option<u64>)> {
    let stored = registry.timeline().read(run.id(), media::Seq(0), 1000, None).expect("readable");
    let mut inferred = stored.into_iter().filter_map(|stored| {
        let seq = stored.head.seq;
        match stored.decode().expect("ours") {
            Event::SemanticChunkInferred(chunk) => Some((seq, chunk)),
            _ => None,
        }
    });
    let mut chunk_of = BTreeMap::new();
    inferred
        .by_ref()
        .map(|(seq, chunk)| {
            chunk_of.insert(seq, chunk.chunk_index);
            let repeats = chunk.reused_from_seq.map(|seq| chunk_of[&seq]);
            if repeats.is_some() {
                let asked = (&chunk.provider, &chunk.model, chunk.tier, &chunk.prompt_version);
                assert_eq!(asked, (&None, &None, None, &None), "nobody was asked");
                assert_eq!((chunk.tokens.total_tokens, chunk.inference_latency_ms), (0, 0));
                assert!(!chunk.semantic_fallback_used && chunk.semantic_error.is_none());
            }
            (chunk.chunk_index, (chunk.description, repeats))
        })
        .collect()
}

#[tokio::test]
async fn a_chunk_that_shows_nothing_new_repeats_the_answer_before_it() {
    // The answers arrive before the next chunk, or after all chunks.
    for permits in [100, 0] {
        let describer = Scripted::new(permits, |index| Ok(said(index)));
        let Stage { registry, run, to, told, _dir, .. } = reusing(&describer, inquiry(8)).await;
        send(&to, coloured(0, [RED, RED, BLUE, BLUE, RED])).await;
        drop(to);
        until(|| describer.seen.lock().len() >= 3).await;
        describer.permits.add_permits(100);
        let told = told.await.expect("no panic");
        let expected = [
            (0, ("d 0".to_owned(), None)),
            (1, ("d 0".to_owned(), Some(0))),
            (2, ("d 2".to_owned(), None)),
            (3, ("d 2".to_owned(), Some(2))),
            (4, ("d 4".to_owned(), None)),
        ];
        assert_eq!(descriptions(&registry, &run), BTreeMap::from(expected), "{permits}");
        assert_eq!((told.totals.chunks_analyzed, told.totals.tokens.total), (5, 36), "{permits}");
        assert_eq!(told.insights.len(), 5, "{permits}");
    }
}

#[tokio::test]
async fn a_chunk_whose_answer_to_repeat_never_comes_is_asked_about_itself() {
    let describer =
        Scripted::new(0, |index| if index == 0 { Err("lost") } else { Ok(said(index)) });
    let Stage { registry, run, metrics, to, told, _dir, .. } =
        reusing(&describer, inquiry(8)).await;
    send(&to, coloured(0, [RED; 2])).await;
    until(|| !describer.seen.lock().is_empty()).await;
    describer.permits.add_permits(100);
    until(|| descriptions(&registry, &run).len() >= 2).await;
    // Chunk 2 arrives after the failure of chunk 0 is known.
    send(&to, coloured(2, [RED])).await;
    drop(to);
    assert_eq!(told.await.expect("no panic").totals.chunks_analyzed, 2);
    let expected = [
        (0, (String::new(), None)),
        (1, ("d 1".to_owned(), None)),
        (2, ("d 1".to_owned(), Some(1))),
    ];
    assert_eq!(descriptions(&registry, &run), BTreeMap::from(expected));
    let counted = [NoveltyDecision::First, NoveltyDecision::Reuse]
        .map(|decision| metrics.novelty_decisions.of(decision).get());
    assert_eq!(counted, [1, 1], "what was asked is no reuse");
}

/// Failing chunks are asked about one after the other, each once.
#[tokio::test]
async fn one_chunk_at_a_time_is_asked_in_place_of_one_that_fails() {
    let describer = Scripted::new(0, |index| if index < 3 { Err("lost") } else { Ok(said(index)) });
    let Stage { registry, run, to, told, _dir, .. } = reusing(&describer, inquiry(8)).await;
    send(&to, coloured(0, [RED; 5])).await;
    drop(to);
    until(|| !describer.seen.lock().is_empty()).await;
    describer.permits.add_permits(100);
    told.await.expect("no panic");
    let lost = |index| (index, (String::new(), None));
    let expected = [
        lost(0),
        lost(1),
        lost(2),
        (3, ("d 3".to_owned(), None)),
        (4, ("d 3".to_owned(), Some(3))),
    ];
    assert_eq!(descriptions(&registry, &run), BTreeMap::from(expected));
    let asked: Vec<_> = describer.seen.lock().iter().map(|q| q.chunk_index).collect();
    assert_eq!(asked, [0, 1, 2, 3]);
}

/// A still scene must not delay the next scene.
#[tokio::test]
async fn one_that_is_asked_in_place_of_another_has_its_place_in_a_chain() {
    let describer =
        Scripted::new(100, |index| if index == 0 { Err(FULL) } else { Ok(said(index)) });
    let chained = PromptConfig { is_chained: true, ..inquiry(8) };
    let Stage { registry, run, to, told, _dir, .. } = reusing(&describer, chained).await;
    send(&to, coloured(0, [RED, RED, BLUE, BLUE])).await;
    drop(to);
    told.await.expect("no panic");
    assert_eq!(describer.most.load(Ordering::SeqCst), 1, "one at a time");
    let seen = describer.seen.lock();
    let order: Vec<u64> = seen.iter().map(|seen| seen.chunk_index).collect();
    assert_eq!(order, [0, 1, 2], "and in their order");
    let told = ["<previous>", "<previous>\nd 1\n</previous>"]
        .map(|text| seen.iter().filter(|seen| seen.prompt.text.contains(text)).count());
    assert_eq!(told, [1, 1], "the last is told what was said before: {seen:?}");
    let said: Vec<_> = descriptions(&registry, &run).into_values().collect();
    let expected = [("", None), ("d 1", None), ("d 2", None), ("d 2", Some(2))];
    assert_eq!(said, expected.map(|(said, from)| (said.to_owned(), from)));
}

#[tokio::test]
async fn chunks_that_wait_take_no_place_of_those_that_are_asked() {
    let describer = Scripted::new(0, |index| Ok(said(index)));
    let Stage { to, told, _dir, .. } = reusing(&describer, inquiry(2)).await;
    send(&to, coloured(0, [RED, RED, RED, BLUE])).await;
    drop(to);
    until(|| describer.seen.lock().len() >= 2).await;
    describer.permits.add_permits(100);
    assert_eq!(told.await.expect("no panic").totals.chunks_analyzed, 4);
}
