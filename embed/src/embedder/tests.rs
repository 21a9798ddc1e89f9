//! Tests against a scripted model: the result of each request, whatever the model does.

use std::sync::mpsc;

use super::*;

/// Embeds each picture as its first byte, after a step of the script for each batch.
struct Scripted {
    batches: mpsc::SyncSender<Vec<u8>>,
    steps: mpsc::Receiver<Step>,
}

enum Step {
    Embed,
    Fail,
    Lose,
    Panic,
}

impl EmbeddingModel for Scripted {
    fn side(&self) -> u32 {
        1
    }

    fn provider(&self) -> &'static str {
        "script"
    }

    fn embed(&mut self, pictures: &[ModelInputImage]) -> Result<Vec<Embedding>, EmbedError> {
        let bytes: Vec<u8> = pictures.iter().map(|picture| picture.rgb()[0]).collect();
        self.batches.send(bytes.clone()).expect("the test looks");
        let embed = |byte: &u8| Embedding::new(vec![f32::from(*byte), 1.0]).expect("a direction");
        match self.steps.recv().expect("the script goes on") {
            Step::Embed => Ok(bytes.iter().map(embed).collect()),
            Step::Fail => Err(EmbedError::Model("no".to_owned())),
            Step::Lose => Ok(bytes.iter().skip(1).map(embed).collect()),
            Step::Panic => panic!("as the script says"),
        }
    }
}

struct Stage {
    embedder: Arc<Embedder>,
    batches: mpsc::Receiver<Vec<u8>>,
    steps: mpsc::SyncSender<Step>,
}

fn stage(limits: BatchLimits, deadline: Duration) -> Stage {
    let (to_test, batches) = mpsc::sync_channel(16);
    let (steps, script) = mpsc::sync_channel(16);
    let model = Scripted { batches: to_test, steps: script };
    let embedder = Arc::new(Embedder::start(model, limits, deadline).expect("a thread"));
    Stage { embedder, batches, steps }
}

const ENDLESS: Duration = Duration::from_secs(60);

fn at_once() -> BatchLimits {
    BatchLimits { age_max: Duration::ZERO, ..BatchLimits::default() }
}

fn picture(byte: u8) -> ModelInputImage {
    ModelInputImage::new(1, vec![byte; 3]).expect("one pixel")
}

fn expected(byte: u8) -> Result<Embedding, EmbedError> {
    Ok(Embedding::new(vec![f32::from(byte), 1.0]).expect("a direction"))
}

#[tokio::test]
async fn pictures_of_many_streams_are_one_batch_and_each_gets_its_own() {
    let three =
        BatchLimits { size_max: 3, age_max: ENDLESS, waiting_max: 3, stream_waiting_max: 2 };
    let Stage { embedder, batches, steps } = stage(three, ENDLESS);
    for round in 1..=3 {
        steps.send(Step::Embed).expect("a script");
        let (a, b, c) = tokio::join!(
            embedder.embed(1, picture(10)),
            embedder.embed(2, picture(20)),
            embedder.embed(1, picture(30)),
        );
        assert_eq!([a, b, c], [expected(10), expected(20), expected(30)], "round {round}");
        assert_eq!(batches.recv(), Ok(vec![10, 20, 30]), "round {round}");
        let counts = embedder.counts();
        assert_eq!((counts.embedded, counts.batches), (3 * round, round));
    }
}

#[tokio::test]
async fn a_batch_is_ready_once_its_first_picture_is_old() {
    // Long enough for both requests on a busy machine.
    let slow = BatchLimits { age_max: Duration::from_millis(500), ..BatchLimits::default() };
    let Stage { embedder, batches, steps } = stage(slow, ENDLESS);
    steps.send(Step::Embed).expect("a script");
    let since = Instant::now();
    let (a, b) = tokio::join!(embedder.embed(1, picture(1)), embedder.embed(2, picture(2)));
    assert_eq!([a, b], [expected(1), expected(2)]);
    assert!(since.elapsed() >= slow.age_max);
    assert_eq!(batches.recv(), Ok(vec![1, 2]), "the young one goes with it");
}

#[tokio::test]
async fn each_failure_of_the_model_is_told_to_all_of_the_batch_and_to_no_other() {
    let Stage { embedder, steps, batches: _batches } = stage(at_once(), ENDLESS);
    let failed = |why: &str| Err(EmbedError::Model(why.to_owned()));
    for (step, answer) in [
        (Step::Fail, failed("no")),
        (Step::Lose, failed("0 embeddings for 1 pictures")),
        (Step::Embed, expected(7)),
    ] {
        steps.send(step).expect("a script");
        assert_eq!(embedder.embed(1, picture(7)).await, answer);
    }
    assert_eq!(embedder.counts().embedded, 1);
}

#[tokio::test]
async fn a_model_that_panics_stops_and_says_so() {
    let Stage { embedder, steps, batches: _batches } = stage(at_once(), ENDLESS);
    steps.send(Step::Panic).expect("a script");
    // More than may wait of one stream.
    for _ in 0..10 {
        assert_eq!(embedder.embed(1, picture(1)).await, Err(EmbedError::Stopped));
    }
}

#[tokio::test]
async fn an_asker_that_gave_up_costs_nothing() {
    let Stage { embedder, batches, steps } = stage(at_once(), ENDLESS);
    let busy = tokio::spawn({
        let embedder = Arc::clone(&embedder);
        async move { embedder.embed(1, picture(1)).await }
    });
    let first = tokio::task::spawn_blocking(move || (batches.recv(), batches));
    let (first, batches) = first.await.expect("it ends");
    assert_eq!(first, Ok(vec![1]), "the model has it in hand");
    let gone = tokio::time::timeout(Duration::ZERO, embedder.embed(2, picture(2)));
    assert!(gone.await.is_err(), "the model is busy");
    steps.send(Step::Embed).expect("a script");
    steps.send(Step::Embed).expect("a script");
    assert_eq!(busy.await.expect("it ends"), expected(1));
    assert_eq!(embedder.embed(3, picture(3)).await, expected(3));
    assert_eq!(batches.recv(), Ok(vec![3]));
    assert_eq!(embedder.counts().embedded, 2);
}

#[tokio::test]
async fn an_ask_ends_at_its_deadline_and_at_the_bound_of_the_queue() {
    let two = BatchLimits { age_max: ENDLESS, waiting_max: 2, stream_waiting_max: 1, size_max: 16 };
    let Stage { embedder, batches: _batches, .. } = stage(two, Duration::from_millis(1));
    let (late, full) = (EmbedError::Late(1), EmbedError::Full);
    for (stream, expected) in [(1, &late), (1, &full), (2, &late), (3, &full)] {
        let ended = embedder.embed(stream, picture(1)).await;
        assert_eq!(ended.as_ref(), Err(expected), "stream {stream}");
    }
    let large = ModelInputImage::new(2, vec![0; 12]).expect("four pixels");
    assert_eq!(embedder.embed(4, large).await, Err(EmbedError::Side { side: 1, got: 2 }));
}
