//! Power cuts of a whole data folder: journal, columns, open columns, blobs and an object store's markers.
//!
//! A process works in a folder while `tests/support/disk_shim.c` records each of its changes there, with
//! notes of its results. The folder is then laid out as power cuts at any of these changes would leave it,
//! and opened.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    io::Write,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::Command,
    sync::Arc,
    thread,
};

use media::{BlobHash, JobId, RunId, Seq};
use tempfile::TempDir;
use timeline::{
    Backing, BlobStore, Event, EventKind, FindingPayload, OpenColumns, Signals, StreamedEvent,
    Timeline, TimelineOptions,
};

use crate::{
    bucket::{Bucket, Conduct},
    compact::purge,
    disk_shim,
    files::contents,
    replay::{Tree, note, steps},
    skip::skip,
    support::{description, found, frames, run, signal, small, stored},
};
use fastrand::Rng;

const PURGED: u8 = 9;
const OPEN_RUN: RunId = RunId::from_bytes([2; 16]);
/// Signals of a column: just too many for an event.
const ROWS: u64 = 420;

fn picture(which: u64) -> Vec<u8> {
    vec![which as u8; 300 + which as usize * 97]
}

/// Sink of the notes; each is recorded whole.
#[derive(Clone, Debug)]
struct Notes(Arc<File>);

impl Notes {
    fn tell(&self, text: &str, bytes: &[u8]) {
        (&*self.0).write_all(&note(text, bytes)).unwrap();
    }
}

/// Log, blobs and open columns of a data folder.
struct World {
    log: Timeline,
    blobs: BlobStore,
    open: OpenColumns,
}

impl World {
    fn open(data: &Path, bucket: &Arc<Bucket>) -> World {
        let (remote, place) = (bucket.clone(), "s3://one".to_owned());
        let backing = Backing { remote, place, cache_bytes: 4000 };
        let options =
            TimelineOptions { columns: Some(backing.clone()), file_bytes: 8192, ..small() };
        let (log, _) = Timeline::open(&data.join("log"), options).expect("the log opens");
        let blobs = BlobStore::open(&data.join("blobs"), Some(backing)).expect("blobs open");
        let open = OpenColumns::open(&data.join("open")).expect("open columns open");
        World { log, blobs, open }
    }

    /// Removes files that no event names.
    fn sweep(&self) {
        let sweep = self.blobs.sweep().expect("the only one");
        let mut stills = Vec::new();
        self.log.scan(|head| stills.extend((head.kind == EventKind::Vlm).then_some(head.seq)));
        let text = |seq: Seq| description(&self.log.get(seq).unwrap().unwrap());
        let hash = |seq: &Seq| text(*seq).split(' ').nth(1).unwrap().to_owned();
        let named: HashSet<String> = stills.iter().map(hash).collect();
        sweep.finish(|hash| named.contains(&hash.to_string()), || ()).expect("swept");
        self.log.sweep_columns().expect("swept");
    }

    fn turn(&self) {
        // A failing store is no error here.
        drop(self.blobs.turn());
        drop(self.log.columns_turn());
    }
}

/// One life of a process, with notes.
struct Life {
    world: Option<World>,
    notes: Notes,
    random: Rng,
    next_row: u64,
    jobs: u8,
}

impl Life {
    fn world(&self) -> &World {
        self.world.as_ref().expect("open")
    }

    fn keep_picture(&mut self) {
        let (which, number) = (self.random.u64(..30), self.random.u64(..3) as u8);
        let number = if self.random.u64(..100) < 25 { PURGED } else { number };
        let mut lease = self.world().blobs.lease();
        let bytes = picture(which);
        let hash = lease.put(&bytes).expect("stored");
        if self.random.u64(..100) < 80 {
            lease.send();
        }
        if self.random.u64(..100) < 15 {
            return lease.discard().expect("taken back");
        }
        let text = format!("blob {hash} {which}");
        let appended = self.world().log.append_wait(vec![found(number, &text)]).expect("appended");
        self.notes.tell(&format!("ack {} {number} {text}", appended[0].seq), &[]);
    }

    fn keep_column(&mut self) {
        let first = self.next_row;
        let (signals, lease) = stored(&self.world().log, first..first + ROWS);
        assert!(matches!(signals, Signals::Column { .. }), "too many for an event");
        let number = if self.random.u64(..100) < 30 { PURGED } else { 4 };
        let appended =
            self.world().log.append_wait(vec![frames(number, signals)]).expect("appended");
        drop(lease);
        self.notes.tell(&format!("ack {} {number} rows {first}", appended[0].seq), &[]);
        self.next_row += ROWS;
    }

