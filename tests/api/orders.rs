//! Ends of runs, jobs and live video in seeded orders, by callers at once, while workers and publishers die and the server is stopped
//! or killed: each run ends once, nothing follows that, what was answered is kept, and every place and slot is given back.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::Duration,
};

use fastrand::Rng;
use media::Seq;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use timeline::{EventKind, StoredEvent, Timeline};

use crate::{
    api::jobs::{long, reading},
    support::{
        Reply, Server, setting, wait_until,
        whip::{OFFER, Publication, clip, sightline},
    },
};

/// Runs of a round at once, and callers of each.
const RUNS: u64 = 8;
const CALLERS: u64 = 3;
const ACTS: usize = 5;
/// Runs that may be active at once.
const ACTIVE_MAX: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Ingest,
    IngestLong,
    IngestAndWait,
    Analyse,
    Cancel,
    HangUp,
    KeepAlive,
    KillWorkers,
    Stop,
    Finish,
    Delete,
}

impl Act {
    /// Ends are as frequent as beginnings.
    const ALL: [Act; 15] = [
        Act::Ingest,
        Act::Ingest,
        Act::IngestLong,
        Act::IngestLong,
        Act::IngestAndWait,
        Act::Analyse,
        Act::Cancel,
        Act::Cancel,
        Act::HangUp,
        Act::KeepAlive,
        Act::KeepAlive,
        Act::KillWorkers,
        Act::Stop,
        Act::Finish,
        Act::Delete,
    ];

    /// Kind of the event that tells of it, under the id of its request.
    fn told_by(self) -> Option<EventKind> {
        match self {
            Act::KeepAlive => Some(EventKind::KeepaliveRefreshed),
            Act::Stop => Some(EventKind::StopRequested),
            Act::Finish => Some(EventKind::RunCompleted),
            Act::Delete => Some(EventKind::RunDeleted),
            _ => None,
        }
    }
}

/// End of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Everything comes to rest first.
    Rest,
    /// SIGTERM amid requests.
    Stop,
    /// SIGKILL amid requests.
    Kill,
}

/// An act and its answer.
#[derive(Debug)]
struct Told {
    act: Act,
    status: u16,
    request: String,
    job: Option<String>,
}

/// A run of a round: what filled it, and what its callers were told.
struct Story {
    run: String,
    session: Option<String>,
    publication: Option<Publication>,
    told: Vec<Told>,
}

impl Story {
    /// A run for files, one that an offer opened whose publisher never comes, or one with a publisher.
    fn begin(server: &Server, sightline: &Path, dice: &mut Rng, publishes: bool) -> Story {
        let (mut session, mut publication) = (None, None);
        let run = if publishes {
            let publisher =
                Publication::start(sightline, server, &clip::scenes("ABC", 0), &json!({}), &[]);
            publication.insert(publisher).run.clone()
        } else if dice.u64(..4) == 0 {
            let offer =
                server.call("POST", "/v1/stream/whip").header("content-type", "application/sdp");
            let reply = offer.body(OFFER).send().assert_status(201);
            session = Some(reply.header("location").to_owned());
            reply.header("x-service-run-id").to_owned()
        } else {
            server.create_run()
        };
        Story { run, session, publication, told: Vec::new() }
    }

    /// Callers that act at once, and a publisher that dies or goes.
    fn play(&mut self, server: &Server, seed: u64, is_over: &AtomicBool, rounds: &Round) {
        let (run, session) = (&*self.run, self.session.as_deref());
        let last_job = std::sync::Mutex::new(String::new());
        self.told = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let (dice, last_job) = (Rng::with_seed(seed << 8 | caller), &last_job);
                    let ask = move |act| {
                        let job = last_job.lock().expect("no panic").clone();
                        let told = rounds.judge(act, &ask(server, run, session, &job, act)?);
                        if let Some(job) = &told.job {
                            last_job.lock().expect("no panic").clone_from(job);
                        }
                        Some(told)
                    };
                    scope.spawn(move || acts(dice, is_over).filter_map(ask).collect::<Vec<_>>())
                })
                .collect();
            if let Some(publication) = &self.publication {
                sleep(Duration::from_millis(Rng::with_seed(seed).u64(..300)));
                publication.signal(if seed.is_multiple_of(2) { Signal::KILL } else { Signal::INT });
            }
            callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect()
        });
    }
}

/// The acts of a caller, each after a moment, until it is over.
fn acts(mut dice: Rng, is_over: &AtomicBool) -> impl Iterator<Item = Act> {
    let next = move |_| {
        sleep(Duration::from_millis(dice.u64(..60)));
        (!is_over.load(Ordering::Relaxed)).then(|| dice.choice(Act::ALL).expect("one"))
    };
    (0..ACTS).map_while(next)
}

