//! Requests of one principal, none of which waits for another, and the answer to each.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder, Response, header::RETRY_AFTER};
use serde_json::Value;

use crate::support::Server;

/// Tells an answer from a hang.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Longest life of a connection that nothing uses.
const IDLE: Duration = Duration::from_secs(1);

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server did it, or took it on.
    Taken,
    /// It has no room, and says when to ask again.
    Refused,
    /// The client had nothing to send.
    Unsent,
    /// Anything else.
    Wrong(String),
}

impl Answer {
    fn of(response: &Response) -> Answer {
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let says_when = after.and_then(|text| text.parse().ok()) > Some(0_u64);
        match response.status().as_u16() {
            200..=299 => Answer::Taken,
            429 | 503 if says_when => Answer::Refused,
            status => Answer::Wrong(format!(
                "{status} with Retry-After {after:?} to {}",
                response.url().path()
            )),
        }
    }
}

/// A request that was answered.
pub struct Turn {
    pub answer: Answer,
    /// Time from the moment at which it was due to the head of its answer.
    pub after: Duration,
}

/// A principal's way to the server.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Arc<str>,
    key: Arc<str>,
}

impl Client {
    pub fn new(server: &Server, key: &str) -> Client {
        let http = reqwest::Client::builder().timeout(PATIENCE).pool_idle_timeout(IDLE);
        let http = http.build().expect("a client");
        Client { http, base: format!("http://{}", server.addr()).into(), key: key.into() }
    }

    pub fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).header("x-api-key", &*self.key)
    }

    pub fn keyless(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.base))
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.ask(Method::GET, path)
    }

    pub fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.ask(Method::POST, path).json(body)
    }
}

/// Sends what was due at `due`; the turn, and the answer to read on where it was taken.
pub async fn send(request: RequestBuilder, due: Instant) -> (Turn, Option<Response>) {
    let sent = request.send().await;
    let after = due.elapsed();
    match sent {
        Ok(response) => {
            let answer = Answer::of(&response);
            let taken = (answer == Answer::Taken).then_some(response);
            (Turn { answer, after }, taken)
        }
        Err(error) => (Turn { answer: Answer::Wrong(format!("{error:?}")), after }, None),
    }
}

/// The JSON that a request is answered with, asked again for as long as the server has no room.
pub async fn read(request: RequestBuilder) -> Value {
    loop {
        let again = request.try_clone().expect("a body in memory");
        match send(again, Instant::now()).await {
            (_, Some(response)) => return response.json().await.expect("JSON"),
            (Turn { answer: Answer::Refused, .. }, None) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            (Turn { answer, .. }, None) => panic!("{answer:?}"),
        }
    }
}
