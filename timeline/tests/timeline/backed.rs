//! Blobs with an object store: no named one is lost and no removed one stays, whatever the store does.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use media::{BlobHash, ErrorKind, Seq};
use tempfile::TempDir;
use timeline::{Backing, BlobStore, Signals, Standing, Timeline, TimelineError};

use crate::{
    bucket::{Bucket, Conduct},
    support::{frames, small, stored as column},
};
use fastrand::Rng;

fn backing(bucket: &Arc<Bucket>, place: &str, cache_bytes: u64) -> Option<Backing> {
    Some(Backing { remote: bucket.clone(), place: place.to_owned(), cache_bytes })
}

fn store(dir: &Path, bucket: &Arc<Bucket>) -> BlobStore {
    BlobStore::open(dir, backing(bucket, "s3://one", CACHE_BYTES)).expect("opened")
}

/// Stores and sends a blob.
fn stored(blobs: &BlobStore, bytes: &[u8]) -> BlobHash {
    let mut lease = blobs.lease();
    let hash = lease.put(bytes).expect("stored");
    lease.send();
    hash
}

/// Runs rounds until nothing is left to do.
fn settle(blobs: &BlobStore) {
    while blobs.turn().expect("a turn") {}
}

/// Limit of the local bytes; blobs have 100 to 199 bytes.
const CACHE_BYTES: u64 = 1000;

/// Blobs that events name, their store, and the bucket behind it.
struct World {
    dir: TempDir,
    bucket: Arc<Bucket>,
    blobs: BlobStore,
    named: BTreeMap<BlobHash, Vec<u8>>,
    random: Rng,
}

impl World {
    fn new(seed: u64) -> World {
        let (dir, bucket) = (TempDir::new().expect("a directory"), Arc::<Bucket>::default());
        let blobs = store(dir.path(), &bucket);
        World { dir, bucket, blobs, named: BTreeMap::new(), random: Rng::with_seed(seed) }
    }

    fn picture(&mut self) -> Vec<u8> {
        // So few that the same blob comes again, even while it is being removed.
        let which = self.random.u64(..40);
        vec![which as u8; 100 + which as usize]
    }

    fn step(&mut self) {
        match self.random.u64(..12) {
            0..=3 => {
                let picture = self.picture();
                let mut lease = self.blobs.lease();
                let hash = lease.put(&picture).expect("stored");
                if self.random.u64(..100) < 90 {
                    lease.send();
                }
                self.named.insert(hash, picture);
            }
            4 => {
                let picture = self.picture();
                let mut lease = self.blobs.lease();
                let hash = lease.put(&picture).expect("stored");
                lease.send();
                if !self.named.contains_key(&hash) {
                    lease.discard().expect("taken back");
                }
            }
            5 | 6 => drop(self.blobs.turn()),
            7 => {
                let percent = self.random.u64(..50);
                let random = &mut self.random;
                self.named.retain(|_, _| random.u64(..100) >= percent);
            }
            8 => self.sweep(),
            9 => self.blobs = store(self.dir.path(), &self.bucket),
            10 => self.bucket.set(Conduct::Good),
            _ => {
                let conducts = [Conduct::Out, Conduct::Forgetful, Conduct::Mute];
                self.bucket.set(conducts[self.random.u64(..3) as usize]);
            }
        }
    }

    fn sweep(&self) {
        let sweep = self.blobs.sweep().expect("the only one");
        let swept = sweep.finish(|hash| self.named.contains_key(hash), || ()).expect("swept");
        assert!(swept.left.is_none() || self.bucket.inside().conduct != Conduct::Good);
    }

    fn check(&self) {
        let conduct = self.bucket.inside().conduct;
        for (hash, picture) in &self.named {
            assert!(self.blobs.has(hash), "it is named");
            assert!(self.blobs.path(hash).exists() || self.bucket.has(hash), "it is somewhere");
            match self.blobs.get(hash, picture.len() as u64) {
                Ok(found) => assert_eq!(found.as_ref(), Some(picture)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    assert!(matches!(conduct, Conduct::Out | Conduct::Mute));
                }
            }
        }
    }

    /// Checks that everything settles with a working store.
    fn end(&mut self) {
        self.bucket.set(Conduct::Good);
        // A forgetful store is detected over several rounds.
        for _ in 0..100 {
            drop(self.blobs.turn());
        }
        self.sweep();
        settle(&self.blobs);
        let Standing { unsent, bytes } = self.blobs.standing().expect("backed");
        assert_eq!(unsent, 0);
        assert!(bytes <= CACHE_BYTES, "{bytes}");
        self.check();
        let stored: Vec<BlobHash> = self.bucket.inside().files.keys().copied().collect();
        assert!(stored.iter().all(|hash| self.named.contains_key(hash)), "removed there too");
    }
}

