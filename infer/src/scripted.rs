//! A backend for tests that answers as its script says, at the level of sockets.
//!
//! Speaks as much HTTP/1.1 as the client needs, so that a script can also break off, dawdle, or send
//! what is not HTTP. Not for production: feature `scripted`.

mod step;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use self::step::Act;
pub use self::step::{Step, chat_body};

/// Longest request that is read.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest head of one.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its number among the questions, from 0.
    pub number: usize,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Seen {
    /// The body as JSON; `null` where it is not.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The value of the header `name`, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A URL at which nothing listens.
pub async fn refusing_url() -> io::Result<String> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    Ok(format!("http://{}", listener.local_addr()?))
}

type Script = Box<dyn FnMut(&Seen) -> Step + Send>;

struct Shared {
    script: Mutex<Script>,
    listing: Mutex<Step>,
    seen: Mutex<Vec<Seen>>,
    probes: AtomicUsize,
    in_flight: AtomicUsize,
    in_flight_max: AtomicUsize,
}

impl Shared {
    /// What to do with `seen`. A GET is a probe: it lists the models and is no part of the script.
    fn step(&self, mut seen: Seen) -> Step {
        if seen.method == "GET" {
            self.probes.fetch_add(1, Ordering::SeqCst);
            return locked(&self.listing).clone();
        }
        let mut all = locked(&self.seen);
        seen.number = all.len();
        all.push(seen.clone());
        drop(all);
        (locked(&self.script))(&seen)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A question that is being answered.
struct InFlight<'a>(&'a Shared);

impl<'a> InFlight<'a> {
    fn enter(shared: &'a Shared) -> InFlight<'a> {
        let now = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.in_flight_max.fetch_max(now, Ordering::SeqCst);
        InFlight(shared)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The server; ends with its value.
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ScriptedServer {
    /// Listens on a free port and does what `script` says of each question.
    pub async fn start(
        script: impl FnMut(&Seen) -> Step + Send + 'static,
    ) -> io::Result<ScriptedServer> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let models = json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]});
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            listing: Mutex::new(Step::json(200, &models)),
            seen: Mutex::default(),
            probes: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            in_flight_max: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(ScriptedServer { address, shared, task })
    }

    /// Takes `steps` one by one, then `last` for ever.
    pub async fn with_steps(steps: Vec<Step>, last: Step) -> io::Result<ScriptedServer> {
        let mut steps = steps.into_iter();
        ScriptedServer::start(move |_| steps.next().unwrap_or_else(|| last.clone())).await
    }

    /// Where it is, without `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What GET requests are answered from now on, instead of with a list of models.
    pub fn answer_probes(&self, step: Step) {
        *locked(&self.shared.listing) = step;
    }

    /// The questions so far, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        locked(&self.shared.seen).clone()
    }

    /// How many GET requests there were.
    pub fn probes(&self) -> usize {
        self.shared.probes.load(Ordering::SeqCst)
    }

    /// How many questions are being answered now.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::SeqCst)
    }

    /// How many were being answered at once, at most.
    pub fn in_flight_max(&self) -> usize {
        self.shared.in_flight_max.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        // A connection that ends early is what many scripts are about.
        connections.spawn(async move { serve(stream, &shared).await.ok() });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(seen) = read_request(&mut stream, &mut buffer).await? {
        let is_question = seen.method != "GET";
        let step = shared.step(seen);
        let _in_flight = is_question.then(|| InFlight::enter(shared));
        if !play(&mut stream, step).await? {
            return stream.shutdown().await;
        }
    }
    Ok(())
}

/// The next request; `None` at the end of the connection.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Seen>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if buffer.len() > HEAD_BYTES_MAX || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
        // No method begins so: a handshake of TLS does.
        if !buffer.starts_with(b"G") && !buffer.starts_with(b"P") {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0_usize);
    let end = head_end + length.min(REQUEST_BYTES_MAX);
    while buffer.len() < end {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[head_end..end].to_vec();
    buffer.drain(..end);
    Ok(Some(Seen { number: 0, method, path, headers, body }))
}

/// Whether the connection goes on.
async fn play(stream: &mut TcpStream, step: Step) -> io::Result<bool> {
    if wait(stream, Some(step.after)).await {
        return Ok(false);
    }
    match step.act {
        Act::Reply { status, headers, body } => {
            // In one write: in two, Nagle's algorithm would hold the second back.
            let head = head(status, &headers, body.len());
            stream.write_all(&[head.as_bytes(), &body].concat()).await?;
            return Ok(true);
        }
        Act::Cut { body, after } => {
            stream.write_all(head(200, &[], body.len()).as_bytes()).await?;
            stream.write_all(&body[..after.min(body.len())]).await?;
        }
        Act::Drip { body, every } => {
            stream.write_all(head(200, &[], body.len()).as_bytes()).await?;
            for byte in body {
                stream.write_all(&[byte]).await?;
                if wait(stream, Some(every)).await {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Act::Raw(bytes) => stream.write_all(&bytes).await?,
        Act::Hang => {
            wait(stream, None).await;
        }
    }
    Ok(false)
}

/// Waits for `time`, or for ever; true where the client left meanwhile.
async fn wait(stream: &mut TcpStream, time: Option<Duration>) -> bool {
    let mut byte = [0];
    let left = stream.peek(&mut byte);
    match time {
        Some(time) => tokio::select! {
            () = sleep(time) => false,
            // A client sends nothing before it has its answer: this is the end.
            _ = left => true,
        },
        None => left.await.is_ok(),
    }
}

fn head(status: u16, headers: &[(String, String)], length: usize) -> String {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {length}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head + "\r\n"
}
