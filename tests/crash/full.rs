//! A disk that stays full under a whole server while work of every kind goes on coming: each is refused and counted, what was
//! acknowledged is there, memory and descriptors stay, live video ends by a reason, and once there is room all goes on.

use std::{
    fs,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    api::uploads::uploading,
    crash::{Acknowledged, verify},
    support::{
        Call, Reply, Server, Setup, SmallDisk, can_mount, clips, wait_until,
        whip::{Publication, clip, sightline},
    },
};

/// Kinds of work, each a client's that asks again and again.
const KINDS: [&str; 5] = ["runs", "keepalives", "ingests", "jobs", "uploads"];
/// Time between two requests of a client.
const PAUSE: Duration = Duration::from_millis(50);
/// Growth of private memory that is no leak: of the allocator's, and of what takes turns.
const MEMORY_MAX_KB: u64 = 16 << 10;

/// Everything that a server has taken.
#[derive(Default)]
struct Taken {
    events: Acknowledged,
    /// Streams by their runs.
    recordings: Vec<(String, String)>,
    jobs: Vec<String>,
    uploads: Vec<String>,
}

impl Taken {
    /// Everything that was taken is there and whole.
    fn check(&self, server: &Server, clip: &[u8]) {
        for (run, ids) in &self.events {
            verify(server, run, ids, &mut Default::default());
        }
        for (run, stream) in &self.recordings {
            let rows = server.get(&format!("/v1/runs/{run}/signals?stream_id={stream}")).json();
            assert_eq!(rows["signals"].as_array().map(Vec::len), Some(60), "{stream}: {rows}");
        }
        let runs =
            self.recordings.iter().map(|(run, _)| run).collect::<std::collections::HashSet<_>>();
        for still in runs.into_iter().flat_map(|run| server.still_paths(run)) {
            assert_eq!(server.get(&still).status, 200, "{still}");
        }
        for path in &self.jobs {
            assert!(server.get(path).json()["ended_at"].is_string(), "{path}");
        }
        for path in &self.uploads {
            let file = server.get(path);
            assert!(file.status == 200 && file.bytes == clip, "{path}: {}", file.status);
        }
    }
}

struct Load<'a> {
    server: &'a Server,
    clip: &'a [u8],
    is_over: AtomicBool,
    taken: Mutex<Taken>,
    /// Requests of each kind that were taken, and that were refused.
    counts: [[AtomicUsize; 2]; KINDS.len()],
}

impl Load<'_> {
    /// The answer to what was taken; a refusal says when to come again.
    fn ask(&self, kind: usize, call: Call<'_>) -> Option<Reply> {
        let reply = call.send();
        let is_taken = [200, 202].contains(&reply.status);
        let is_refusal = reply.status == 503 && !reply.header("retry-after").is_empty();
        assert!(is_taken || is_refusal, "{}: {} {}", KINDS[kind], reply.status, reply.text);
        self.counts[kind][usize::from(is_refusal)].fetch_add(1, Relaxed);
        is_taken.then_some(reply)
    }

    fn note(&self, note: impl FnOnce(&mut Taken)) {
        note(&mut self.taken.lock().expect("no panic"));
    }

    /// Asks for one thing of `kind`; `run` is the client's own.
    fn step(&self, kind: usize, run: &str, number: usize) -> Option<()> {
        let (server, stream) = (self.server, format!("{}-{number}", KINDS[kind]));
        let post = |path: &str| server.call("POST", path);
        let source = json!({"source_uri": "motion.mp4", "max_frames": 60, "stream_id": stream});
        let ingest = post(&format!("/v1/runs/{run}/ingest")).json(&source);
        match KINDS[kind] {
            "runs" => {
                let reply = self.ask(kind, post("/v1/runs").json(&json!({})))?;
                let run = reply.run();
                // Also where there is no room any more.
                server.post_run(&run, "stop", &json!({})).assert_ok();
                let id = reply.header("x-request-id").to_owned();
                self.note(|taken| taken.events.entry(run).or_default().push(id));
            }
            "keepalives" => {
                let reply = self.ask(kind, post(&format!("/v1/runs/{run}/keepalive")))?;
                let id = reply.header("x-request-id").to_owned();
                self.note(|taken| taken.events.entry(run.to_owned()).or_default().push(id));
            }
            "ingests" => {
                self.ask(kind, ingest)?;
                self.note(|taken| taken.recordings.push((run.to_owned(), stream)));
            }
            "jobs" => {
                let reply = self.ask(kind, ingest.header("prefer", "respond-async"))?;
                let job = reply.header("location").to_owned();
                wait_until("each job ends", || server.get(&job).json()["ended_at"].is_string());
                self.note(|taken| taken.jobs.push(job));
            }
            _ => {
                let reply = self.ask(kind, uploading(server, "motion.mp4", self.clip))?;
                self.note(|taken| taken.uploads.push(reply.header("location").to_owned()));
            }
        }
        Some(())
    }

    fn counts(&self, are_refused: bool) -> [usize; KINDS.len()] {
        self.counts.each_ref().map(|counts| counts[usize::from(are_refused)].load(Relaxed))
    }

    /// Waits until some more of each kind are taken, or refused.
    fn wait(&self, what: &str, are_refused: bool) {
        let before = self.counts(are_refused);
        wait_until(what, || {
            self.counts(are_refused).iter().zip(before).all(|(now, before)| *now > before + 2)
        });
    }
}

