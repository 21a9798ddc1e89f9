//! Resources from memory: what a server's fetcher does, without a network.

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

/// Base URL of everything on a shelf.
pub const SITE: &str = "https://media.test/";

/// Resources by their path, and what was asked of them.
#[derive(Clone, Default)]
pub struct Shelf {
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// The size is told.
    pub sized: bool,
    /// Any byte can be the first at no cost.
    pub ranges: bool,
    /// Redirects from a path to another.
    pub moved: HashMap<String, String>,
    /// No resource gives more bytes.
    pub cut: Option<usize>,
    /// The resource of this name does not.
    pub cut_one: Option<(String, usize)>,
}

impl Shelf {
    /// A shelf that behaves as a good server.
    pub fn new() -> Shelf {
        Shelf { sized: true, ranges: true, ..Shelf::default() }
    }

    /// All files of a folder.
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

    /// `path@from` of every open, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }

    /// A job on the resource at `path`.
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
        let path = self.moved.get(path).map_or(path, String::as_str);
        let Some(bytes) = self.files.lock().expect("no panic").get(path).cloned() else {
            return Err(ResourceError(format!("http status 404: {url}")));
        };
        let (size, from) = (bytes.len(), from as usize);
        let one = self.cut_one.iter().find(|(name, _)| name == path).map(|(_, cut)| *cut);
        let end = one.or(self.cut).map_or(size, |cut| size.min(cut));
        let (read, write) = std::io::pipe().expect("a pipe");
        let send = move || {
            let mut write = write;
            // Fails when the worker has seen enough.
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
