//! In-memory disk with power cuts, which any part of the unsynced changes survives at random.
//!
//! Any single call can be made to fail, or all of a kind. `survivor.rs` defines a file's content after a cut.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use timeline::{RecoveryReport, Storage, StorageFile, Timeline, TimelineError, TimelineOptions};

use crate::survivor::{Change, Content, Sector, free, survivor};
use fastrand::Rng;

/// Fault of all operations of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every sync fails.
    Sync,
    /// Every write past this size of a file fails for lack of space.
    Full(u64),
    /// Every write keeps only its first half, then fails.
    HalfWrite,
}

/// Single failing call, like a failing system call.
#[derive(Clone, Copy, Debug)]
pub struct Slip {
    /// Number of calls before the failing one.
    pub after: u64,
    pub errno: i32,
    pub done: Done,
}

/// Effect of a failing call. A change of names has none: it is made completely or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Nothing,
    /// First half of a write.
    Half,
    All,
}

type Shared = Arc<Mutex<Content>>;

#[derive(Default)]
struct State {
    files: BTreeMap<String, Shared>,
    durable_names: BTreeMap<String, Shared>,
    /// File of each name after each change since names were last synced.
    passed: Vec<(String, Option<Shared>)>,
    /// Sectors of removed or truncated files.
    freed: Vec<Sector>,
    fault: Option<Fault>,
    slip: Option<Slip>,
    /// Operations left until the power is cut.
    power: Option<u64>,
}

#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

struct SimFile {
    disk: SimDisk,
    content: Shared,
}

fn lost() -> io::Error {
    io::Error::other("the power is gone")
}

fn lock(content: &Shared) -> MutexGuard<'_, Content> {
    content.lock().expect("no test panics while it holds a file")
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the disk")
    }

    /// Opens the log of these files.
    pub fn open_log(
        &self,
        options: TimelineOptions,
    ) -> Result<(Timeline, RecoveryReport), TimelineError> {
        Timeline::open_on(Arc::new(self.clone()), Path::new("/nonexistent"), options)
    }

    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// Sets the call that fails, or none; returns the previous one if it was not reached.
    pub fn set_slip(&self, slip: Option<Slip>) -> Option<Slip> {
        std::mem::replace(&mut self.state().slip, slip)
    }

    /// Allows `operations` more changes, then fails all.
    pub fn cut_power_after(&self, operations: u64) {
        self.state().power = Some(operations);
    }

    /// Counts a change; an error after the power cut.
    fn change(&self) -> io::Result<Option<Fault>> {
        let mut state = self.state();
        match &mut state.power {
            Some(0) => return Err(lost()),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state.fault)
    }

    /// Makes `call`, unless it is the failing one.
    fn call<T>(&self, call: impl FnOnce(Option<Done>) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        let slips = match &mut state.slip {
            Some(Slip { after: 0, .. }) => state.slip.take(),
            Some(slip) => {
                slip.after -= 1;
                None
            }
            None => None,
        };
        drop(state);
        let Some(Slip { errno, done, .. }) = slips else { return call(None) };
        drop(call(Some(done)));
        Err(io::Error::from_raw_os_error(errno))
    }

    /// Makes a change of names, which has no effect if it fails.
    fn name<T>(&self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.call(|slips| {
            self.change()?;
            if slips.is_some() { Err(lost()) } else { call(&mut self.state()) }
        })
    }

    pub fn after_power_cut(&self, random: &mut Rng) -> SimDisk {
        let state = self.state();
        let mut names = state.durable_names.clone();
        // Either all changes up to one of them survive, or any of them, each name independently.
        let until =
            (random.u64(..100) < 50).then(|| random.u64(..state.passed.len() as u64 + 1) as usize);
        for (name, content) in &state.passed[..until.unwrap_or(state.passed.len())] {
            if until.is_none() && random.u64(..100) < 50 {
                continue;
            }
            match content {
                Some(content) => drop(names.insert(name.clone(), content.clone())),
                None => drop(names.remove(name)),
            }
        }
        let freed = if random.u64(..100) < 50 { state.freed.as_slice() } else { &[] };
        let survive = |content: &Shared, random: &mut Rng| {
            Arc::new(Mutex::new(survivor(&lock(content), freed, random)))
        };
        let files: BTreeMap<String, Shared> =
            names.iter().map(|(name, content)| (name.clone(), survive(content, random))).collect();
        let freed = state.freed.clone();
        let mut after = State { durable_names: files.clone(), files, freed, ..State::default() };
        let lost = state.files.iter().filter(|(name, _)| !names.contains_key(*name));
        for (_, content) in lost {
            free(&mut after.freed, &lock(content).bytes);
        }
        SimDisk(Arc::new(Mutex::new(after)))
    }

    /// Returns the disk as another process sees it after this one was killed.
    pub fn after_kill(&self) -> SimDisk {
        let mut state = self.state();
        state.power = Some(0);
        let copy = |content: &Shared| Arc::new(Mutex::new(lock(content).clone()));
        let files: BTreeMap<String, Shared> =
            state.files.iter().map(|(name, content)| (name.clone(), copy(content))).collect();
        let durable_names = files
            .iter()
            .filter(|(name, _)| state.durable_names.contains_key(*name))
            .map(|(name, content)| (name.clone(), content.clone()))
            .collect();
        SimDisk(Arc::new(Mutex::new(State { files, durable_names, ..State::default() })))
    }

    pub fn names(&self) -> Vec<String> {
        self.state().files.keys().cloned().collect()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        lock(&self.content(name)).bytes.clone()
    }

    /// Replaces a file, durably.
    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let content = Content { durable: bytes.clone(), bytes, unsynced: Vec::new() };
        let shared = Arc::new(Mutex::new(content));
        let mut state = self.state();
        state.files.insert(name.to_owned(), shared.clone());
        state.durable_names.insert(name.to_owned(), shared);
    }

    fn content(&self, name: &str) -> Shared {
        self.state().files.get(name).expect("the file exists").clone()
    }
}

