//! A real server process on a free port with a data directory of its own, and a client for it. Long because what most tests ask of
//! a server is here.

pub mod call;
pub mod clock;
pub mod corpus;
pub mod disk_shim;
pub mod files;
pub mod host;
pub mod model;
pub mod model_server;
mod mounts;
pub mod no_landlock;
pub mod onnx_runtime;
pub mod postgres;
pub mod python;
pub mod receiver;
pub mod reply;
pub mod resolver;
mod running;
mod runs;
pub mod sandbox;
pub mod seed;
pub mod shared;
pub mod skip;
pub mod whip;

use std::{
    io::{BufRead, BufReader},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use reqwest::blocking::{Client, ClientBuilder};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use worker::SandboxPolicy;

pub use call::Call;
pub use files::files;
pub use mounts::{SmallDisk, can_mount};
pub use reply::Reply;
pub use running::{Running, can_open, free_address, on_thread};
pub use shared::shared;
pub use skip::skip;

/// Copies the folder `from`, whose server is stopped, to the path `to`.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
    assert!(copied.success(), "{}", from.display());
}

/// The key of the principal that most tests act as.
pub const ALICE: &str = "alice-key-for-tests";
pub const BOB: &str = "bob-key-for-tests";

/// Settings of a server; the environment is otherwise empty.
#[derive(Clone)]
pub struct Setup {
    data: PathBuf,
    vars: Vec<(String, String)>,
    /// Command of mounts that it alone sees; `$1` is the folder of its data.
    mounts: Option<String>,
    /// Process whose mounts it sees.
    disk: Option<u32>,
    log: Option<PathBuf>,
    /// Directory of its data, where it is its own.
    dir: Option<Arc<TempDir>>,
}

impl Setup {
    /// A server that keeps its data in `data`, knows Alice and Bob, and starts no worker for a device.
    pub fn new(data: &Path) -> Setup {
        Setup {
            data: data.join("data"),
            vars: Vec::new(),
            mounts: None,
            disk: None,
            log: None,
            dir: None,
        }
        .var("SERVICE_API_KEYS", &format!("alice:{ALICE},bob:{BOB}"))
        .var("SERVICE_ACTIVE_STREAM_LIMIT", "1024")
        .var("SERVICE_RATE_LIMIT_GLOBAL_RPS", "0")
        .var("SERVICE_RATE_LIMIT_TENANT_RPS", "0")
        .var("SERVICE_DECODE_BACKEND", "software")
        .on_this_kernel()
    }

    pub fn dir(&self) -> &Path {
        self.data.parent().expect("a folder")
    }

    /// The same in a directory of its own, which goes with the last of its servers.
    pub fn temporary() -> Setup {
        let dir = tempfile::tempdir().expect("a directory");
        let setup = Setup::new(dir.path());
        Setup { dir: Some(Arc::new(dir)), ..setup }
    }

    /// The sandbox of media workers is the default, or as whole as it can be here.
    fn on_this_kernel(self) -> Setup {
        match sandbox::policy(env!("CARGO_BIN_EXE_sightline-server")) {
            SandboxPolicy::Require => self,
            policy => self.var("SERVICE_SANDBOX", policy.as_str()),
        }
    }

