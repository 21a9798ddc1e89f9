//! The power goes while the real server works: its changes to its folder are recorded by `tests/support/disk_shim.c`, and of those
//! that no sync made durable any part is lost. A server that starts on what is left has all that was acknowledged before.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Write,
    path::Path,
    thread,
    time::Duration,
};

use fastrand::Rng;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    api::uploads::uploading,
    crash::{Acknowledged, WRITERS, faults::check, verify},
    replay::{Step, Tree, note, steps},
    support::{Server, Setup, clips, files::contents, setting, shim_of_disk},
};

/// File that the first start makes by calls that the shim does not see, and syncs before it answers anybody.
const SECRET: &str = "secret";

/// Tells the record what was acknowledged, after all that it rests on.
struct Notes(File);

impl Notes {
    fn tell(&self, text: &str) {
        (&self.0).write_all(&note(text, &[])).expect("written");
    }
}

/// One client: creates runs and keeps them alive.
fn write(server: &Server, notes: &Notes, writer: usize) {
    for number in 0..4 {
        let key = format!("power-{writer}-{number}");
        let reply = server.create_keyed(&key).assert_ok();
        let run = reply.run();
        notes.tell(&format!("run {run} {key}"));
        notes.tell(&format!("event {run} {}", reply.header("x-request-id")));
        for _ in 0..20 {
            let reply = server.post_run(&run, "keepalive", &json!({})).assert_ok();
            notes.tell(&format!("event {run} {}", reply.header("x-request-id")));
        }
    }
}

/// Another: records a clip and uploads it.
fn record(server: &Server, notes: &Notes, clip: &[u8]) {
    for _ in 0..4 {
        let run = server.ingested(&json!({ "source_uri": "motion.mp4", "max_frames": 60 }));
        notes.tell(&format!("recording {run}"));
        let reply = uploading(server, "motion.mp4", clip).send().assert_ok();
        notes.tell(&format!("upload {}", reply.header("location")));
    }
}

/// Everything acknowledged in the notes up to a cut.
#[derive(Default)]
struct Expected {
    events: Acknowledged,
    /// Runs by their keys.
    runs: HashMap<String, String>,
    recordings: Vec<String>,
    uploads: Vec<String>,
}

impl Expected {
    fn hear(&mut self, text: &str) {
        let parts: Vec<String> = text.split(' ').map(str::to_owned).collect();
        match parts.as_slice() {
            [what, run, id] if what == "event" => {
                self.events.entry(run.clone()).or_default().push(id.clone());
            }
            [what, run, key] if what == "run" => {
                self.runs.insert(key.clone(), run.clone());
            }
            [what, run] if what == "recording" => self.recordings.push(run.clone()),
            [_, path] => self.uploads.push(path.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn check(&self, server: &Server, clip: &[u8]) {
        for (run, ids) in &self.events {
            verify(server, run, ids, &mut Default::default());
        }
        for (key, run) in &self.runs {
            assert_eq!(server.create_keyed(key).assert_ok().run(), *run, "{key} acts once");
        }
        self.recordings.iter().for_each(|run| check(server, run));
        for path in &self.uploads {
            let file = server.get(path);
            assert!(file.status == 200 && file.bytes == clip, "{path}: {}", file.status);
        }
    }
}

/// A folder in memory where there is room, as each cut is laid out anew.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    dir.expect("a directory")
}

/// The record of a server's work in `data`, which it has ended.
fn worked(data: &Path, shim: &str, clip: &[u8]) -> Vec<Step> {
    let home = data.parent().expect("a folder");
    let trace = home.join("trace");
    let mut server = Setup::new(home)
        .clips()
        .var("LD_PRELOAD", shim)
        .var("DISK_ROOT", &data.display().to_string())
        .var("DISK_TRACE", &trace.display().to_string())
        .start();
    let notes = Notes(File::options().append(true).open(&trace).expect("the server's record"));
    thread::scope(|scope| {
        let (server, notes) = (&server, &notes);
        (0..WRITERS).for_each(|writer| drop(scope.spawn(move || write(server, notes, writer))));
        scope.spawn(|| record(server, notes, clip));
    });
    server.terminate();
    server.wait(Duration::from_secs(60));
    steps(&fs::read(trace).expect("readable"))
}

#[test]
fn a_power_cut_of_the_server_loses_nothing_that_was_acknowledged() {
    let dir = folder();
    let Some(shim) = shim_of_disk(dir.path()) else { return };
    let clip = fs::read(clips().join("motion.mp4")).expect("a clip");
    let data = dir.path().join("data");
    let steps = worked(&data, &shim, &clip);
    let whole = contents(&data);
    let secret = fs::read(data.join(SECRET)).expect("made");
    let seed = setting("POWER_SEED").and_then(|seed| seed.to_str()?.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("POWER_SEED={seed}, {} changes", steps.len());
    let mut random = Rng::with_seed(seed);
    // Half of them at once behind an answer, when the least time has passed in which anything else was synced.
    let told: Vec<usize> = (1..=steps.len()).filter(|at| steps[at - 1].note().is_some()).collect();
    let mut place = |cut: usize| match cut % 2 {
        0 => told[random.usize(..told.len())],
        _ => random.usize(..=steps.len()),
    };
    let mut places: Vec<usize> = (0..clips::sized(16, 400)).map(&mut place).collect();
    places.sort_unstable();
    let mut tree = Tree::new(data.to_str().expect("UTF-8"));
    let (mut expected, mut at) = (Expected::default(), 0);
    for place in places.into_iter().chain([steps.len()]) {
        for step in &steps[at..place] {
            tree.apply(step);
            step.note().into_iter().for_each(|(text, _)| expected.hear(text));
        }
        at = place;
        println!("cut at change {place}");
        fs::remove_dir_all(&data).expect("removed");
        tree.cut(&data, &mut random);
        fs::write(data.join(SECRET), &secret).expect("written");
        let server = Setup::new(dir.path()).clips().start();
        expected.check(&server, &clip);
    }
    fs::remove_dir_all(&data).expect("removed");
    tree.sync_all();
    tree.cut(&data, &mut random);
    let left = contents(&data);
    let differ = whole.iter().filter(|file| !left.contains(file));
    let differ = differ.chain(left.iter().filter(|file| !whole.contains(file)));
    let names = differ.map(|(path, _)| path.display().to_string());
    let names: Vec<_> = names.filter(|name| !name.starts_with(SECRET)).collect();
    assert_eq!(names, Vec::<String>::new(), "changes that are not in the record");
}
