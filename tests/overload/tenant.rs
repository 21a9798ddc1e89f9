//! Work that a principal asks for, by kind, and the check that what was taken on was done to its end.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    overload::{
        client::{Answer, Client, Turn, json as json_of, with},
        generator::OUTSTANDING_MAX,
    },
    support::{
        PATIENCE, Server,
        whip::{OFFER, clip},
    },
};

/// Events of the run that is read and followed.
const EVENTS: u64 = 8;
/// Pause between the head of an answer that stays open and its end by the client.
const STAY: Duration = Duration::from_millis(250);

/// Requests on one connection: half of what the server lets one have, as turns are not shared evenly.
const ON_A_CONNECTION: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Lists, queries and searches in turn.
    Read,
    /// An ingest of a small clip, left to itself.
    Job,
    /// The same, whose end is waited for.
    Ingest,
    /// A follower of a run, who leaves after a while.
    Follow,
    /// An offer of live video, whose session is ended after a while.
    Publish,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::Job, Kind::Follow, Kind::Publish];

    /// The kind whose end is the end of the work.
    pub fn waited_for(self) -> Kind {
        if self == Kind::Job { Kind::Ingest } else { self }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Job => "jobs",
            Kind::Ingest => "jobs waited for",
            Kind::Follow => "followers",
            Kind::Publish => "offers",
        }
    }
}

/// A principal, and what it was given.
pub struct Tenant {
    client: Client,
    /// Run with events that do not change.
    seen: String,
    /// Runs in which nothing was done yet.
    fresh: Mutex<Vec<String>>,
    /// Paths of jobs that were taken on.
    jobs: Mutex<Vec<String>>,
    /// Runs of ingests that were waited for.
    ingested: Mutex<Vec<String>>,
    /// Runs of sessions that began and were ended.
    sessions: Mutex<Vec<String>>,
}

impl Tenant {
    pub async fn new(server: &Server, key: &str) -> Arc<Tenant> {
        let client = Client::new(server, key, OUTSTANDING_MAX / ON_A_CONNECTION);
        let seen = client.read(client.post("/v1/runs", &json!({}))).await;
        let seen = run_of(&seen);
        for _ in 1..EVENTS {
            client.read(client.post(&path(&seen, "keepalive"), &json!({}))).await;
        }
        let (fresh, jobs, ingested, sessions) = Default::default();
        Arc::new(Tenant { client, seen, fresh, jobs, ingested, sessions })
    }

    /// Makes runs until there are `count` for jobs.
    pub async fn stock(&self, count: usize) {
        while lock(&self.fresh).len() < count {
            let run = self.client.read(self.client.post("/v1/runs", &json!({}))).await;
            lock(&self.fresh).push(run_of(&run));
        }
    }

    /// One of a kind, the `number`th, which was due at `due`.
    pub async fn turn(self: Arc<Self>, kind: Kind, number: usize, due: Instant) -> Turn {
        match kind {
            Kind::Read => self.look(number, due).await,
            Kind::Job | Kind::Ingest => self.ingest(kind, due).await,
            Kind::Follow => self.follow(due).await,
            Kind::Publish => self.publish(due).await,
        }
    }

    async fn look(&self, number: usize, due: Instant) -> Turn {
        let request = match number % 3 {
            0 => self.client.get("/v1/runs?limit=20"),
            1 => self.client.post("/v1/query", &json!({"run_id": self.seen})),
            _ => self.client.post("/v1/search", &json!({"query": "somebody"})),
        };
        let (turn, response) = self.client.send(request, due).await;
        let Some(response) = response else { return turn };
        match json_of(response).await {
            Ok(_) => turn,
            Err(error) => wrong(turn, format!("a cut answer: {error}")),
        }
    }

    async fn ingest(&self, kind: Kind, due: Instant) -> Turn {
        let kept = lock(&self.fresh).pop();
        let run = match kept {
            Some(run) => run,
            None => {
                let request = self.client.post("/v1/runs", &json!({}));
                let (turn, response) = self.client.send(request, due).await;
                let Some(response) = response else { return turn };
                match json_of(response).await {
                    Ok(run) => run_of(&run),
                    Err(error) => return wrong(turn, format!("a cut answer: {error}")),
                }
            }
        };
        let clip = clip::scenes("A", 0);
        let name = clip.file_name().and_then(|name| name.to_str()).expect("a name");
        let mut request = self.client.post(&path(&run, "ingest"), &json!({"source_uri": name}));
        if kind == Kind::Job {
            let when = HeaderValue::from_static("respond-async");
            request = with(request, HeaderName::from_static("prefer"), when);
        }
        let (turn, response) = self.client.send(request, due).await;
        match (response, kind) {
            (None, _) => lock(&self.fresh).push(run),
            (Some(response), Kind::Job) => lock(&self.jobs).push(header(&response, "location")),
            (Some(_), _) => lock(&self.ingested).push(run),
        }
        turn
    }