    fn record(&mut self) {
        self.jobs += 1;
        let job = JobId::from_bytes([self.jobs; 16]);
        let head = [found(1, "head").event];
        let mut column = self.world().open.begin(OPEN_RUN, job, head).expect("begun");
        self.notes.tell(&format!("flushed {job} 0"), &[]);
        let rows = 1 + self.random.u64(..120);
        for index in 0..rows {
            column.push(&signal(index)).expect("pushed");
            match self.random.u64(..20) {
                0 => column.write().expect("written"),
                1 => {
                    column.flush().expect("flushed");
                    self.notes.tell(&format!("flushed {job} {}", index + 1), &[]);
                }
                _ => {}
            }
        }
        if self.random.u64(..100) < 50 {
            self.notes.tell(&format!("removing {job} 0"), &[]);
            self.world().open.remove(OPEN_RUN, job).expect("removed");
        }
    }

    fn step(&mut self) {
        match self.random.u64(..14) {
            0..=5 => self.keep_picture(),
            6 | 7 => self.keep_column(),
            8 => self.record(),
            9 => {
                self.notes.tell("purge 9", &[]);
                purge(&self.world().log, &[PURGED]).expect("purged");
            }
            10 => self.world().sweep(),
            _ => self.world().turn(),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "tests have no configuration to read it from")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Works in `DISK_ROOT` with the seed `LIFE_SEED`, recorded.
#[test]
#[ignore = "the process whose folder the test below cuts"]
fn child() {
    let (Some(root), Some(trace)) = (setting("DISK_ROOT"), setting("DISK_TRACE")) else {
        panic!("started by the test below, which names a folder");
    };
    let seed = setting("LIFE_SEED").unwrap().parse().unwrap();
    let notes = Notes(Arc::new(File::options().append(true).create(true).open(trace).unwrap()));
    let (bucket, sink) = (Arc::<Bucket>::default(), notes.clone());
    *bucket.told.lock().unwrap() =
        Some(Box::new(move |hash: &BlobHash, bytes: Option<&[u8]>| match bytes {
            Some(bytes) => sink.tell(&format!("there {hash}"), bytes),
            None => sink.tell(&format!("gone {hash}"), &[]),
        }));
    let open = || World::open(Path::new(&root), &bucket);
    let (world, random) = (open(), Rng::with_seed(seed));
    let mut life = Life { world: Some(world), notes, random, next_row: 0, jobs: 0 };
    for number in 0..40 {
        life.step();
        let conducts = [Conduct::Good, Conduct::Good, Conduct::Out, Conduct::Mute];
        bucket.set(conducts[life.random.u64(..4) as usize]);
        if number == 25 {
            life.world = None;
            life.world = Some(open());
        }
    }
}

/// Events, rows and files that must exist, according to the notes up to a cut.
#[derive(Default)]
struct Expected {
    /// Run and text of each acknowledged event.
    acknowledged: BTreeMap<u64, (u8, String)>,
    purges: bool,
    /// Flushed rows of open columns; `None` if the column may be removed.
    flushed: BTreeMap<String, Option<usize>>,
    bucket: BTreeMap<BlobHash, Vec<u8>>,
}

impl Expected {
    fn hear(&mut self, text: &str, bytes: &[u8]) {
        let parts: Vec<&str> = text.splitn(4, ' ').collect();
        match parts[0] {
            "ack" => {
                let event = (parts[2].parse().unwrap(), parts[3].to_owned());
                self.acknowledged.insert(parts[1].parse().unwrap(), event);
            }
            "purge" => self.purges = true,
            "flushed" => {
                self.flushed.extend([(parts[1].to_owned(), Some(parts[2].parse().unwrap()))]);
            }
            "removing" => self.flushed.extend([(parts[1].to_owned(), None)]),
            "there" => drop(self.bucket.insert(parts[1].parse().unwrap(), bytes.to_vec())),
            "gone" => drop(self.bucket.remove(&parts[1].parse().unwrap())),
            other => panic!("{other}"),
        }
    }

    /// Checks all of them; returns the files that events name.
    fn check(&self, world: &World) -> HashSet<BlobHash> {
        let mut seqs = Vec::new();
        world.log.scan(|head| seqs.push(head.seq));
        let mut shown = HashMap::new();
        let named = seqs.into_iter().map(|seq| {
            let event = world.log.get_parts(seq).expect("readable").expect("there");
            let (run, (text, hash)) = (event.head.run, named(world, event));
            shown.insert(seq.0, (run, text));
            hash
        });
        let named = named.collect();
        for (seq, (number, text)) in &self.acknowledged {
            if !self.purges || *number != PURGED {
                assert_eq!(shown.get(seq), Some(&(run(*number), text.clone())), "event {seq}");
            }
        }
        for (job, rows) in &self.flushed {
            let Some(rows) = rows else { continue };
            let open = world.open.read(OPEN_RUN, job.parse().unwrap()).expect("readable");
            let mut open = open.expect("an open column that was begun");
            let found = open.by_ref().zip(0..).inspect(|(row, at)| assert_eq!(*row, signal(*at)));
            assert!(found.count() >= *rows, "flushed rows are lost");
        }
        named
    }
}

/// Checks the file that an event names, acknowledged or not; returns its text and that file.
fn named(world: &World, event: StreamedEvent) -> (String, BlobHash) {
    match event.decode().expect("decoded") {
        Event::Found(_, FindingPayload { description: text, .. }) => {
            let parts: Vec<&str> = text.split(' ').collect();
            let (hash, bytes) = (parts[1].parse().unwrap(), picture(parts[2].parse().unwrap()));
            let found = world.blobs.get(&hash, bytes.len() as u64);
            assert_eq!(found.expect("its still is there").as_ref(), Some(&bytes));
            (text, hash)
        }
        Event::FramesDecoded(frames) => {
            let Signals::Column { hash, .. } = &frames.signals else { panic!("too many") };
            let rows = world.log.signals(&frames.signals).expect("its rows are there");
            let first = rows[0].frame_index;
            assert!(rows.iter().zip(first..).all(|(row, index)| *row == signal(index)));
            assert_eq!(rows.len() as u64, ROWS);
            (format!("rows {first}"), *hash)
        }
        other => panic!("{other:?}"),
    }
}

/// Opens the state of `data` after a cut and checks it, before and after the server's next steps.
fn judge(data: &Path, expected: &Expected) {
    let bucket = Arc::<Bucket>::default();
    bucket.inside().files.extend(expected.bucket.clone());
    let world = World::open(data, &bucket);
    expected.check(&world);
    (0..20).for_each(|_| world.turn());
    world.sweep();
    while world.blobs.turn().expect("a turn") || world.log.columns_turn().expect("a turn") {}
    let named = expected.check(&world);
    let stored: HashSet<BlobHash> = bucket.inside().files.keys().copied().collect();
    assert_eq!(stored, named, "the object store has what is named, and nothing else");
}

/// Returns the record of a life in `data`.
fn record(shim: &Path, dir: &Path, seed: u64) -> Vec<u8> {
    let (data, trace) = (dir.join("data"), dir.join("trace"));
    fs::create_dir(&data).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["folder::child", "--exact", "--ignored", "--nocapture"]);
    child.env("LD_PRELOAD", shim).env("DISK_ROOT", &data).env("DISK_TRACE", &trace);
    let output = child.env("LIFE_SEED", seed.to_string()).output().unwrap();
    assert!(output.status.success(), "life {seed}: {}", String::from_utf8_lossy(&output.stderr));
    fs::read(trace).unwrap()
}

/// Cuts the life `seed` `cuts` times; returns the number of cuts after which something could be lost.
fn cut(shim: &Path, seed: u64, cuts: u64) -> u64 {
    // In memory if there is room: each cut is laid out and opened as a separate folder.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
    let steps = steps(&record(shim, dir.path(), seed));
    let mut random = Rng::with_seed(seed);
    let mut places: Vec<u64> = (0..cuts).map(|_| random.u64(..steps.len() as u64 + 1)).collect();
    places.sort_unstable();
    let mut tree = Tree::new(dir.path().join("data").to_str().unwrap());
    let (mut expected, mut at, mut telling) = (Expected::default(), 0, 0);
    for (number, place) in places.into_iter().enumerate() {
        for step in &steps[at..place as usize] {
            tree.apply(step);
            step.note().into_iter().for_each(|(text, bytes)| expected.hear(text, bytes));
        }
        at = place as usize;
        let left = dir.path().join("cut");
        tree.cut(&left, &mut random);
        let judged = panic::catch_unwind(AssertUnwindSafe(|| judge(&left, &expected)));
        if let Err(panic) = judged {
            println!("life {seed}, cut {number} at change {place}: FOLDER_SEED={seed} repeats it");
            panic::resume_unwind(panic);
        }
        telling += u64::from(!expected.acknowledged.is_empty());
        fs::remove_dir_all(&left).unwrap();
    }
    steps[at..].iter().for_each(|step| tree.apply(step));
    let (left, data) = (dir.path().join("whole"), dir.path().join("data"));
    tree.sync_all();
    tree.cut(&left, &mut random);
    assert!(contents(&left) == contents(&data), "life {seed}: the record lacks a change");
    telling
}

#[test]
fn power_cuts_of_a_whole_folder_lose_nothing_acknowledged_and_nothing_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let shim = match disk_shim::shim(root, Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(shim) => shim,
        Err(why) => return skip("power cuts of a whole folder", why),
    };
    let (lives, cuts) = (clips::sized(12, 1000), 100);
    let one = setting("FOLDER_SEED").map(|seed| seed.parse().unwrap());
    let seeds: Vec<u64> = one.map_or_else(|| (0..lives).collect(), |seed| vec![seed]);
    let telling = thread::scope(|scope| {
        let (seeds, shim) = (&seeds, &shim);
        let stripe = |first| {
            move || {
                seeds.iter().skip(first).step_by(4).map(|seed| cut(shim, *seed, cuts)).sum::<u64>()
            }
        };
        let stripes: Vec<_> = (0..4).map(|first| scope.spawn(stripe(first))).collect();
        stripes.into_iter().map(|stripe| stripe.join().expect("told above")).sum::<u64>()
    });
    let all = seeds.len() as u64 * cuts;
    println!("{all} cuts of lives {seeds:?}, {telling} of them with something to lose");
    assert!(telling > all / 2, "the lives were no lives");
}
