//! Work of clients: each kind at its own pace, whatever the others do, and each checked.

use std::{
    collections::VecDeque,
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::Scope,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    Reply, Server,
    whip::{Publication, clip},
};

/// Frames of an analysis, each of which begins a marker.
const FRAMES: usize = 2000;
/// Runs that are kept before the oldest is deleted.
const KEPT: usize = 40;
const KINDS: usize = 4;
/// Most of each kind that are under way at once.
const AT_ONCE: u32 = 2;

/// A kind of work: its name, how often it is done in the whole time, and a turn of it.
type Kind<'a> = (&'static str, u32, fn(&Load<'a>));

pub struct Load<'a> {
    server: &'a Server,
    sightline: &'a Path,
    /// Time in which each kind is done as often as it says.
    whole: Duration,
    clip: PathBuf,
    body: String,
    runs: Mutex<VecDeque<String>>,
    done: [AtomicU64; KINDS],
    events: AtomicU64,
    refused: AtomicU64,
    starved: AtomicU64,
    turns: AtomicU64,
}

/// Turns so far, and what came of them.
impl fmt::Display for Load<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((name, ..), done) in Self::KINDS.iter().zip(&self.done) {
            write!(f, "{} {name}, ", number(done))?;
        }
        let [events, refused, starved] = [&self.events, &self.refused, &self.starved].map(number);
        write!(f, "{events} events, {refused} refused, {starved} starved")
    }
}

fn number(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}

impl<'a> Load<'a> {
    const KINDS: [Kind<'a>; KINDS] = [
        ("runs analysed", 5000, Load::analyse),
        ("recordings", 2000, Load::record),
        ("sessions", 500, Load::publish),
        ("followers", 3000, Load::follow),
    ];

