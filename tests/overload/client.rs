//! Requests of one principal, none of which waits for another, and the answer to each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{SendRequest, handshake},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::{net::TcpStream, sync::Mutex, time::timeout};

use crate::support::{PATIENCE, Server};

/// A request, which may be sent again.
pub type Ask = Request<Full<Bytes>>;

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server did it, or took it on.
    Taken,
    /// It has no room, and says when to ask again; or the principal has as many runs as it may have.
    Refused,
    Wrong(String),
}

impl Answer {
    fn of(path: &str, response: &Response<Incoming>) -> Answer {
        let after = response.headers().get(header::RETRY_AFTER);
        let after = after.and_then(|value| value.to_str().ok());
        let says_when = after.and_then(|text| text.parse().ok()) > Some(0_u64);
        match response.status().as_u16() {
            200..=299 => Answer::Taken,
            429 | 503 if says_when => Answer::Refused,
            409 if path == "/v1/runs" => Answer::Refused,
            status => Answer::Wrong(format!("{status} with Retry-After {after:?} to {path}")),
        }
    }
}

/// A request that was answered.
pub struct Turn {
    pub answer: Answer,
    /// Time from the moment at which it was due to the head of its answer.
    pub after: Duration,
}

/// A connection, made when it is used.
type Connection = Mutex<Option<SendRequest<Full<Bytes>>>>;

/// A principal's way to the server: connections that carry requests side by side, and take turns.
#[derive(Clone)]
pub struct Client {
    connections: Arc<[Connection]>,
    turns: Arc<AtomicUsize>,
    addr: Arc<str>,
    key: Arc<str>,
}

impl Client {
    pub fn new(server: &Server, key: &str, connections: usize) -> Client {
        Client {
            connections: (0..connections).map(|_| Mutex::default()).collect(),
            turns: Arc::default(),
            addr: server.addr().into(),
            key: key.into(),
        }
    }

    pub fn ask(&self, method: Method, path: &str, body: Bytes) -> Ask {
        let mut ask = self.keyless(path);
        *ask.method_mut() = method;
        *ask.body_mut() = Full::new(body);
        let key = HeaderValue::from_str(&self.key).expect("a key");
        with(ask, HeaderName::from_static("x-api-key"), key)
    }

    pub fn keyless(&self, path: &str) -> Ask {
        let url = format!("http://{}{path}", self.addr);
        Request::get(url).body(Full::default()).expect("a request")
    }

    pub fn get(&self, path: &str) -> Ask {
        self.ask(Method::GET, path, Bytes::new())
    }

    pub fn post(&self, path: &str, body: &Value) -> Ask {
        let ask = self.ask(Method::POST, path, body.to_string().into());
        with(ask, header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    /// Sends what was due at `due`; the turn, and the answer to read on where it was taken.
    pub async fn send(&self, ask: Ask, due: Instant) -> (Turn, Option<Response<Incoming>>) {
        let path = ask.uri().path().to_owned();
        let sent = timeout(PATIENCE, async { self.connection().await?.send_request(ask).await });
        let sent = sent.await;
        let after = due.elapsed();
        let wrong = |what| (Turn { answer: Answer::Wrong(what), after }, None);
        match sent {
            Ok(Ok(response)) => {
                let answer = Answer::of(&path, &response);
                let taken = (answer == Answer::Taken).then_some(response);
                (Turn { answer, after }, taken)
            }
            Ok(Err(error)) => wrong(format!("{error:?} to {path}")),
            Err(_) => wrong(format!("no answer to {path}")),
        }
    }

    async fn connection(&self) -> hyper::Result<SendRequest<Full<Bytes>>> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let mut place = self.connections[turn % self.connections.len()].lock().await;
        if let Some(open) = place.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        let stream = TcpStream::connect(&*self.addr).await.expect("connected");
        stream.set_nodelay(true).expect("set");
        let (open, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // Its end is that of the requests on it.
        tokio::spawn(async move { connection.await.ok() });
        Ok(place.insert(open).clone())
    }

    /// The JSON that a request is answered with, asked again for as long as the server has no room.
    pub async fn read(&self, ask: Ask) -> Value {
        loop {
            match self.send(ask.clone(), Instant::now()).await {
                (_, Some(response)) => return json(response).await.expect("JSON"),
                (Turn { answer: Answer::Refused, .. }, None) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                (Turn { answer, .. }, None) => panic!("{answer:?}"),
            }
        }
    }

    pub async fn close(&self) {
        for connection in &*self.connections {
            *connection.lock().await = None;
        }
    }
}

pub fn with(mut ask: Ask, name: HeaderName, value: HeaderValue) -> Ask {
    ask.headers_mut().insert(name, value);
    ask
}

/// The body of an answer as JSON; an error says what it is instead.
pub async fn json(response: Response<Incoming>) -> Result<Value, String> {
    let body = response.into_body().collect().await.map_err(|error| format!("{error:?}"))?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())
}
