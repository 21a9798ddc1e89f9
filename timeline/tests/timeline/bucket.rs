//! In-memory object store with a behaviour set by the test.

use std::{
    collections::HashMap,
    fmt,
    fs::{self, File},
    io::Write,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use media::BlobHash;
use sha2::{Digest, Sha256};
use timeline::{Remote, RemoteError, RemoteFault};

/// Behaviour of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Conduct {
    #[default]
    Good,
    /// Every call fails.
    Out,
    /// The store confirms a file without storing it.
    Forgetful,
    /// The store executes the request, but its answer is lost.
    Mute,
}

type Tell = Box<dyn Fn(&BlobHash, Option<&[u8]>) + Send>;

/// In-memory object store.
#[derive(Default)]
pub struct Bucket {
    inside: Mutex<Inside>,
    /// Called while files are removed.
    pub meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Called with each file that comes, with its bytes, or goes.
    pub told: Mutex<Option<Tell>>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inside.fmt(f)
    }
}

#[derive(Debug, Default)]
pub struct Inside {
    pub conduct: Conduct,
    pub files: HashMap<BlobHash, Vec<u8>>,
    pub uploads: usize,
}

impl Bucket {
    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no test panics in here")
    }

    pub fn set(&self, conduct: Conduct) {
        self.inside().conduct = conduct;
    }

    pub fn has(&self, hash: &BlobHash) -> bool {
        self.inside().files.contains_key(hash)
    }

    fn tell(&self, hash: &BlobHash, bytes: Option<&[u8]>) {
        if let Some(told) = &*self.told.lock().expect("no test panics in here") {
            told(hash, bytes);
        }
    }

    fn ask<T>(&self, answer: impl FnOnce(&mut Inside) -> T) -> Result<T, RemoteError> {
        let mut inside = self.inside();
        let error = |fault| Err(RemoteError { fault, detail: "as the test says".to_owned() });
        match inside.conduct {
            Conduct::Out => error(RemoteFault::Unreachable),
            Conduct::Mute => {
                answer(&mut inside);
                error(RemoteFault::Slow)
            }
            Conduct::Good | Conduct::Forgetful => Ok(answer(&mut inside)),
        }
    }
}

impl Remote for Bucket {
    fn upload(&self, files: &[(BlobHash, PathBuf)], _: Duration) -> Vec<Result<(), RemoteError>> {
        let one = |(hash, path): &(BlobHash, PathBuf)| {
            let bytes = fs::read(path).expect("there until it is sent");
            if BlobHash::from_bytes(Sha256::digest(&bytes).into()) != *hash {
                let detail = "damaged".to_owned();
                return Err(RemoteError { fault: RemoteFault::Local, detail });
            }
            self.ask(|inside| {
                inside.uploads += 1;
                if inside.conduct != Conduct::Forgetful {
                    self.tell(hash, Some(&bytes));
                    inside.files.insert(*hash, bytes);
                }
            })
        };
        files.iter().map(one).collect()
    }

    fn sizes(&self, hashes: &[BlobHash]) -> Vec<Result<Option<u64>, RemoteError>> {
        let size = |hash| self.ask(|inside| inside.files.get(hash).map(|bytes| bytes.len() as u64));
        hashes.iter().map(size).collect()
    }

    fn fetch(&self, hash: &BlobHash, mut to: &File, size_max: u64) -> Result<bool, RemoteError> {
        let found = self.ask(|inside| inside.files.get(hash).cloned())?;
        let Some(bytes) = found else { return Ok(false) };
        to.write_all(&bytes[..bytes.len().min(size_max as usize)]).expect("written");
        Ok(true)
    }

    /// Removes the files only after the callback.
    fn remove(&self, hashes: &[BlobHash]) -> Result<(), RemoteError> {
        let meanwhile = self.meanwhile.lock().expect("no test panics in here").take();
        meanwhile.into_iter().for_each(|it| it());
        self.ask(|inside| {
            let gone = hashes.iter().filter(|hash| inside.files.remove(*hash).is_some());
            gone.for_each(|hash| self.tell(hash, None));
        })
    }
}