    pub fn var(mut self, name: &str, value: &str) -> Setup {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Names proxies that nobody runs: what the server reaches, it reaches without them.
    pub fn behind_dead_proxies(self) -> Setup {
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
        names.iter().fold(self, |setup, name| {
            let setup = setup.var(name, "http://127.0.0.1:9");
            setup.var(&name.to_ascii_lowercase(), "http://127.0.0.1:9")
        })
    }

    pub fn root(self, root: &Path) -> Setup {
        let root = root.display().to_string();
        self.var("SERVICE_INGEST_FILE_ROOTS", &root)
    }

    pub fn clips(self) -> Setup {
        self.root(&clips())
    }

    /// Ingest may read beneath the folder `root` beside its data, made when there is none.
    pub fn own_root(self) -> Setup {
        let root = self.data.with_file_name("root");
        std::fs::create_dir_all(&root).expect("made");
        self.root(&root)
    }

    /// Has one more model backend, with these lines in its entry.
    pub fn backend(self, name: &str, url: &str, lines: &str) -> Setup {
        let file = self.data.with_file_name("backends.toml");
        let is_more = self.vars.iter().any(|(name, _)| name == "SERVICE_CONFIG");
        let before = is_more.then(|| std::fs::read_to_string(&file).expect("written before"));
        let entry = format!(
            "[[backends]]\nname = \"{name}\"\ntype = \"openai_compat\"\nbase_url = \"{url}\"\n{lines}\n"
        );
        std::fs::write(&file, before.unwrap_or_default() + &entry).expect("written");
        self.var("SERVICE_CONFIG", &file.display().to_string())
    }

    /// Its data are on a small file system of its own, seen by it alone: see [`Server::sees`].
    pub fn on_disk(self, mib: u32) -> Setup {
        self.mounting(format!("mount -t tmpfs -o size={mib}m tmpfs \"$1\""))
    }

    /// Its data are on `disk`, where the servers before it left theirs.
    pub fn on_small_disk(mut self, disk: &SmallDisk) -> Setup {
        self.data = disk.data();
        self.disk = Some(disk.pid());
        self
    }

    /// Its names are resolved by the DNS server at `address` alone.
    pub fn resolving_at(self, address: Ipv4Addr) -> Setup {
        let mounts = resolver::mounts(self.dir(), address);
        self.mounting(mounts)
    }

    fn mounting(mut self, mounts: String) -> Setup {
        self.mounts = Some(mounts);
        self
    }

    /// Writes its stderr, a JSON object a line, to a file.
    pub fn log_to(mut self, file: &Path) -> Setup {
        self.log = Some(file.to_owned());
        self
    }

    pub fn command(&self) -> Command {
        let server = setting("SIGHTLINE_TEST_SERVER")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_sightline-server").into());
        let mut command = match (&self.mounts, self.disk) {
            (None, None) => Command::new(&server),
            (None, Some(disk)) => {
                let mut command = mounts::namespace_of(disk);
                command.arg(server);
                command
            }
            (Some(mounts), _) => {
                std::fs::create_dir_all(&self.data).expect("made");
                let script = format!("{mounts} && exec \"$2\"");
                let mut command = mounts::namespace();
                command.args(["sh", "-c", &script, "sh"]).arg(&self.data).arg(server);
                command
            }
        };
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("SERVICE_DATA_DIR", &self.data).env("SERVICE_BIND_ADDR", "127.0.0.1:0");
        // Where `deploy/tsan` reads what races the server has.
        command.envs(setting("TSAN_OPTIONS").map(|options| ("TSAN_OPTIONS", options)));
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it and waits until it listens.
    pub fn start(&self) -> Server {
        self.try_start().expect("the server listens")
    }

    /// The same, unless it ends before.
    pub fn try_start(&self) -> Option<Server> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stderr(
            self.log
                .as_ref()
                .map_or(Stdio::null(), |file| std::fs::File::create(file).expect("a file").into()),
        );
        let (child, addr) = listen(&mut command)?;
        let mut server = Server::new(Some(child), None, &addr);
        server.dir.clone_from(&self.dir);
        Some(server)
    }
}

/// Starts a server with `command` and waits until it listens; returns its address too. `None` where it ends before.
fn listen(command: &mut Command) -> Option<(Running, String)> {
    let mut server = Running(command.stdout(Stdio::piped()).spawn().expect("the server starts"));
    let stdout = server.0.stdout.take().expect("piped");
    let (tell, told) = mpsc::sync_channel(1);
    on_thread("server-stdout", move || {
        // Read to the end: a full pipe would stop the server.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some((_, addr)) = line.split_once("listening addr=") {
                // Nobody listens to a second line.
                tell.send(addr.to_owned()).ok();
            }
        }
    });
    let told = told.recv_timeout(Duration::from_secs(120));
    assert_ne!(told, Err(mpsc::RecvTimeoutError::Timeout), "the server neither listens nor ends");
    if told.is_err() {
        server.0.wait().expect("waited for");
    }
    Some((server, told.ok()?))
}

/// A running server; killed when dropped, unless others share it.
pub struct Server {
    /// None where it is shared.
    child: Option<Running>,
    guest: Option<usize>,
    base: String,
    client: Client,
    dir: Option<Arc<TempDir>>,
}

impl Server {
    fn new(child: Option<Running>, guest: Option<usize>, addr: &str) -> Server {
        Server { child, guest, ..Server::at(format!("http://{addr}"), Client::builder()) }
    }

    /// Takes another program that answers at `base`, such as a proxy, for a server.
    pub fn at(base: String, client: ClientBuilder) -> Server {
        // Whoever tests first installs it.
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        // A kept connection may be one that the server is just closing.
        let client = client.timeout(PATIENCE).pool_max_idle_per_host(0);
        let client = client.build().expect("a client");
        Server { child: None, guest: None, base, client, dir: None }
    }

    /// The same, for a test that has it read beneath [`clips`]: the clips are noted.
    pub fn with_clips(self) -> Server {
        clips();
        self
    }

    fn child(&self) -> &Child {
        &self.child.as_ref().expect("a server of its own").0
    }

    /// The key as this server knows it: that of [`ALICE`] or [`BOB`] is the guest's own.
    pub fn key(&self, key: &str) -> String {
        match self.guest {
            Some(guest) if [ALICE, BOB].contains(&key) => format!("{key}-{guest}"),
            _ => key.to_owned(),
        }
    }

    /// `127.0.0.1:port`.
    pub fn addr(&self) -> &str {
        self.base.strip_prefix("http://").expect("our own")
    }