#[test]
fn nothing_named_is_lost_and_nothing_removed_stays_whatever_the_store_does() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..60 {
            world.step();
            world.check();
        }
        world.end();
    }
}

#[test]
fn a_store_that_is_out_holds_up_one_batch_and_gets_the_rest_later() {
    let mut world = World::new(1);
    world.bucket.set(Conduct::Out);
    for _ in 0..5 {
        let picture = world.picture();
        world.named.insert(stored(&world.blobs, &picture), picture);
    }
    let waiting = world.named.len() as u64;
    assert_eq!(world.blobs.standing().expect("backed").unsent, waiting);
    let error = world.blobs.turn().expect_err("it is out").to_string();
    assert_eq!(error, "the object store cannot be reached: as the test says");
    // Unsent blobs are known after a restart.
    world.blobs = store(world.dir.path(), &world.bucket);
    assert_eq!(world.blobs.standing().expect("backed").unsent, waiting);
    world.bucket.set(Conduct::Good);
    settle(&world.blobs);
    assert_eq!(world.blobs.standing().expect("backed").unsent, 0);
    assert!(world.named.keys().all(|hash| world.bucket.has(hash)));
    let uploads = world.bucket.inside().uploads;
    world.blobs = store(world.dir.path(), &world.bucket);
    settle(&world.blobs);
    assert_eq!(world.bucket.inside().uploads, uploads, "once is enough");
}

#[test]
fn files_leave_after_the_one_that_a_store_refused_was_taken_back() {
    let mut world = World::new(3);
    let pictures = [[1; 600], [2; 600]];
    for picture in pictures {
        world.named.insert(stored(&world.blobs, &picture), picture.to_vec());
    }
    world.bucket.set(Conduct::Out);
    let mut lease = world.blobs.lease();
    lease.put(b"refused").expect("stored");
    lease.send();
    lease.discard().expect("taken back");
    world.end();
}

#[test]
fn what_is_stored_anew_while_it_is_removed_stays_until_it_is_sent_again() {
    let mut world = World::new(2);
    let picture = |number: u8| [number; 600];
    let [hash, other] = [0, 1].map(|number| stored(&world.blobs, &picture(number)));
    world.named.insert(other, picture(1).to_vec());
    let (blobs, bucket) = (world.blobs.clone(), world.bucket.clone());
    let again = move || {
        stored(&blobs, &picture(0));
        assert!(bucket.has(&hash), "still there");
        // The limit is exceeded, and this blob is the oldest.
        blobs.turn().expect("a turn");
        assert!(blobs.path(&hash).exists(), "the store is about to lose it");
    };
    *world.bucket.meanwhile.lock().expect("no test panics in here") = Some(Box::new(again));
    world.sweep();
    assert!(!world.bucket.has(&hash) && world.blobs.has(&hash));
    world.named.insert(hash, picture(0).to_vec());
    world.end();
    assert!(world.bucket.has(&hash));
}

#[test]
fn damage_here_is_mended_from_the_store_and_never_sent_there() {
    let dir = TempDir::new().expect("a directory");
    let bucket = Arc::<Bucket>::default();
    let blobs = store(dir.path(), &bucket);
    let [sent, unsent] = [b"sent picture", b"late picture"].map(|bytes| {
        let hash = stored(&blobs, bytes);
        bucket.set(Conduct::Out);
        hash
    });
    bucket.set(Conduct::Good);
    for damage in [&b"Sent picture"[..], b"sent", b""] {
        fs::write(blobs.path(&sent), damage).expect("written");
        assert_eq!(blobs.get(&sent, 12).expect("mended").expect("there"), b"sent picture");
    }
    fs::write(blobs.path(&unsent), b"gone").expect("written");
    let error = blobs.turn().expect_err("nothing to send").to_string();
    assert_eq!(error, "the object store is not at fault: damaged");
    assert!(!bucket.has(&unsent));
    // The failed file does not block others.
    assert!(bucket.has(&stored(&blobs, b"another")));
    assert_eq!(blobs.get(&unsent, 12).expect_err("damaged").kind(), ErrorKind::DataLoss);
}

