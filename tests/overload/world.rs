//! A server with small limits of its own for each kind of work, and a look at it while it works.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clips::sized;
use http_body_util::BodyExt;
use tokio::{
    runtime::{self, Runtime},
    task::spawn_blocking,
    time::sleep,
};

use crate::{
    overload::{
        client::{Client, Turn},
        generator::{Tally, open_loop},
        tenant::{Kind, Tenant},
    },
    support::{ALICE, Server, Setup, wait_until, whip::clip},
};

/// Principals that ask for one kind each, in the order of [`Kind::ALL`].
pub const FLOODS: [&str; 4] =
    ["key-of-the-reads", "key-of-the-jobs-", "key-of-followers", "key-of-the-offer"];
/// A principal beside them.
pub const STEADY: &str = "key-of-a-steady-one";
const METER: &str = "key-of-the-metrics";
/// Followers and sessions that each principal may have at once.
pub const OWN_MAX: usize = 8;
/// Time from one look at the server to the next.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Series with bounds, and the names of their limits.
const BOUNDED: [(&str, &str); 4] = [
    ("service_queue_waiting{queue=\"file_jobs\"}", "file_jobs_waiting"),
    ("service_event_streams", "event_streams"),
    ("service_live_memory_reserved_bytes", "live_session_memory"),
    ("service_connections", "connections"),
];
const TOLD: [&str; 2] = ["process_resident_memory_bytes", "process_cpu_seconds_total"];
/// Seconds in which threads of the server and of this client ran, and were ready to and had no processor.
const SCHEDULED: [&str; 4] = ["server_ran_s", "server_waited_s", "client_ran_s", "client_waited_s"];

/// The most that was seen of each series, and how processors were shared meanwhile.
pub type Peaks = BTreeMap<&'static str, f64>;

pub struct World {
    pub server: Server,
    pub runtime: Runtime,
}

impl World {
    pub fn start() -> World {
        let floods: Vec<_> = FLOODS.iter().map(|key| format!("{key}:{key}")).collect();
        let keys = format!("alice:{ALICE},steady:{STEADY},{}", floods.join(","));
        let clips = clip::scenes("A", 0);
        let sessions = (2 * OWN_MAX as u64) * (25 << 20);
        let setup = Setup::temporary()
            .root(clips.parent().expect("a folder"))
            .var("SERVICE_API_KEYS", &keys)
            .var("SERVICE_METRICS_API_KEYS", METER)
            .var("SERVICE_RATE_LIMIT_GLOBAL_RPS", sized("500", "2000"))
            .var("SERVICE_RATE_LIMIT_TENANT_RPS", sized("100", "400"))
            .var("SERVICE_MAX_STREAMS", &(2 * OWN_MAX).to_string())
            .var("SERVICE_MAX_PRINCIPAL_STREAMS", &OWN_MAX.to_string())
            .var("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", &sessions.to_string());
        World { server: setup.start(), runtime: Runtime::new().expect("a runtime") }
    }

    pub fn tenant(&self, key: &str) -> Arc<Tenant> {
        self.runtime.block_on(Tenant::new(&self.server, key))
    }

    /// Waits until nothing is under way, and where tests are long until the server has given memory back, which it does once a
    /// minute; returns the memory that it has then, in kB.
    pub fn rest(&self) -> u64 {
        self.settle();
        std::thread::sleep(sized(Duration::ZERO, Duration::from_secs(62)));
        self.server.memory_kb("RssAnon")
    }

    /// Waits until nothing of a flood is left.
    pub fn settle(&self) {
        for series in ["service_live_sessions", "service_event_streams", BOUNDED[0].0] {
            wait_until(series, || self.server.metric(series) == 0.0);
        }
        // Those of the floods close when nothing has used them for a while.
        let connections = "service_connections";
        wait_until(connections, || self.server.metric(connections) < 64.0);
    }

    /// Probes of health until `until`, twenty a second whatever becomes of those before them; by a thread of its own, as
    /// whoever watches a server does not wait behind those who flood it.
    pub async fn probe(&self, until: Instant) -> Tally {
        let client = Client::new(&self.server, "", 1);
        let count = until.saturating_duration_since(Instant::now()).as_millis() as u32 / 50;
        let times: Vec<_> = (0..count).map(|at| Duration::from_millis(50) * at).collect();
        let probes = move || {
            let own = runtime::Builder::new_current_thread().enable_all().build();
            own.expect("a runtime").block_on(open_loop(&times, |_, due| {
                let request = client.keyless("/v1/health");
                let client = client.clone();
                async move { client.send(request, due).await.0 }
            }))
        };
        spawn_blocking(probes).await.expect("no panic")
    }

    /// The output of `work`, and the most of each series that is seen meanwhile.
    pub async fn watch<T>(&self, work: impl Future<Output = T>) -> (T, Peaks) {
        let is_over = AtomicBool::new(false);
        let work = async {
            let output = work.await;
            is_over.store(true, Ordering::Relaxed);
            output
        };
        let before = self.scheduled();
        let (output, mut peaks) = tokio::join!(work, self.look(&is_over));
        let spans = self.scheduled().into_iter().zip(before).map(|(after, before)| after - before);
        peaks.extend(SCHEDULED.into_iter().zip(spans));
        (output, peaks)
    }

    fn scheduled(&self) -> [f64; SCHEDULED.len()] {
        let [ran, waited] = scheduled(self.server.pid());
        let [own_ran, own_waited] = scheduled(std::process::id());
        [ran, waited, own_ran, own_waited]
    }

    async fn look(&self, is_over: &AtomicBool) -> Peaks {
        let client = Client::new(&self.server, METER, 1);
        let mut peaks = Peaks::new();
        while !is_over.load(Ordering::Relaxed) {
            let (Turn { answer, .. }, response) =
                client.send(client.get("/v1/metrics"), Instant::now()).await;
            let response = response.unwrap_or_else(|| panic!("no metrics: {answer:?}"));
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let text = String::from_utf8_lossy(&body);
            for series in BOUNDED.iter().map(|(series, _)| *series).chain(TOLD) {
                let value =
                    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
                let value: f64 = value.unwrap_or_else(|| panic!("no series {series}"));
                let most = peaks.entry(series).or_insert(value);
                *most = most.max(value);
            }
            sleep(LOOK_EVERY).await;
        }
        peaks
    }

    /// Nothing was ever more than its limit.
    pub fn judge(&self, peaks: &Peaks) {
        let limits = self.server.get("/v1/limits").json()["limits"].clone();
        for (series, name) in BOUNDED {
            let most = limits[name]["max"].as_f64().expect("a limit");
            assert!(peaks[series] <= most, "{series} was {} of {most}", peaks[series]);
        }
    }
}

/// Turns of `kind` at each of `times` by `tenant`.
pub async fn flood(tenant: &Arc<Tenant>, kind: Kind, times: &[Duration]) -> Tally {
    open_loop(times, |number, due| Arc::clone(tenant).turn(kind, number, due)).await
}

/// Seconds that the threads which a process has now ran and were ready to, since each began.
fn scheduled(process: u32) -> [f64; 2] {
    let mut sums = [0.0; 2];
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    for thread in threads {
        // One that ends at this moment is left out.
        let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        let counts = text.split_whitespace().filter_map(|count| count.parse::<f64>().ok());
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count / 1e9);
    }
    sums
}