/// Ends the load, also where a check fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Private memory in kB, and descriptors.
fn resources(server: &Server) -> (u64, usize) {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).map_or(0, Iterator::count);
    (server.memory_kb("RssAnon"), open)
}

#[test]
fn a_disk_that_stays_full_costs_nothing_that_was_taken_and_all_goes_on_behind_it() {
    let Some(sightline) = sightline() else { return };
    if !can_mount() {
        return;
    }
    let (disk, dir) = (SmallDisk::new(384), tempfile::tempdir().expect("a directory"));
    let clip = fs::read(clips().join("motion.mp4")).expect("a clip");
    let setup = Setup::new(dir.path())
        .clips()
        .var("SERVICE_PRINCIPAL_QUOTA_BYTES", &(1_u64 << 40).to_string())
        .var("SERVICE_DISK_RESERVE_MIB", "16")
        .on_small_disk(&disk);
    let mut server = setup.start();
    let scenes = clip::scenes("ABAB", 1);
    let publish =
        |server: &Server| Publication::start(&sightline, server, &scenes, &json!({}), &["--loop"]);
    let is_told = |live: &Publication| server.events(&live.run).len() > 5;
    let live = publish(&server);
    let load = Load {
        server: &server,
        clip: &clip,
        is_over: AtomicBool::new(false),
        taken: Mutex::default(),
        counts: Default::default(),
    };
    scope(|scope| {
        let _over = Over(&load.is_over);
        for kind in 0..KINDS.len() {
            let (load, run) = (&load, server.create_run());
            scope.spawn(move || {
                for number in 0.. {
                    load.step(kind, &run, number);
                    sleep(PAUSE);
                    if load.is_over.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        load.wait("work is taken", false);
        wait_until("live video is told of", || is_told(&live));
        let ballast = disk.fill();
        load.wait("work is refused", true);
        let (full, before) = (Instant::now(), resources(&server));
        let length = clips::sized(Duration::from_secs(2), Duration::from_secs(180));
        while full.elapsed() < length {
            assert_eq!(server.get("/v1/health").status, 200);
            sleep(length / 10);
        }
        load.wait("work is refused to the end", true);
        let after = resources(&server);
        let (taken, refused) = (load.counts(false), load.counts(true));
        println!(
            "{:?}: {before:?}, {after:?}; {KINDS:?}: {taken:?} taken, {refused:?} refused",
            full.elapsed()
        );
        let counted = server.metric("service_refusals_total{reason=\"disk\"}") as usize;
        assert!(counted + KINDS.len() >= refused.iter().sum(), "{counted} of {refused:?} counted");
        assert!(after.0 < before.0 + MEMORY_MAX_KB, "kB of memory: {before:?} {after:?}");
        assert!(after.1 <= before.1 + 8, "descriptors: {before:?} {after:?}");
        fs::remove_file(ballast).expect("removed");
        load.wait("work is taken again", false);
    });
    // It has ended when its pictures found no room, and that could be told no sooner.
    let decoded = |run: &str| server.payloads(run, "frames_decoded");
    wait_until("the live video has an end", || !decoded(&live.run).is_empty());
    let state = server.get(&format!("/v1/runs/{}/state", live.run)).json();
    let reason = &decoded(&live.run)[0]["reason"];
    assert!(state["state"] == "failed" && reason.is_string(), "{state} {reason}");
    println!("live video: {reason}");
    let again = publish(&server);
    wait_until("live video is told of again", || is_told(&again));
    again.interrupt();
    wait_until("the second has an end", || !decoded(&again.run).is_empty());
    let taken = load.taken.into_inner().expect("no panic");
    taken.check(&server, &clip);
    let mut seen = [(); 2].map(|()| Default::default());
    let runs = [live.run.clone(), again.run.clone()];
    let verify_live = |server: &Server, seen: &mut [_; 2]| {
        runs.iter().zip(seen).for_each(|(run, seen)| verify(server, run, &[], seen));
    };
    verify_live(&server, &mut seen);
    drop((live, again));
    server.restart(&setup);
    taken.check(&server, &clip);
    verify_live(&server, &mut seen);
}