/// Carries out an act; none where there is nothing to do it to, or no answer comes.
fn ask(server: &Server, run: &str, session: Option<&str>, job: &str, act: Act) -> Option<Reply> {
    let path = format!("/v1/runs/{run}");
    let (method, path, body, leaves) = match act {
        Act::Ingest | Act::IngestLong | Act::IngestAndWait => {
            let short = json!({"source_uri": "motion.mp4", "max_frames": 30});
            let body = if act == Act::IngestLong { long() } else { short };
            ("POST", format!("{path}/ingest"), body, act != Act::IngestAndWait)
        }
        Act::Analyse => ("POST", format!("{path}/analyze"), json!({"model": "qwen3-vl-8b"}), true),
        Act::Cancel if job.is_empty() => return None,
        Act::Cancel => ("DELETE", format!("{path}/jobs/{job}"), json!({}), false),
        Act::HangUp => ("DELETE", session?.to_owned(), json!({}), false),
        Act::KeepAlive => ("POST", format!("{path}/keepalive"), json!({}), false),
        Act::Stop => ("POST", format!("{path}/stop"), json!({}), false),
        Act::Finish => ("POST", format!("{path}/finish"), json!({}), false),
        Act::Delete => ("DELETE", path, json!({}), false),
        Act::KillWorkers => {
            // One may have ended meanwhile.
            server
                .workers()
                .into_iter()
                .for_each(|pid| kill_process(pid, Signal::KILL).unwrap_or(()));
            return None;
        }
    };
    let call = server.call(method, &path);
    let call = if leaves { call.header("prefer", "respond-async") } else { call };
    let call = if method == "POST" { call.json(&body) } else { call };
    call.try_send().ok()
}

/// A round; every failure names its seed.
struct Round {
    seed: u64,
    fate: Fate,
}

impl Round {
    /// Takes an answer, which must be one of those that such an act may get.
    fn judge(&self, act: Act, reply: &Reply) -> Told {
        // A worker that was killed and a full queue are told as faults of now.
        let may: &[u16] = match act {
            Act::Ingest | Act::IngestLong | Act::IngestAndWait => &[200, 202, 404, 409, 422, 503],
            Act::Analyse => &[200, 202, 404, 409, 422, 503],
            _ => &[200, 404, 409, 503],
        };
        assert!(
            may.contains(&reply.status),
            "seed {}: {act:?}: {} {}",
            self.seed,
            reply.status,
            reply.text
        );
        let is_accepted = reply.status == 202;
        let job = is_accepted.then(|| reply.json()["job_id"].as_str().expect("an id").to_owned());
        let request = reply.header("x-request-id").to_owned();
        Told { act, status: reply.status, request, job }
    }

    /// Nothing is under way any more, and nothing is held.
    fn rests(&self, server: &Server, stories: &[Story]) {
        for Story { run, session, told, .. } in stories {
            // A long one that nobody has cancelled takes minutes, and a session whose publisher never comes the time that it is given.
            let jobs = told.iter().filter_map(|told| told.job.as_ref());
            let jobs = jobs.map(|job| format!("/v1/runs/{run}/jobs/{job}"));
            jobs.chain(session.clone()).for_each(|path| drop(server.call("DELETE", &path).send()));
        }
        let is_zero = |series: &str| server.metric(series) == 0.0;
        wait_until(&format!("seed {}: all rest", self.seed), || {
            let runs = server.get("/v1/runs?limit=100").json();
            let runs = runs.as_array().expect("an array").iter();
            runs.filter(|run| !run["active_job"].is_null()).count() == 0
                && is_zero("service_live_sessions")
                && is_zero("service_live_workers")
                && is_zero("service_live_memory_reserved_bytes")
                && server.workers().is_empty()
        });
        let waiting = server.get("/v1/metrics").text;
        let waiting = waiting.lines().filter(|line| line.starts_with("service_queue_waiting{"));
        assert!(waiting.clone().count() > 0 && waiting.clone().all(|line| line.ends_with(" 0")));
        self.every_place_is_free(server, stories);
    }

    /// As many runs as may be active can be made, and more jobs at once than there are places succeed.
    fn every_place_is_free(&self, server: &Server, stories: &[Story]) {
        for Story { run, .. } in stories {
            server.call("DELETE", &format!("/v1/runs/{run}")).send();
        }
        let runs: Vec<String> = (0..ACTIVE_MAX).map(|_| server.create_run()).collect();
        assert_eq!(server.post("/v1/runs", &json!({})).status, 409, "seed {}", self.seed);
        std::thread::scope(|scope| {
            for run in &runs[..6] {
                scope.spawn(move || {
                    let body = json!({"source_uri": "motion.mp4", "max_frames": 5});
                    let reply = server.post_run(run, "ingest", &body);
                    assert_eq!(reply.status, 200, "seed {}: {}", self.seed, reply.text);
                });
            }
        });
        for run in runs {
            assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
        }
    }