#[test]
fn a_store_takes_over_what_was_here_and_no_other_store_replaces_it() {
    let dir = TempDir::new().expect("a directory");
    let bucket = Arc::<Bucket>::default();
    let before = BlobStore::open(dir.path(), None).expect("opened");
    let hash = before.lease().put(&[7; 600]).expect("stored");
    assert_eq!(before.standing(), None);
    drop(before);
    let blobs = BlobStore::open(dir.path(), backing(&bucket, "s3://one", 0)).expect("opened");
    settle(&blobs);
    assert!(bucket.has(&hash) && !blobs.path(&hash).exists(), "nothing stays here");
    drop(blobs);
    for other in [None, backing(&bucket, "s3://two", 0)] {
        let error = BlobStore::open(dir.path(), other).expect_err("it is elsewhere");
        assert!(error.to_string().contains("1 files of"), "{error}");
        assert!(error.to_string().contains("s3://one"), "{error}");
    }
    let error = BlobStore::at(dir.path()).get(&hash, 600).expect_err("it is away");
    assert!(matches!(error, TimelineError::Away { .. }), "{error}");
    let blobs = BlobStore::open(dir.path(), backing(&bucket, "s3://one", 1000)).expect("opened");
    assert_eq!(blobs.get(&hash, 600).expect("fetched").expect("there"), [7; 600]);
    drop(blobs);
    // All blobs are local again, so another store may be used.
    let blobs = BlobStore::open(dir.path(), backing(&bucket, "s3://two", 1000)).expect("opened");
    assert_eq!(blobs.standing(), Some(Standing { unsent: 1, bytes: 600 }));
    drop(blobs);
    let blobs = BlobStore::open(dir.path(), None).expect("opened");
    assert_eq!(blobs.standing(), None);
    assert_eq!(blobs.get(&hash, 600).expect("read").expect("there"), [7; 600]);
}

#[test]
fn what_one_took_back_and_another_kept_is_missed_without_its_store() {
    for is_cut in [false, true] {
        let (dir, bucket) = (TempDir::new().expect("a directory"), Arc::<Bucket>::default());
        let blobs = BlobStore::open(dir.path(), backing(&bucket, "s3://one", 0)).expect("opened");
        let (mut one, mut other) = (blobs.lease(), blobs.lease());
        let hash = one.put(&[7; 600]).expect("stored");
        if is_cut {
            // The power went before the removal.
            fs::write(blobs.path(&hash).with_extension("gone"), "").expect("written");
            drop(one);
            other.put(&[7; 600]).expect("there");
        } else {
            other.put(&[7; 600]).expect("there");
            one.discard().expect("left to the other");
        }
        other.send();
        drop(other);
        settle(&blobs);
        assert!(bucket.has(&hash) && !blobs.path(&hash).exists(), "nothing stays here");
        drop(blobs);
        let error = BlobStore::open(dir.path(), backing(&bucket, "s3://two", 0));
        let error = error.expect_err("it is elsewhere");
        assert!(matches!(error, TimelineError::Elsewhere { files: 1, .. }), "{error}");
    }
}

#[test]
fn what_a_store_lost_or_changed_is_damage_and_never_served() {
    let dir = TempDir::new().expect("a directory");
    let bucket = Arc::<Bucket>::default();
    let blobs = BlobStore::open(dir.path(), backing(&bucket, "s3://one", 0)).expect("opened");
    let hash = blobs.lease().put(b"picture").expect("stored");
    settle(&blobs);
    for (there, problem) in [
        (Some(b"Picture".to_vec()), "has other bytes"),
        (Some(b"pictur".to_vec()), "has other bytes"),
        (None, "has lost a file"),
    ] {
        bucket.inside().files.clear();
        bucket.inside().files.extend(there.map(|bytes| (hash, bytes)));
        let error = blobs.get(&hash, 7).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::DataLoss);
        assert!(error.to_string().contains(problem), "{error}");
        assert!(!blobs.path(&hash).exists());
    }
}

#[test]
fn columns_go_to_the_store_leave_and_come_back() {
    let (dir, bucket) = (TempDir::new().expect("a directory"), Arc::<Bucket>::default());
    let options =
        || timeline::TimelineOptions { columns: backing(&bucket, "s3://one", 0), ..small() };
    let (log, _) = Timeline::open(dir.path(), options()).expect("opened");
    let (signals, lease) = column(&log, 0..2000);
    let Signals::Column { hash, .. } = &signals else { panic!("a column") };
    assert!(bucket.has(hash), "before any event names it");
    log.append_wait(vec![frames(1, signals.clone())]).expect("appended");
    drop(lease);
    while log.columns_turn().expect("a turn") {}
    let path = dir.path().join("columns").join(hash.to_string());
    assert!(!path.exists(), "it has left");
    let told = timeline::verify(dir.path()).expect("verified");
    assert!(matches!(told.problems[..], [TimelineError::Away { .. }]), "{told:?}");
    assert_eq!(log.signals(&signals).expect("fetched").len(), 2000);
    assert!(path.exists());
    let told = timeline::verify(dir.path()).expect("verified");
    assert_eq!((told.columns, told.problems.len()), (1, 0));
    while log.columns_turn().expect("a turn") {}
    bucket.set(Conduct::Out);
    let error = log.signals(&signals).expect_err("the store is out");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(log.head(), Seq(1), "the event is there");
}
