//! Object store for each test, clients of it, and files to store.
#![allow(dead_code)]

use std::{
    io::{Read, Seek},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use media::BlobHash;
use objects::{Credentials, Objects, Operation, Place, Writer};
use s3_server::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use timeline::{Remote, RemoteError, RemoteFault};
use tokio::runtime::Runtime;

/// Generous limit of uploads that must succeed.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Call that was reported to the observer.
pub type Call = (Operation, Result<(), RemoteFault>);

pub struct World {
    pub server: S3Server,
    pub runtime: Runtime,
    pub calls: Arc<Mutex<Vec<Call>>>,
    dir: TempDir,
}

impl World {
    pub fn new() -> World {
        let dir = TempDir::new().expect("a directory");
        let server = S3Server::start(&dir.path().join("store")).expect("a server");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        World { server, runtime, calls: Arc::default(), dir }
    }

    /// Client that has sent no request yet.
    pub fn client(&self, owner: &str) -> Objects {
        self.client_with(owner, SECRET_KEY)
    }

    pub fn client_with(&self, owner: &str, secret: &str) -> Objects {
        let variables = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", secret)];
        self.client_at(&self.server.url(), owner, &variables)
    }

    pub fn client_at(&self, url: &str, owner: &str, variables: &[(&str, &str)]) -> Objects {
        self.client_of(&format!("s3://{BUCKET}/cameras/north"), url, owner, variables)
    }

    pub fn client_of(
        &self,
        place: &str,
        url: &str,
        owner: &str,
        variables: &[(&str, &str)],
    ) -> Objects {
        let place = Place::parse(place).expect("a place");
        let place = Place { endpoint: Some(Place::endpoint(url).expect("a URL")), ..place };
        let writer = Writer { node: "00a1".to_owned(), owner: owner.to_owned() };
        let calls = Arc::clone(&self.calls);
        let observe = move |operation, outcome, _| {
            calls.lock().expect("calls").push((operation, outcome));
        };
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
        let credentials = Credentials::of(|name| value(name).map(|(_, value)| (*value).to_owned()));
        Objects::open(place, writer, credentials.expect("credentials"), tls(), Arc::new(observe))
            .expect("a client")
    }

    /// File of `length` bytes with content generated from `seed`.
    pub fn file(&self, seed: u32, length: usize) -> (BlobHash, PathBuf) {
        let content = content(seed, length);
        let hash = BlobHash::from_bytes(Sha256::digest(&content).into());
        let path = self.dir.path().join(hash.to_string());
        std::fs::write(&path, content).expect("a file");
        (hash, path)
    }
}

/// TLS configuration that trusts no certificate: the test server speaks no TLS.
pub fn tls() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

pub fn content(seed: u32, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed.into());
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

pub fn key(folder: &str, hash: &BlobHash) -> String {
    let hash = hash.to_string();
    format!("cameras/north/00a1/{folder}/{}/{hash}", &hash[..2])
}

/// Stores one file.
pub fn upload(folder: &dyn Remote, file: &(BlobHash, PathBuf)) -> Result<(), RemoteError> {
    folder.upload(std::slice::from_ref(file), LIMIT).pop().expect("one outcome")
}

/// Reads a complete file.
pub fn whole(folder: &dyn Remote, hash: &BlobHash) -> Result<Option<Vec<u8>>, RemoteError> {
    let mut file = tempfile::tempfile().expect("a file");
    if !folder.fetch(hash, &file, u64::MAX / 2)? {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.rewind().expect("its start");
    file.read_to_end(&mut content).expect("read");
    Ok(Some(content))
}

/// Requests the size of one file.
pub trait Size {
    fn size(&self, hash: &BlobHash) -> Result<Option<u64>, RemoteError>;
}

impl Size for dyn Remote + '_ {
    fn size(&self, hash: &BlobHash) -> Result<Option<u64>, RemoteError> {
        self.sizes(&[*hash]).pop().expect("one answer")
    }
}

/// Waits until `holds` returns true, for at most 20 s.
pub fn soon(says: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not within 20 s: {says}");
}