impl Storage for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.call(|_| Ok(self.names()))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let content = self.name(|state| {
            let content = Shared::default();
            state.files.insert(name.to_owned(), content.clone());
            state.passed.push((name.to_owned(), Some(content.clone())));
            Ok(content)
        })?;
        Ok(Arc::new(SimFile { disk: self.clone(), content }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let found = || self.state().files.get(name).cloned().ok_or(io::ErrorKind::NotFound.into());
        let content = self.call(|_| found())?;
        Ok(Arc::new(SimFile { disk: self.clone(), content }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.name(|state| {
            let content = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            state.passed.push((from.to_owned(), None));
            state.passed.push((to.to_owned(), Some(content.clone())));
            if let Some(replaced) = state.files.insert(to.to_owned(), content) {
                free(&mut state.freed, &lock(&replaced).bytes);
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.name(|state| {
            let content = state.files.remove(name).ok_or(io::ErrorKind::NotFound)?;
            state.passed.push((name.to_owned(), None));
            free(&mut state.freed, &lock(&content).bytes);
            Ok(())
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.call(|slips| {
            if self.change()? == Some(Fault::Sync) {
                return Err(io::Error::other("sync failed"));
            }
            if slips.is_none_or(|done| done == Done::All) {
                let mut state = self.state();
                state.durable_names = state.files.clone();
                state.passed.clear();
            }
            Ok(())
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/sim").join(name)
    }
}

impl StorageFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        self.disk.call(|_| Ok(lock(&self.content).bytes.len() as u64))
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.disk.call(|slips| {
            self.disk.change()?;
            if slips.is_none_or(|done| done == Done::All) {
                let (mut content, size) = (lock(&self.content), size as usize);
                let cut = content.bytes.get(size..).unwrap_or_default().to_vec();
                content.bytes.resize(size, 0);
                content.unsynced.push(Change::Size(size));
                drop(content);
                free(&mut self.disk.state().freed, &cut);
            }
            Ok(())
        })
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.call(|_| {
            let content = lock(&self.content);
            let range = offset as usize..offset as usize + into.len();
            into.copy_from_slice(content.bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.call(|slips| {
            let fault = self.disk.change()?;
            let (fits, error) = match (slips, fault) {
                (Some(Done::Nothing), _) => (0, None),
                (Some(Done::Half), _) => (bytes.len() / 2, None),
                (_, Some(Fault::Full(size))) if offset + bytes.len() as u64 > size => {
                    (size.saturating_sub(offset) as usize, Some(io::ErrorKind::StorageFull.into()))
                }
                (_, Some(Fault::HalfWrite)) => {
                    (bytes.len() / 2, Some(io::Error::other("half a write")))
                }
                _ => (bytes.len(), None),
            };
            lock(&self.content).write(offset as usize, &bytes[..fits]);
            error.map_or(Ok(()), Err)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.call(|slips| {
            if self.disk.change()? == Some(Fault::Sync) {
                return Err(io::Error::other("sync failed"));
            }
            if slips.is_none_or(|done| done == Done::All) {
                let mut content = lock(&self.content);
                content.durable = content.bytes.clone();
                content.unsynced.clear();
            }
            Ok(())
        })
    }
}