    /// Path under which the server sees `path`, its mounts included.
    pub fn sees(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.child().id(), path.display()))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.call("GET", path).send()
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.call("POST", path).json(body).send()
    }

    pub fn create_run(&self) -> String {
        self.post("/v1/runs", &serde_json::json!({})).assert_ok().run()
    }

    pub fn events(&self, run: &str) -> Vec<Value> {
        self.query(serde_json::json!({ "run_id": run, "limit": 10_000 }))
    }

    /// The payloads of one kind of a run of Alice's, in their order; those of chunks in the order of these.
    pub fn payloads(&self, run: &str, kind: &str) -> Vec<Value> {
        let query = serde_json::json!({ "run_id": run, "kind": kind, "limit": 10_000 });
        let events = self.query(query).into_iter();
        let mut payloads: Vec<_> = events.map(|mut event| event["payload"].take()).collect();
        payloads.sort_by_key(|payload| payload["chunk_index"].as_u64());
        payloads
    }

    /// Asks again from where an answer ends, until there is no more.
    fn query(&self, mut query: Value) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let reply = self.post("/v1/query", &query).assert_ok().json();
            events.extend_from_slice(reply["matches"].as_array().expect("an array"));
            if reply["has_more"] == false {
                return events;
            }
            query["from_seq"] = reply["next_from_seq"].clone();
        }
    }

    pub fn kinds(&self, run: &str) -> Vec<String> {
        let kind = |event: &Value| event["kind"].as_str().expect("a kind").to_owned();
        self.events(run).iter().map(kind).collect()
    }

    /// A line of its `/proc/PID/status` in kB: `VmRSS`, or `VmHWM` for the peak.
    pub fn memory_kb(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
    }

    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Sends SIGKILL, and does not wait.
    pub fn signal_kill(&self) {
        self.signal(Signal::KILL);
    }

    /// The server's media workers that are at work. One that waits for a job is not confined yet.
    pub fn workers(&self) -> Vec<Pid> {
        let server = self.child().id().to_string();
        let processes = std::fs::read_dir("/proc").expect("there").flatten();
        let workers = processes.filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let is_at_work = !status.contains("\nSeccomp:\t0\n");
            let pid = entry.file_name().to_str()?.parse().ok()?;
            (parent == server && is_at_work).then(|| Pid::from_raw(pid)).flatten()
        });
        workers.collect()
    }

    /// Sends SIGKILL to them; returns how many there were.
    pub fn kill_workers(&self) -> usize {
        let workers = self.workers().into_iter();
        workers.filter(|&pid| kill_process(pid, Signal::KILL).is_ok()).count()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child()), signal).expect("signalled");
    }

    pub fn kill(&mut self) {
        let child = &mut self.child.as_mut().expect("a server of its own").0;
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }

    /// Kills it, and starts one of `setup` in its place.
    pub fn restart(&mut self, setup: &Setup) {
        self.kill();
        *self = setup.start();
    }

    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let started = Instant::now();
        let child = &mut self.child.as_mut().expect("a server of its own").0;
        loop {
            if let Some(status) = child.try_wait().expect("waited for") {
                return status;
            }
            assert!(started.elapsed() < limit, "still running after {limit:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "tests have no configuration to read it from")]
pub fn setting(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Tells progress from a hang.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Polls `look` until it returns anything, and returns that; `what` is what is waited for.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// Polls `look` until it returns `expected`; fails with what it returned last.
#[track_caller]
pub fn wait_for<T: PartialEq + std::fmt::Debug>(expected: &T, mut look: impl FnMut() -> T) {
    let started = Instant::now();
    loop {
        let found = look();
        if found == *expected {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{found:?}, expected {expected:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `base` with the fields of `more`.
pub fn with(mut base: Value, more: &Value) -> Value {
    let fields = more.as_object().expect("an object").clone();
    base.as_object_mut().expect("an object").extend(fields);
    base
}

/// Asserts that `found` has the fields of `expected` as they are there.
#[track_caller]
pub fn assert_has(found: &Value, expected: &Value) {
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[field], value, "{field} of {found}");
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn this_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// The shim before the disk, made below `dir`, for `LD_PRELOAD`; `None` where the test is passed over.
pub fn shim_of_disk(dir: &Path) -> Option<String> {
    let made = disk_shim::shim(Path::new(env!("CARGO_MANIFEST_DIR")), dir);
    made.map(|shim| shim.display().to_string()).map_err(|why| skip(&this_test(), why)).ok()
}

/// Returns true for the kinds of events that a recording tells as its frames come.
pub fn is_of_frames(kind: &str) -> bool {
    ["keyframe_stored", "activity_started", "activity_ended", "loop_detected"].contains(&kind)
}

/// One of [`clips`], whole.
pub fn clip_bytes(name: &str) -> Vec<u8> {
    std::fs::read(clips().join(name)).expect("a clip")
}

/// The folder of the clips that tests of the server ask for by name.
pub fn clips() -> PathBuf {
    clips::folder()
}
