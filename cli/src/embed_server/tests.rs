//! The server between a real client and a scripted model, on real sockets.

use std::sync::{
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use bytes::Bytes;
use embed::{
    EmbedError, Embedding, EmbeddingModel, ModelInputImage, SidecarClient, SidecarError,
    protocol::{MessageDecoder, SidecarReply, SidecarStatus, request_header},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

use super::*;

const COLOUR: &[u8] = include_bytes!("testdata/colour.jpg");
const GREY: &[u8] = include_bytes!("testdata/grey.jpg");
const ENDLESS: Duration = Duration::from_secs(60);

/// Embeds a picture as its first pixel, after a step of the script.
struct FirstPixel {
    largest: Arc<AtomicUsize>,
    script: Script,
}

enum Script {
    Embed,
    /// Reports that it has a batch, then waits for a message.
    Hold(mpsc::SyncSender<()>, mpsc::Receiver<()>),
    Panic,
}

impl EmbeddingModel for FirstPixel {
    fn side(&self) -> u32 {
        8
    }

    fn provider(&self) -> &'static str {
        "script"
    }

    fn embed(&mut self, pictures: &[ModelInputImage]) -> Result<Vec<Embedding>, EmbedError> {
        self.largest.fetch_max(pictures.len(), Ordering::Relaxed);
        match &self.script {
            Script::Embed => {}
            Script::Hold(asked, go) => {
                asked.send(()).expect("the test waits");
                go.recv().expect("the test goes on");
            }
            Script::Panic => panic!("as the script says"),
        }
        let embed = |picture: &ModelInputImage| {
            let values = picture.rgb()[..3].iter().map(|sample| f32::from(*sample)).collect();
            Embedding::new(values).map_err(|error| EmbedError::Model(error.to_string()))
        };
        pictures.iter().map(embed).collect()
    }
}

struct Running {
    address: String,
    largest: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), CliError>>,
}

async fn start(script: Script, age_max: Duration, clients_max: usize) -> Running {
    let largest = Arc::new(AtomicUsize::new(0));
    let model = FirstPixel { largest: Arc::clone(&largest), script };
    let limits = BatchLimits {
        size_max: 4,
        age_max,
        stream_waiting_max: UNDER_WAY_MAX,
        ..BatchLimits::default()
    };
    let embedder = Embedder::start(model, limits, ENDLESS).expect("a thread");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let (stop, stopped) = oneshot::channel();
    let shared = Arc::new(EmbedServerState::new(embedder, 2));
    let server = tokio::spawn(serve(listener, shared, clients_max, async {
        stopped.await.unwrap_or(());
    }));
    Running { address, largest, stop, server }
}

fn blue(result: Result<Embedding, SidecarError>) -> f32 {
    result.map_or(-1.0, |embedding| embedding.values()[2])
}

#[tokio::test]
async fn pictures_of_two_clients_are_embedded_together_and_each_gets_its_own() {
    let running = start(Script::Embed, ENDLESS, 8).await;
    let one = SidecarClient::new(&running.address, ENDLESS);
    let other = SidecarClient::new(&running.address, ENDLESS);
    let (colour, grey) = (Bytes::from_static(COLOUR), Bytes::from_static(GREY));
    let (a, b, c, d) = tokio::join!(
        one.embed(colour.clone()),
        one.embed(grey.clone()),
        other.embed(grey),
        other.embed(colour),
    );
    // Red has little blue; grey has as much as of any colour.
    let blues = [a, b, c, d].map(blue);
    for (got, expected) in blues.iter().zip([0.19, 0.577, 0.577, 0.19]) {
        assert!((got - expected).abs() < 0.03, "{blues:?}");
    }
    assert_eq!(running.largest.load(Ordering::Relaxed), 4, "one batch, made by its number");
    running.stop.send(()).expect("it runs");
    running.server.await.expect("no panic").expect("drained");
}

#[tokio::test]
async fn a_picture_that_cannot_be_read_is_refused_and_the_next_is_not() {
    let running = start(Script::Embed, Duration::ZERO, 8).await;
    let mut stream = TcpStream::connect(&running.address).await.expect("it listens");
    for jpeg in [&COLOUR[..100], COLOUR] {
        let header = request_header(jpeg.len()).expect("a fair length");
        stream.write_all(&[&header[..], jpeg].concat()).await.expect("open");
    }
    let (mut answers, mut found) = (MessageDecoder::default(), Vec::new());
    while found.len() < 2 {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.expect("open");
        assert_ne!(count, 0, "the server hung up after {found:?}");
        answers.push(&bytes[..count]);
        while let Some(answer) = answers.poll_reply().expect("an answer") {
            found.push(answer);
        }
    }
    assert_eq!(found[0], SidecarReply::Refused(SidecarStatus::PICTURE));
    assert!(matches!(found[1], SidecarReply::Embedding(_)), "{found:?}");
}

#[tokio::test]
async fn another_protocol_is_hung_up_on() {
    let running = start(Script::Embed, Duration::ZERO, 8).await;
    let mut stream = TcpStream::connect(&running.address).await.expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("open");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap_or(0);
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn one_client_too_many_is_hung_up_on() {
    let running = start(Script::Embed, Duration::ZERO, 1).await;
    let first = SidecarClient::new(&running.address, ENDLESS);
    first.embed(Bytes::from_static(COLOUR)).await.expect("the first is served");
    let second = SidecarClient::new(&running.address, ENDLESS);
    let refused = second.embed(Bytes::from_static(COLOUR)).await;
    assert!(matches!(refused, Err(SidecarError::Closed | SidecarError::Io(_))), "{refused:?}");
    first.embed(Bytes::from_static(COLOUR)).await.expect("and stays so");
}

#[tokio::test]
async fn what_is_under_way_at_the_end_is_answered() {
    let (asked, was_asked) = mpsc::sync_channel(1);
    let (go, goes) = mpsc::sync_channel(1);
    let running = start(Script::Hold(asked, goes), Duration::ZERO, 8).await;
    let client = SidecarClient::new(&running.address, ENDLESS);
    let stop = async {
        let waited = tokio::task::spawn_blocking(move || was_asked.recv()).await;
        assert_eq!(waited.expect("no panic"), Ok(()), "the model has the picture");
        running.stop.send(()).expect("it runs");
        go.send(()).expect("the model waits");
    };
    let (last, ()) = tokio::join!(client.embed(Bytes::from_static(GREY)), stop);
    assert!(last.is_ok(), "{last:?}");
    running.server.await.expect("no panic").expect("drained");
    let gone = client.embed(Bytes::from_static(GREY)).await;
    assert!(matches!(gone, Err(SidecarError::Closed | SidecarError::Io(_))), "{gone:?}");
}

#[tokio::test]
async fn a_model_that_stops_ends_the_server() {
    let running = start(Script::Panic, Duration::ZERO, 8).await;
    let client = SidecarClient::new(&running.address, ENDLESS);
    let result = client.embed(Bytes::from_static(COLOUR)).await;
    assert!(matches!(result, Err(SidecarError::Closed)), "{result:?}");
    let ended = running.server.await.expect("no panic").expect_err("it cannot go on");
    assert_eq!(ended.to_string(), "the embedding model stopped");
}