    /// A story against the log, and its jobs against what the next server says of them.
    fn check(&self, log: &Timeline, server: &Server, Story { run, told, .. }: &Story) {
        let id = run.parse().expect("an id");
        let events = log.read(id, Seq(0), 10_000, None).expect("readable");
        let kinds: Vec<EventKind> = events.iter().map(|event| event.head.kind).collect();
        let what = || format!("seed {} {:?}, {run}: {kinds:?}\n{told:#?}", self.seed, self.fate);
        let is_end = |kind: &EventKind| {
            use EventKind::{RunCompleted, RunExpired, RunFailed, StopRequested};
            matches!(kind, RunCompleted | RunExpired | RunFailed | StopRequested)
        };
        let begun = kinds.iter().filter(|kind| **kind == EventKind::RunCreated).count();
        assert_eq!(begun, 1, "{}", what());
        assert!(kinds.iter().filter(|kind| is_end(kind)).count() <= 1, "one end: {}", what());
        if let Some(end) =
            kinds.iter().position(|kind| is_end(kind) || *kind == EventKind::RunDeleted)
        {
            let rest = &kinds[end + 1..];
            let is_deletion =
                rest == [EventKind::RunDeleted] && kinds[end] != EventKind::RunDeleted;
            assert!(rest.is_empty() || is_deletion, "nothing follows an end: {}", what());
        }
        let requests = requests(&events);
        for Told { act, status, request, job } in told {
            let tells = |kind| requests.get(request.as_str()).is_some_and(|told| *told == kind);
            if let Some(kind) = act.told_by() {
                match status {
                    200 => assert!(tells(kind), "{act:?} is lost: {}", what()),
                    404 | 409 => assert!(!tells(kind), "{act:?} was refused: {}", what()),
                    _ => {}
                }
            }
            let Some(job) = job else { continue };
            let found = server.get(&format!("/v1/runs/{run}/jobs/{job}"));
            if kinds.contains(&EventKind::RunDeleted) {
                assert_eq!(found.status, 404, "{}", what());
            } else {
                let status = found.json()["status"].clone();
                let over = ["succeeded", "failed", "cancelled"];
                assert!(over.iter().any(|over| status == *over), "{job} is {status}: {}", what());
            }
        }
        let waited = |told: &Told| told.act == Act::IngestAndWait && told.status == 200;
        let is_decoded = kinds.contains(&EventKind::FramesDecoded);
        assert!(is_decoded || !told.iter().any(waited), "frames are lost: {}", what());
    }
}

/// Kinds of the events that acts are told by, by the ids of their requests.
fn requests(events: &[StoredEvent]) -> HashMap<String, EventKind> {
    let told = events
        .iter()
        .filter(|event| Act::ALL.iter().any(|act| act.told_by() == Some(event.head.kind)));
    let of = |event: &StoredEvent| {
        let payload: Value = serde_json::from_str(&event.payload).expect("JSON");
        Some((payload["request_id"].as_str()?.to_owned(), event.head.kind))
    };
    told.filter_map(of).collect()
}

#[test]
fn whatever_order_things_end_in_each_run_ends_once_and_all_is_given_back() {
    let Some(sightline) = sightline() else { return };
    let setup = reading().var("SERVICE_ACTIVE_STREAM_LIMIT", &ACTIVE_MAX.to_string());
    let first = setting("SIGHTLINE_ORDERS_SEED").and_then(|seed| seed.to_str()?.parse().ok());
    // One that no run before this had, where none is asked for.
    let drawn = first.is_none().then(|| fastrand::u64(1 << 16..1 << 32));
    let first: u64 = first.unwrap_or(1);
    let mut server = setup.start();
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for seed in (first..first + clips::sized(4, 250)).chain(drawn) {
        let mut dice = Rng::with_seed(seed);
        let fate = [Fate::Kill, Fate::Rest, Fate::Stop, Fate::Kill][seed as usize % 4];
        eprintln!("{fate:?} with SIGHTLINE_ORDERS_SEED={seed}");
        let round = Round { seed, fate };
        let mut stories: Vec<Story> =
            (0..RUNS).map(|at| Story::begin(&server, &sightline, &mut dice, at == 0)).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (at, story) in stories.iter_mut().enumerate() {
                let (server, is_over, round) = (&server, &is_over, &round);
                let seed = seed << 8 | at as u64;
                scope.spawn(move || story.play(server, seed, is_over, round));
            }
            if fate != Fate::Rest {
                sleep(Duration::from_millis(20 + dice.u64(..250)));
                is_over.store(true, Ordering::Relaxed);
                if fate == Fate::Kill { server.signal_kill() } else { server.terminate() }
            }
        });
        if fate == Fate::Rest {
            round.rests(&server, &stories);
            server.terminate();
        }
        let ended = server.wait(Duration::from_secs(30));
        assert!(ended.success() || fate == Fate::Kill, "seed {seed}: {ended}");
        server = setup.start();
        let log = setup.dir().join("data/log");
        let (log, _) = Timeline::open_read_only(&log).expect("readable");
        for story in &stories {
            round.check(&log, &server, story);
            for told in &story.told {
                *tally.entry(format!("{:?} {}", told.act, told.status)).or_default() += 1;
            }
        }
        for Story { run, .. } in &stories {
            server.call("DELETE", &format!("/v1/runs/{run}")).send();
        }
    }
    eprintln!("{tally:?}");
}
