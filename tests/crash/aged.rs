//! kill -9 of the real server at each step of what removes by age: the next start removes the same as one that was not killed, and
//! of what is younger nothing.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use crate::{
    api::uploads::upload,
    support::{
        PATIENCE, Server, Setup, clips, clock::Clock, copy, eventually, files, shim_of_disk,
        wait_until, whip::clip,
    },
};

const DAY: i64 = 24 * 3600;
/// Ages after which things go, in days; what is old here is of 40 days ago.
const AGES: [(&str, &str); 3] = [
    ("SERVICE_RETENTION_RUN_DAYS", "30"),
    ("SERVICE_RETENTION_DELETED_RUN_DAYS", "30"),
    ("SERVICE_RETENTION_STILLS_DAYS", "30"),
];
/// Steps of a removal, as the disk's shim counts them.
const STEPS: [(&str, &str); 10] = [
    ("a file without a record goes", "u 1 /uploads/"),
    ("the deletion of an old run is told", "w 1 /journal/ \"retention\""),
    ("a log without a purged run is begun", "c 1 /journal/00000000000000000001.journal.tmp"),
    ("and is whole", "s 1 /journal/00000000000000000001.journal.tmp"),
    ("and has its name", "r 1 /journal/00000000000000000001.journal.tmp"),
    ("the age of stills is noted", "c 1 /blobs/"),
    ("and has its name", "r 1 /blobs/"),
    ("a still goes", "u 1 /blobs/"),
    ("another goes", "u 3 /blobs/"),
    ("the rows of a purged run go", "u 1 /columns/"),
];

/// A folder with what is old and what is not, and what a server told of it.
struct Site {
    /// Ended 40 days ago.
    ended: String,
    /// Deleted 40 days ago, and now.
    deleted: [String; 2],
    /// Recorded 40 days ago and ended now, and all of now: with their events, rows and stills.
    kept: [(String, Told); 2],
    upload: String,
}

#[derive(Debug, PartialEq)]
struct Told {
    events: Vec<Value>,
    rows: Value,
    stills: Vec<(String, u16)>,
}

fn told(server: &Server, run: &str) -> Told {
    let rows = server.get(&format!("/v1/runs/{run}/signals")).json()["signals"].take();
    let stills = server.still_paths(run).into_iter();
    let stills = stills.map(|path| (path.clone(), server.get(&path).status)).collect();
    Told { events: server.events(run), rows, stills }
}

fn ingested(server: &Server, clip: &str) -> String {
    server.ingested(&json!({"source_uri": clip, "max_frames": 500}))
}

fn uploads(data: &Path) -> PathBuf {
    let owners = fs::read_dir(data.join("uploads")).expect("there").flatten();
    let mut owners = owners.map(|owner| owner.path());
    owners.find(|path| files(path).iter().any(|file| file.extension().is_some())).expect("one")
}

impl Site {
    /// Has servers fill the folder of `setup` below `dir`, with dates by `clock`.
    fn made(dir: &Path, setup: &Setup, clock: &Clock, young: &str) -> Site {
        let setup = clock.of(setup.clone().var("SERVICE_RETENTION_DELETED_RUN_DAYS", "0"));
        clock.shift(-40 * DAY);
        let mut server = setup.start();
        let ended = ingested(&server, "street.mp4");
        server.post_run(&ended, "stop", &json!({})).assert_ok();
        let old = ingested(&server, "motion.mp4");
        let purged = ingested(&server, "screen.mp4");
        let delete = |server: &Server, run: &str| {
            server.call("DELETE", &format!("/v1/runs/{run}")).send().assert_ok();
        };
        delete(&server, &purged);
        server.kill();
        clock.shift(0);
        let mut server = setup.start();
        // It has expired, or is about to.
        server.post_run(&old, "stop", &json!({}));
        let fresh = ingested(&server, young);
        let deleted = ingested(&server, "water.webm");
        delete(&server, &deleted);
        let content = fs::read(clips().join("motion.mp4")).expect("a clip");
        let upload = upload(&server, "a.mp4", &content)["file_name"].as_str().expect("one").into();
        let kept = [old, fresh].map(|run| (run.clone(), told(&server, &run)));
        server.kill();
        let folder = uploads(&dir.join("data"));
        for (name, days) in [("old", 8), ("young", 1)] {
            let file = File::create(folder.join(name).with_extension("mp4.unrecorded"));
            let age = Duration::from_secs((days * DAY) as u64);
            let file = file.expect("made");
            file.set_modified(SystemTime::now() - age).expect("dated");
        }
        Site { ended, deleted: [purged, deleted], kept, upload }
    }

