//! A real HTTPS receiver of webhooks that answers, fails or hangs as it is told.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::host::Certificate;

const PATIENCE: Duration = Duration::from_secs(60);

/// Behaviour of a path towards a request, after it has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers with a status and, where given, a further header line.
    Answer(u16, &'static str),
    /// Keeps the connection and never answers.
    Hang,
    Close,
}

#[derive(Clone, Debug)]
pub struct Delivery {
    pub at: Instant,
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Delivery {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The number of the event that it tells.
    pub fn seq(&self) -> u64 {
        self.json()["data"]["seq"].as_u64().expect("a number")
    }
}

#[derive(Default)]
struct State {
    behaviours: HashMap<String, Behaviour>,
    deliveries: Vec<Delivery>,
}

/// The receiver; it lasts as long as the test's process.
pub struct Receiver {
    port: u16,
    certificate: Certificate,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Receiver {
    pub fn start() -> Receiver {
        let certificate = Certificate::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let (config, shared) = (Arc::clone(&certificate.config), Arc::clone(&state));
        named(move || {
            for socket in listener.incoming().flatten() {
                let (config, shared) = (Arc::clone(&config), Arc::clone(&shared));
                // Whoever breaks off is of no interest: deliveries are what came whole.
                named(move || drop(serve(socket, config, &shared)));
            }
        });
        Receiver { port, certificate, state }
    }

    pub fn ca(&self) -> String {
        self.certificate.path()
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    pub fn on(&self, path: &str, behaviour: Behaviour) {
        self.state.0.lock().expect("held").behaviours.insert(path.to_owned(), behaviour);
    }

    pub fn deliveries(&self, path: &str) -> Vec<Delivery> {
        let state = self.state.0.lock().expect("held");
        state.deliveries.iter().filter(|delivery| delivery.path == path).cloned().collect()
    }

    pub fn wait(&self, path: &str, count: usize) -> Vec<Delivery> {
        let started = Instant::now();
        let mut state = self.state.0.lock().expect("held");
        loop {
            let found = state.deliveries.iter().filter(|delivery| delivery.path == path);
            if found.clone().count() >= count {
                return found.cloned().collect();
            }
            let count_now = found.count();
            assert!(started.elapsed() < PATIENCE, "{path}: {count_now} of {count} deliveries");
            state = self.state.1.wait_timeout(state, Duration::from_secs(1)).expect("held").0;
        }
    }
}

fn named(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name("receiver".to_owned()).spawn(work).expect("a thread");
}

fn serve(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    state: &(Mutex<State>, Condvar),
) -> std::io::Result<()> {
    let session = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(session, socket));
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let behaviour = {
        let mut state = state.0.lock().expect("held");
        let behaviour = state.behaviours.get(&path).copied();
        state.deliveries.push(Delivery { at: Instant::now(), path, headers, body });
        behaviour.unwrap_or(Behaviour::Answer(200, "x-any: thing"))
    };
    state.1.notify_all();
    match behaviour {
        Behaviour::Answer(status, header) => {
            let answer = format!("HTTP/1.1 {status} X\r\n{header}\r\ncontent-length: 2\r\n\r\nok");
            stream.get_mut().write_all(answer.as_bytes())?;
            stream.get_mut().flush()?;
            // Until the other side has read it.
            stream.read(&mut [0; 1]).map(drop)
        }
        Behaviour::Hang => stream.read(&mut [0; 1]).map(drop),
        Behaviour::Close => Ok(()),
    }
}
