//! Resources in memory, as a server's fetcher opens them, without a network.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use worker::{
    JobInput, JobSpec, RemoteMedia, Resource, ResourceError, ResourceOpener, WorkerError,
    WorkerLimits,
};

use crate::support::{Heard, run, whole};

/// Base URL of all resources.
pub const SITE: &str = "https://media.test/";

/// Resources by path, and the requests for them.
#[derive(Clone, Default)]
pub struct Shelf {
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// True if sizes are known.
    pub sized: bool,
    /// True if the server supports byte ranges.
    pub ranges: bool,
    /// Redirects from one path to another.
    moved: Arc<Mutex<HashMap<String, String>>>,
    /// Most bytes that the resource of this name delivers.
    pub cut_one: Option<(String, usize)>,
}

impl Shelf {
    /// Makes a shelf that behaves like a good server.
    pub fn new() -> Shelf {
        Shelf { sized: true, ranges: true, ..Shelf::default() }
    }

    /// Makes a shelf of all files in a folder.
    pub fn of(folder: &Path) -> Shelf {
        let shelf = Shelf::new();
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
            shelf.put(&name, fs::read(&path).expect("readable"));
        }
        shelf
    }

    pub fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.files.lock().expect("no panic").insert(name.to_owned(), bytes.into());
    }

    pub fn get(&self, name: &str) -> Vec<u8> {
        self.files.lock().expect("no panic").get(name).expect("on the shelf").clone()
    }

    /// Redirects requests for `from` to `to`.
    pub fn redirect(&self, from: &str, to: &str) {
        self.moved.lock().expect("no panic").insert(from.to_owned(), to.to_owned());
    }

    /// Returns `path@from` of every open, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }

    /// Makes a job on the resource at `path`.
    pub fn spec(&self, path: &str) -> JobSpec {
        let input = JobInput::Remote(RemoteMedia {
            url: format!("{SITE}{path}"),
            resources: Box::new(self.clone()),
            playlists: true,
            is_endless: false,
        });
        JobSpec { limits: WorkerLimits::remote(), ..whole(input) }
    }

    pub fn run(&self, path: &str) -> Result<Heard, WorkerError> {
        run(self.spec(path))
    }
}

impl ResourceOpener for Shelf {
    fn open(&mut self, url: &str, from: u64) -> Result<Resource, ResourceError> {
        let path =
            url.strip_prefix(SITE).ok_or_else(|| ResourceError(format!("blocked: {url}")))?;
        self.asked.lock().expect("no panic").push(format!("{path}@{from}"));
        let moved = self.moved.lock().expect("no panic").get(path).cloned();
        let path = moved.as_deref().unwrap_or(path);
        let Some(bytes) = self.files.lock().expect("no panic").get(path).cloned() else {
            return Err(ResourceError(format!("http status 404: {url}")));
        };
        let (size, from) = (bytes.len(), from as usize);
        let cut = self.cut_one.iter().find(|(name, _)| name == path).map(|(_, cut)| *cut);
        let end = cut.map_or(size, |cut| size.min(cut));
        let (read, write) = std::io::pipe().expect("a pipe");
        let send = move || {
            let mut write = write;
            // Fails once the worker has stopped reading.
            write.write_all(bytes.get(from..end).unwrap_or_default()).ok();
        };
        thread::Builder::new().name("shelf".into()).spawn(send).expect("a thread");
        Ok(Resource {
            bytes: read.into(),
            url: format!("{SITE}{path}"),
            size: self.sized.then_some(size as u64),
            seekable: self.ranges,
        })
    }
}
