//! A server with all that it can depend on, each of which fails in its turn.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use s3_server::{ACCESS_KEY, BUCKET, Fault, S3Server, SECRET_KEY};
use scripted_model::Step;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    soak::figures::Sample,
    support::{
        BOB, Server, Setup,
        model::Model,
        postgres::Postgres,
        receiver::{Behaviour, Receiver},
    },
};

/// Path of the receiver that hears of every run.
const HOOK: &str = "/all";
const STORE_FAULTS: [Fault; 3] = [Fault::SlowDown, Fault::Closed, Fault::Silent];

pub struct World {
    pub server: Server,
    setup: Setup,
    dir: TempDir,
    database: Mutex<Postgres>,
    store: S3Server,
    model_fails: Arc<AtomicBool>,
    receiver: Receiver,
    _model: Model,
}

impl World {
    pub fn start() -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let database = Postgres::start();
        let store = S3Server::start(&dir.path().join("s3")).expect("a store");
        let receiver = Receiver::start();
        let model_fails = Arc::new(AtomicBool::new(false));
        let fails = Arc::clone(&model_fails);
        let answer = json!({
            "event_type": "person_detected", "object_label": "person", "summary": "somebody",
            "description": "somebody walks by", "confidence": 0.8,
        });
        let model = Model::start(move |_| match fails.load(Ordering::Relaxed) {
            true => Step::html(502),
            false => Step::chat(&answer.to_string()),
        });
        let setup = model
            .behind(Setup::new(dir.path()))
            .clips()
            .var("SERVICE_DB_URL", &database.url())
            .var("SERVICE_NODE_TAG", "0001")
            .var("SERVICE_BLOB_URL", &format!("s3://{BUCKET}/soak"))
            .var("SERVICE_BLOB_ENDPOINT", &store.url())
            .var("SERVICE_BLOB_CACHE_MIB", "16")
            .var("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .var("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8")
            .var("SERVICE_EGRESS_CA_PATH", &receiver.ca())
            .var("SERVICE_WEBHOOK_RETRY_MS", "500")
            // What is deleted is purged a minute later.
            .var("SERVICE_RETENTION_DELETED_RUN_DAYS", "0.0007");
        let server = setup.start();
        let kinds = ["run_created", "run_completed", "run_failed", "run_deleted"];
        server
            .post("/v1/webhooks", &json!({ "url": receiver.url(HOOK), "kinds": kinds }))
            .assert_ok();
        World {
            server,
            setup,
            dir,
            database: Mutex::new(database),
            store,
            model_fails,
            receiver,
            _model: model,
        }
    }

    /// Breaks each dependency in its turn for a while, and lets it be for as long; all are whole at the end.
    pub fn flap(&self, until: Instant) {
        let length = until.saturating_duration_since(Instant::now());
        let phase = (length / 32).clamp(Duration::from_secs(4), Duration::from_secs(60));
        let mut round = 0;
        while Instant::now() + 2 * phase < until {
            match round % 4 {
                0 => self.model_fails.store(true, Ordering::Relaxed),
                1 => self.store.set(STORE_FAULTS[round / 4 % STORE_FAULTS.len()]),
                2 => self.database.lock().expect("no panic").kill(),
                _ => self.receiver.on(HOOK, Behaviour::Answer(503, "")),
            }
            std::thread::sleep(phase);
            match round % 4 {
                0 => self.model_fails.store(false, Ordering::Relaxed),
                1 => self.store.set(Fault::None),
                2 => self.database.lock().expect("no panic").run(),
                _ => self.receiver.on(HOOK, Behaviour::Answer(200, "")),
            }
            std::thread::sleep(phase);
            round += 1;
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    pub fn sample(&self) -> Sample {
        let process = PathBuf::from(format!("/proc/{}", self.server.pid()));
        let entries = |folder: &str| fs::read_dir(process.join(folder)).map_or(0, Iterator::count);
        let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children"));
        let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| children(task).ok());
        let asked = Instant::now();
        self.server.call("GET", "/v1/health").key(Some(BOB)).send().assert_ok();
        let health_ms = asked.elapsed().as_millis() as u64;
        let index = |of: &str| self.server.metric(&format!("service_{of}_index_bytes"));
        Sample {
            health_ms,
            index_kb: (index("log") + index("search")) as u64 / 1024,
            memory_kb: self.server.memory_kb("RssAnon"),
            descriptors: entries("fd"),
            threads: entries("task"),
            children: children.map(|list| list.split_whitespace().count()).sum(),
            disk_kb: bytes(&self.dir.path().join("data")) / 1024,
        }
    }

    /// Stills in the object store.
    pub fn stills(&self) -> usize {
        self.store.keys().iter().filter(|key| key.contains("/stills/")).count()
    }

    /// A kill and a restart leave the log whole.
    pub fn survives_a_kill(&mut self) {
        let head = self.server.metric("service_log_head");
        self.server.kill();
        self.server = self.setup.start();
        let after = self.server.metric("service_log_head");
        assert!(after >= head, "{after} after a restart, {head} before");
    }
}

/// Bytes of the files beneath `dir`.
fn bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes(&entry.path()),
        Ok(meta) => meta.len(),
        // It went meanwhile.
        Err(_) => 0,
    };
    entries.map(size).sum()
}