    pub fn new(server: &'a Server, sightline: &'a Path, whole: Duration) -> Load<'a> {
        // Every other frame flickers, so that a marker ends with each.
        let frame = |at: usize| {
            let flicker = if at.is_multiple_of(2) { 0.0 } else { 0.9 };
            json!({
                "frame_index": at, "pts_ms": at * 40, "perceptual_hash": "00000000c0c0c0c0", "luma_mean": 0.5,
                "flicker_score": flicker, "ghosting_score": 0.0, "noise_variance_score": 0.0,
            })
        };
        let frames: Vec<Value> = (0..FRAMES).map(frame).collect();
        Load {
            server,
            sightline,
            whole,
            clip: clip::scenes("ABC", 0),
            body: json!({ "model": "qwen3-vl-4b", "frames": frames }).to_string(),
            runs: Mutex::default(),
            done: Default::default(),
            events: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            starved: AtomicU64::new(0),
            turns: AtomicU64::new(0),
        }
    }

    /// One turn of each kind, so that whatever is made once is there.
    pub fn once_of_each(&self) {
        Self::KINDS.iter().for_each(|(.., turn)| (0..2).for_each(|_| turn(self)));
        self.delete_all();
    }

    /// Does each kind at its pace until `until`: one that is late is not waited for by the others.
    pub fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, until: Instant) {
        for (place, (_, count, turn)) in Self::KINDS.iter().enumerate() {
            let (started, every) = (Instant::now(), self.whole / *count);
            for lane in 0..AT_ONCE {
                scope.spawn(move || {
                    let due = (0..).map(|number| started + every * (number * AT_ONCE + lane));
                    for due in due.take_while(|due| *due < until) {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        if Instant::now() >= until {
                            break;
                        }
                        turn(self);
                        self.done[place].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
    }

    /// At least half of each kind that `length` of the whole time asks for was done: it was no soak otherwise.
    pub fn judge(&self, length: Duration) {
        let share = length.as_secs_f64() / self.whole.as_secs_f64();
        for ((name, whole, _), done) in Self::KINDS.iter().zip(&self.done) {
            let (done, asked) = (number(done), f64::from(*whole) * share);
            assert!(done as f64 >= 0.5 * asked, "{done} {name} of {asked:.0}");
        }
        let [_, recordings, ..] = &self.done;
        assert!(number(&self.starved) * 100 <= number(recordings), "{self}");
    }

    pub fn delete_all(&self) {
        let runs = std::mem::take(&mut *self.runs.lock().expect("no panic"));
        runs.iter().for_each(|run| self.delete(run));
    }

    fn delete(&self, run: &str) {
        let reply = self.server.call("DELETE", &format!("/v1/runs/{run}")).send();
        assert_eq!(reply.status, 200, "{run}: {}", reply.text);
    }

    /// Keeps a run for a while.
    fn keep(&self, run: String) {
        let mut runs = self.runs.lock().expect("no panic");
        runs.push_back(run);
        let oldest = (runs.len() > KEPT).then(|| runs.pop_front()).flatten();
        drop(runs);
        oldest.iter().for_each(|run| self.delete(run));
    }

    /// Posts, and does so again as long as the server says that it has no room.
    fn post(&self, path: &str, body: &str) -> Reply {
        loop {
            let call = self.server.call("POST", path).header("content-type", "application/json");
            let reply = call.body(body.to_owned()).send();
            if ![429, 503].contains(&reply.status) {
                return reply;
            }
            let after = reply.header("retry-after").parse();
            let after: u64 = after.unwrap_or_else(|_| panic!("no Retry-After: {}", reply.text));
            self.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(after.min(5)));
        }
    }

    fn created(&self) -> String {
        self.post("/v1/runs", "{}").assert_ok().run()
    }

    /// A run with a marker a frame, all of which are read back.
    fn analyse(&self) {
        let run = self.created();
        let reply = self.post(&format!("/v1/runs/{run}/analyze"), &self.body).assert_ok();
        let told = reply.json()["markers"].as_array().map_or(0, Vec::len);
        let events = self.server.events(&run);
        let marker = |event: &&Value| event["kind"] == "marker_emitted";
        assert_eq!(events.iter().filter(marker).count(), told, "{run}");
        assert!(told >= FRAMES - 1, "{told} markers of {FRAMES} frames");
        self.count(&run, &events);
        self.keep(run);
    }

    /// A recorded clip: by the gate alone, or with a model asked about its chunks.
    fn record(&self) {
        let run = self.created();
        let asks = self.turns.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let (job, body) = match asks {
            true => (
                "reason",
                json!({"source_uri": "talk.mp4", "model": "qwen3-vl-4b", "max_frames": 90}),
            ),
            false => ("ingest", json!({"source_uri": "motion.mp4"})),
        };
        let reply = self.post(&format!("/v1/runs/{run}/{job}"), &body.to_string());
        if self.was_starved(&reply.text) {
            return self.keep(run);
        }
        assert_eq!(reply.status, 200, "{job}: {}", reply.text);
        let events = self.server.events(&run);
        let is = |kind: &str| events.iter().any(|event| event["kind"] == kind);
        assert!(is("frames_decoded") && is("keyframe_stored"), "{run}: {events:?}");
        assert!(!asks || is("run_completed"), "{run}: {events:?}");
        self.count(&run, &events);
        self.keep(run);
    }

    /// Counts work that the server gave up, and said so, since a machine that others use gave its worker no turn.
    fn was_starved(&self, said: &str) -> bool {
        let reasons = ["no frame was decoded within", "decoding made no progress for"];
        let is_starved = reasons.iter().any(|reason| said.contains(reason));
        self.starved.fetch_add(u64::from(is_starved), Ordering::Relaxed);
        is_starved
    }

    /// A live session of three seconds.
    fn publish(&self) {
        let attach = json!({ "model": "qwen3-vl-4b" });
        let (run, _) =
            Publication::start(self.sightline, self.server, &self.clip, &attach, &[]).finish();
        let events = self.server.events(&run);
        let last = events.last().expect("an end");
        assert_eq!(last["kind"], "run_completed", "{run}: {events:?}");
        self.count(&run, &events);
        self.keep(run);
    }

    /// Somebody who follows all runs for a second or more and leaves without a word.
    fn follow(&self) {
        let mut stream = self.server.call("GET", "/v1/events/stream").begin();
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
        let (begun, mut bytes, mut read) = (Instant::now(), [0; 4096], 0);
        // A busy machine may take long for the first byte.
        while begun.elapsed() < Duration::from_secs(if read == 0 { 60 } else { 1 }) {
            // Silence is no fault.
            read += stream.read(&mut bytes).unwrap_or(0);
        }
        assert!(read > 0, "no answer to a follower");
    }

    /// Counts the events of a run, which are in order, each once.
    fn count(&self, run: &str, events: &[Value]) {
        let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert!(seqs.len() == events.len() && seqs.is_sorted_by(|a, b| a < b), "{run}: {seqs:?}");
        self.events.fetch_add(events.len() as u64, Ordering::Relaxed);
    }
}
