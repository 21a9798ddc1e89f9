//! A disk in memory that loses power: what was not synced survives sector by sector, by chance.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use timeline::{Disk, DiskFile};

const SECTOR: usize = 512;

/// A small fast generator (xorshift64*), so that a failing seed repeats exactly.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Fault of the next operation of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every sync fails.
    Sync,
    /// Every write past this size of a file fails for lack of space.
    Full(u64),
    /// Every write keeps only its first half, then fails.
    HalfWrite,
}

#[derive(Clone, Default)]
struct Content {
    /// Bytes that the operating system shows.
    bytes: Vec<u8>,
    /// Bytes that the platter has.
    durable: Vec<u8>,
    /// Sectors that differ, as far as anyone promised.
    unsynced: BTreeSet<usize>,
}

type Shared = Arc<Mutex<Content>>;

#[derive(Default)]
struct State {
    files: BTreeMap<String, Shared>,
    durable_names: BTreeMap<String, Shared>,
    fault: Option<Fault>,
    /// Operations left until the power goes.
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

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the disk")
    }

    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// Lets `operations` more changes through, then fails all.
    pub fn cut_power_after(&self, operations: u64) {
        self.state().power = Some(operations);
    }

    /// Counts one change; an error when the power is gone.
    fn change(&self) -> io::Result<Option<Fault>> {
        let mut state = self.state();
        match &mut state.power {
            Some(0) => return Err(lost()),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state.fault)
    }

    /// Returns the disk as it is when the power returns.
    pub fn after_power_cut(&self, random: &mut Random) -> SimDisk {
        let state = self.state();
        let mut names = state.durable_names.clone();
        let all: BTreeSet<&String> = state.files.keys().chain(state.durable_names.keys()).collect();
        for name in all {
            // Each change of a name that was not synced may have reached the platter or not.
            if random.chance(50) {
                match state.files.get(name) {
                    Some(content) => drop(names.insert(name.clone(), content.clone())),
                    None => drop(names.remove(name)),
                }
            }
        }
        let survive = |content: &Shared, random: &mut Random| {
            let content = content.lock().expect("no test panics while it holds a file");
            Arc::new(Mutex::new(survivor(&content, random)))
        };
        let files: BTreeMap<String, Shared> =
            names.iter().map(|(name, content)| (name.clone(), survive(content, random))).collect();
        let state = State { durable_names: files.clone(), files, ..State::default() };
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// The disk as another process sees it after this one was killed.
    pub fn after_kill(&self) -> SimDisk {
        let mut state = self.state();
        state.power = Some(0);
        let copy = |content: &Shared| {
            let content = content.lock().expect("no test panics while it holds a file");
            Arc::new(Mutex::new(content.clone()))
        };
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
        self.content(name).lock().expect("no test panics while it holds a file").bytes.clone()
    }

    /// Replaces a file, durably.
    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let content = Content { durable: bytes.clone(), bytes, unsynced: BTreeSet::new() };
        let shared = Arc::new(Mutex::new(content));
        let mut state = self.state();
        state.files.insert(name.to_owned(), shared.clone());
        state.durable_names.insert(name.to_owned(), shared);
    }

    fn content(&self, name: &str) -> Shared {
        self.state().files.get(name).expect("the file exists").clone()
    }
}

/// Each unsynced sector, and an unsynced size, as it was or as it is.
fn survivor(content: &Content, random: &mut Random) -> Content {
    let mut bytes = content.durable.clone();
    // Disks tend to lose all or little: vary how much survives.
    let percent = [0, 10, 50, 50, 90][random.below(5) as usize];
    if bytes.len() != content.bytes.len() && random.chance(percent) {
        bytes.resize(content.bytes.len(), 0);
    }
    for sector in &content.unsynced {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(content.bytes.len()).min(bytes.len());
        if start < end && random.chance(percent) {
            bytes[start..end].copy_from_slice(&content.bytes[start..end]);
        }
    }
    Content { durable: bytes.clone(), bytes, unsynced: BTreeSet::new() }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.change()?;
        let content = Shared::default();
        self.state().files.insert(name.to_owned(), content.clone());
        Ok(Arc::new(SimFile { disk: self.clone(), content }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let content = self.state().files.get(name).cloned();
        let content = content.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Arc::new(SimFile { disk: self.clone(), content }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change()?;
        let mut state = self.state();
        let content = state.files.remove(from).ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        state.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change()?;
        self.state().files.remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        if self.change()? == Some(Fault::Sync) {
            return Err(io::Error::other("sync failed"));
        }
        let mut state = self.state();
        state.durable_names = state.files.clone();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/sim").join(name)
    }
}

impl SimFile {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect("no test panics while it holds a file")
    }
}

fn put(content: &mut Content, bytes: &[u8], offset: usize) {
    let end = offset + bytes.len();
    if content.bytes.len() < end {
        content.bytes.resize(end, 0);
    }
    content.bytes[offset..end].copy_from_slice(bytes);
    if !bytes.is_empty() {
        content.unsynced.extend(offset / SECTOR..=(end - 1) / SECTOR);
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.content().bytes.len() as u64)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.disk.change()?;
        let mut content = self.content();
        let (old, new) = (content.bytes.len(), size as usize);
        content.bytes.resize(new, 0);
        content.unsynced.extend(old.min(new) / SECTOR..old.max(new).div_ceil(SECTOR));
        Ok(())
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.content();
        let range = offset as usize..offset as usize + into.len();
        let bytes = content.bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.disk.change()? {
            Some(Fault::Full(size)) if offset + bytes.len() as u64 > size => {
                let fits = size.saturating_sub(offset) as usize;
                put(&mut self.content(), &bytes[..fits], offset as usize);
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(Fault::HalfWrite) => {
                put(&mut self.content(), &bytes[..bytes.len() / 2], offset as usize);
                Err(io::Error::other("half a write"))
            }
            _ => {
                put(&mut self.content(), bytes, offset as usize);
                Ok(())
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.disk.change()? == Some(Fault::Sync) {
            return Err(io::Error::other("sync failed"));
        }
        let mut content = self.content();
        content.durable = content.bytes.clone();
        content.unsynced.clear();
        Ok(())
    }
}