    async fn follow(&self, due: Instant) -> Turn {
        let request = self.client.get(&path(&self.seen, "events/stream"));
        let (turn, response) = self.client.send(request, due).await;
        let Some(response) = response else { return turn };
        let mut body = response.into_body();
        let (begun, mut text) = (Instant::now(), String::new());
        while text.matches("\n\n").count() < EVENTS as usize {
            match body.frame().await {
                Some(Ok(frame)) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    text.push_str(&String::from_utf8_lossy(&bytes));
                }
                end => return wrong(turn, format!("a stream ends early: {end:?} after {text}")),
            }
        }
        let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        if ids.len() != EVENTS as usize {
            return wrong(turn, format!("a stream of {ids:?}"));
        }
        sleep(STAY.saturating_sub(begun.elapsed())).await;
        turn
    }

    async fn publish(&self, due: Instant) -> Turn {
        let request = self.client.ask(Method::POST, "/v1/stream/whip", OFFER.into());
        let request = with(request, CONTENT_TYPE, HeaderValue::from_static("application/sdp"));
        let (turn, response) = self.client.send(request, due).await;
        let Some(response) = response else { return turn };
        let (session, run) = (header(&response, "location"), header(&response, "x-service-run-id"));
        sleep(STAY).await;
        let begun = Instant::now();
        loop {
            let end = self.client.ask(Method::DELETE, &session, Bytes::new());
            let (ended, _) = self.client.send(end, Instant::now()).await;
            match ended.answer {
                Answer::Taken => break,
                Answer::Refused if begun.elapsed() < PATIENCE => sleep(STAY).await,
                other => return wrong(turn, format!("a session does not end: {other:?}")),
            }
        }
        lock(&self.sessions).push(run);
        turn
    }

    /// Checks that all that was taken on was done to its end, forgets it and closes connections; returns how much that was.
    pub async fn finished(&self) -> usize {
        let jobs = std::mem::take(&mut *lock(&self.jobs));
        let mut ingested = std::mem::take(&mut *lock(&self.ingested));
        for job in &jobs {
            self.ends(job).await;
            ingested.push(job.split('/').nth(3).expect("a run").to_owned());
        }
        for run in &ingested {
            let kinds = self.kinds(run).await;
            let count = |kind: &str| kinds.iter().filter(|other| *other == kind).count();
            assert_eq!((count("run_created"), count("frames_decoded")), (1, 1), "{kinds:?}");
            assert!(count("keyframe_stored") > 0, "{kinds:?}");
        }
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        for run in &sessions {
            let kinds = self.kinds(run).await;
            assert_eq!(kinds, ["run_created", "run_completed"], "{run}");
        }
        self.client.close().await;
        ingested.len() + sessions.len()
    }

    /// Waits for the success of a job.
    async fn ends(&self, job: &str) {
        let begun = Instant::now();
        let ended = loop {
            let ended = self.client.read(self.client.get(&format!("{job}?wait_ms=30000"))).await;
            if !ended["ended_at"].is_null() {
                break ended;
            }
            assert!(begun.elapsed() < PATIENCE, "{job} does not end: {ended}");
        };
        assert_eq!(ended["status"], "succeeded", "{ended}");
    }

    async fn kinds(&self, run: &str) -> Vec<String> {
        let request = self.client.post("/v1/query", &json!({"run_id": run}));
        let found = self.client.read(request).await;
        let kind = |event: &Value| event["kind"].as_str().expect("a kind").to_owned();
        found["matches"].as_array().expect("an array").iter().map(kind).collect()
    }
}

fn run_of(created: &Value) -> String {
    created["run_id"].as_str().expect("an id").to_owned()
}

fn path(run: &str, what: &str) -> String {
    format!("/v1/runs/{run}/{what}")
}

fn header<B>(response: &Response<B>, name: &str) -> String {
    let value = response.headers().get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

fn wrong(turn: Turn, what: String) -> Turn {
    Turn { answer: Answer::Wrong(what), ..turn }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic")
}