    /// Checks what a sweep has left, and returns the files of the folder that events and records name.
    fn check(&self, server: Server, data: &Path, step: &str) -> Vec<PathBuf> {
        wait_until("a sweep", || server.metric("service_retention_sweep_seconds_count") > 0.0);
        assert_eq!(server.metric("service_retention_failures_total"), 0.0, "{step}");
        assert_eq!(server.get(&format!("/v1/runs/{}", self.ended)).status, 404, "{step}");
        let [(old, old_told), (fresh, fresh_told)] = &self.kept;
        assert_eq!(told(&server, fresh), *fresh_told, "{step}");
        let found = told(&server, old);
        assert_eq!((&found.events, &found.rows), (&old_told.events, &old_told.rows), "{step}");
        assert!(found.stills.iter().all(|(_, status)| *status == 404), "{step}: {found:?}");
        assert_eq!(server.get(&format!("/v1/files/{}", self.upload)).status, 200, "{step}");
        drop(server);
        let report = timeline::verify(&data.join("log")).expect("readable");
        assert!(report.problems.is_empty(), "{step}: {:?}", report.problems);
        let (log, _) = timeline::Timeline::open_read_only(&data.join("log")).expect("opens");
        let events = |run: &str| log.heads_of(run.parse().expect("an id"), media::Seq(0), 10).len();
        let left = self.deleted.each_ref().map(|run| events(run));
        assert!(left[0] == 0 && left[1] > 3, "{step}: events of deleted runs: {left:?}");
        let parts = ["blobs", "log/columns", "uploads"].map(|part| files(&data.join(part)));
        parts
            .concat()
            .iter()
            .map(|path| path.strip_prefix(data).expect("below it").into())
            .collect()
    }
}

#[test]
fn a_kill_while_what_is_old_goes_leaves_what_is_young_and_nothing_by_halves() {
    let tools = tempfile::tempdir().expect("a directory");
    let Some(shim) = shim_of_disk(tools.path()) else { return };
    let Some(clock) = Clock::new(tools.path()) else { return };
    let young = clip::scenes("ABABAB", 15);
    let roots = [clips(), young.parent().expect("a folder").to_owned()];
    let roots = roots.map(|root| root.display().to_string()).join(",");
    let of = |home: &Path| Setup::new(home).var("SERVICE_INGEST_FILE_ROOTS", &roots);
    let made = tempfile::tempdir().expect("a directory");
    let young = young.display().to_string();
    let site = Site::made(made.path(), &of(made.path()), &clock, &young);
    let swept = |step: &str, kill: Option<&str>| {
        let home = tempfile::tempdir().expect("a directory");
        let data = home.path().join("data");
        copy(&made.path().join("data"), &data);
        let sound = AGES.iter().fold(of(home.path()), |setup, (name, days)| setup.var(name, days));
        if let Some(kill) = kill {
            let killed = sound.clone().var("LD_PRELOAD", &shim).var("DISK_KILL", kill);
            let killed = killed.var("DISK_ROOT", &data.display().to_string()).try_start();
            // One that was killed as it started has ended.
            if let Some(mut server) = killed {
                let told = || server.call("GET", "/v1/metrics").try_send();
                let is_swept = |text: &str| {
                    text.lines().any(|line| {
                        let count = line.strip_prefix("service_retention_sweep_seconds_count ");
                        count.is_some_and(|count| count != "0")
                    })
                };
                let is_gone = eventually("it is killed or has swept", || match told() {
                    Err(_) => Some(true),
                    Ok(reply) => is_swept(&reply.text).then_some(false),
                });
                if !is_gone {
                    return Vec::new();
                }
                assert_eq!(server.wait(PATIENCE).signal(), Some(9), "{step}");
            }
        }
        site.check(sound.start(), &data, step)
    };
    let whole = swept("no kill", None);
    assert!(whole.len() > 5, "{whole:?}");
    let left = STEPS.map(|(step, kill)| (step, swept(step, Some(kill))));
    let never: Vec<&str> =
        left.iter().filter(|left| left.1.is_empty()).map(|left| left.0).collect();
    assert_eq!(never, [""; 0], "steps that do not come");
    left.iter().for_each(|(step, left)| assert_eq!(*left, whole, "{step}"));
}
