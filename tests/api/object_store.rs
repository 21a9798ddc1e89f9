//! Real servers with a real S3 server behind their stills and columns, which fails in every way that it knows.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use s3_server::{ACCESS_KEY, BUCKET, Fault, S3Server, SECRET_KEY};
use serde_json::json;
use tempfile::TempDir;

use super::shutdown::ended;
use crate::support::{Reply, Server, Setup, files, wait_until};

/// A store, and a directory for servers that use it.
struct World {
    dir: TempDir,
    store: S3Server,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let store = S3Server::start(&dir.path().join("s3")).expect("a store");
        World { dir, store }
    }

    /// A server called `node` that keeps no still here that the store has.
    fn setup(&self, node: &str) -> Setup {
        Setup::new(&self.dir.path().join(node))
            .clips()
            .var("SERVICE_NODE_TAG", node)
            .var("SERVICE_BLOB_URL", &format!("s3://{BUCKET}/cameras"))
            .var("SERVICE_BLOB_ENDPOINT", &self.store.url())
            .var("SERVICE_BLOB_CACHE_MIB", "0")
            .var("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .var("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .behind_dead_proxies()
    }

    fn data(&self, node: &str) -> std::path::PathBuf {
        self.dir.path().join(node).join("data")
    }

    /// Keys of `node`, its owner left out.
    fn keys(&self, node: &str) -> Vec<String> {
        let prefix = format!("cameras/{node}/");
        let mut keys = self.store.keys();
        keys.retain(|key| key.starts_with(&prefix) && !key.ends_with("/owner"));
        keys
    }
}

/// So many frames that their signals are a column, and so few that they are not.
const MANY: usize = 500;
const FEW: usize = 20;

fn ingested(server: &Server, frames: usize) -> String {
    server.ingested(&json!({ "source_uri": "street.mp4", "max_frames": frames }))
}

/// Answers to every still of `run`, by their paths.
fn stills(server: &Server, run: &str) -> BTreeMap<String, Reply> {
    let paths = server.still_paths(run).into_iter();
    paths.map(|path| (path.clone(), server.get(&path))).collect()
}

fn bytes(stills: &BTreeMap<String, Reply>) -> BTreeMap<String, Vec<u8>> {
    assert!(stills.values().all(|reply| reply.status == 200), "every still is there");
    stills.iter().map(|(path, reply)| (path.clone(), reply.bytes.to_vec())).collect()
}

/// Key of a still of the server `000a` by its path.
fn key(path: &str) -> String {
    let hash = path.rsplit('/').next().expect("a hash");
    format!("cameras/000a/stills/{}/{hash}", &hash[..2])
}

/// Files of stills that are here, marks left out.
fn here(data: &Path) -> usize {
    let is_still = |name: &str| name.len() == 64;
    let names = files(&data.join("blobs")).into_iter();
    names.filter(|path| path.file_name().and_then(|it| it.to_str()).is_some_and(is_still)).count()
}

fn unsent(server: &Server) -> f64 {
    server.metric("service_object_store_unsent_files")
}

#[test]
fn stills_and_columns_are_in_the_store_alone_and_go_with_their_run() {
    let world = World::new();
    let setup = world.setup("000a").log_to(&world.dir.path().join("log"));
    let server = setup.start();
    let run = ingested(&server, MANY);
    let kept = bytes(&stills(&server, &run));
    assert!(!kept.is_empty());
    wait_until("no still stays here", || here(&world.data("000a")) == 0);
    let keys = world.keys("000a");
    let of = |folder: &str| keys.iter().filter(|key| key.contains(folder)).count();
    assert_eq!((of("/stills/"), of("/columns/")), (kept.len(), 1), "{keys:?}");
    for (path, jpeg) in &kept {
        assert_eq!(world.store.object(&key(path)).as_ref(), Some(jpeg), "{path}");
    }
    assert_eq!(bytes(&stills(&server, &run)), kept, "fetched from the store");
    let path = kept.keys().next().expect("one");
    let small = server.get(&format!("{path}?max_edge=64"));
    assert!(small.status == 200 && small.bytes.len() < kept[path].len(), "{}", small.text);
    drop(server);

    let server = setup.start();
    assert_eq!(bytes(&stills(&server, &run)), kept, "after a restart");
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    wait_until("the store has none of its stills", || {
        !world.keys("000a").iter().any(|key| key.contains("/stills/"))
    });
    wait_until("nor is a mark left", || files(&world.data("000a").join("blobs")).len() == 1);
    let again = ingested(&server, MANY);
    wait_until("no still stays here", || here(&world.data("000a")) == 0);
    check_loss(&world, &server, &again);
    for secret in [ACCESS_KEY, SECRET_KEY] {
        let log = std::fs::read_to_string(world.dir.path().join("log")).expect("a log");
        assert!(!log.contains(secret));
        assert!(!server.get("/v1/metrics").text.contains(secret));
    }
}

/// A still that only the store has is unavailable while that is out, and damaged when it lost it.
fn check_loss(world: &World, server: &Server, run: &str) {
    // Not fetched before: what is fetched stays here for a while.
    assert!(server.still_paths(run).len() > 1, "one is damaged, and others are not");
    world.store.set(Fault::Closed);
    for reply in stills(server, run).values() {
        assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"), "{}", reply.text);
        assert!(reply.text.contains("the object store cannot be reached"), "{}", reply.text);
    }
    // A column stays here; one that does not is as unavailable, and its event is not damaged.
    let columns = files(&world.data("000a").join("log/columns"));
    let is_column = |path: &&PathBuf| path.file_name().is_some_and(|name| name.len() == 64);
    let column = columns.iter().find(is_column).expect("that of the run");
    let away = column.with_extension("away");
    std::fs::rename(column, &away).expect("moved");
    let reply = server.get(&format!("/v1/runs/{run}/events"));
    assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"), "{}", reply.text);
    std::fs::rename(away, column).expect("moved back");
    world.store.set(Fault::None);
    let path = &server.still_paths(run)[0];
    world.store.put(&key(path), b"not what was stored").expect("put");
    // After a failure no reader asks the store for some seconds.
    wait_until("it is found damaged", || server.get(path).status == 500);
    let others = stills(server, run);
    assert!(others.iter().all(|(other, reply)| other == path || reply.status == 200));
}

#[test]
fn a_store_that_fails_delays_nothing_and_gets_all_of_it_after_a_kill() {
    let world = World::new();
    // `objects/tests/faults.rs` has what every fault is taken for.
    for (node, fault, counted, frames) in [
        ("0001", Fault::Closed, "unreachable", MANY),
        ("0002", Fault::Silent, "slow", FEW),
        ("0003", Fault::KeepsNothing, "not_kept", MANY),
    ] {
        world.store.set(fault);
        let setup = world.setup(node);
        let mut server = setup.start();
        let run = ingested(&server, frames);
        let kept = bytes(&stills(&server, &run));
        assert!(!kept.is_empty());
        let events = server.events(&run).len();
        let series = format!("service_object_store_failures_total{{fault=\"{counted}\"}}");
        wait_until(&format!("{fault:?} is counted"), || server.metric(&series) > 0.0);
        wait_until("what waits is counted", || unsent(&server) > 0.0);
        assert!(world.keys(node).is_empty());
        server.restart(&setup);
        assert_eq!(bytes(&stills(&server, &run)), kept, "{fault:?}: nothing is lost");
        assert_eq!(server.events(&run).len(), events);
        world.store.set(Fault::None);
        let all = kept.len() + usize::from(frames == MANY);
        wait_until("the store has the stills and the column", || world.keys(node).len() == all);
        wait_until("no still stays here", || here(&world.data(node)) == 0);
        assert_eq!(bytes(&stills(&server, &run)), kept, "{fault:?}: fetched");
        server.kill();
        let report = timeline::verify(&world.data(node).join("log")).expect("readable");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

#[test]
fn the_export_goes_to_a_store_once_that_is_there() {
    let world = World::new();
    world.store.set(Fault::Closed);
    let setup = world.setup("000b").var("SERVICE_BLOB_URL", "file:");
    let setup = setup.var("SERVICE_EXPORT_URL", &format!("s3://{BUCKET}/tables"));
    let server = setup.var("SERVICE_EXPORT_AGE_SECS", "1").start();
    ingested(&server, MANY);
    wait_until("it is tried", || server.metric("service_export_failures_total") > 0.0);
    world.store.set(Fault::None);
    let last = server.metric("service_log_head");
    wait_until("all of it is there", || server.metric("service_export_events_total") >= last);
    let keys = world.store.keys();
    assert!(keys.contains(&"tables/nodes/000b".to_owned()), "{keys:?}");
    for table in ["events", "frames"] {
        let is_of = |key: &&String| key.starts_with(&format!("tables/{table}/date="));
        let files: Vec<_> = keys.iter().filter(is_of).collect();
        assert!(!files.is_empty(), "{table}: {keys:?}");
        for key in files {
            assert!(key.contains("/node=000b/") && key.ends_with(".parquet"), "{key}");
            let file = world.store.object(key).expect("there");
            assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "{key}");
        }
    }
}

#[test]
fn without_the_store_that_alone_has_the_stills_no_server_starts() {
    let world = World::new();
    let server = world.setup("000f").start();
    let run = ingested(&server, FEW);
    wait_until("no still stays here", || here(&world.data("000f")) == 0);
    // A second server of this tag finds that the prefix is another's; `objects/tests/owners.rs` has what it may then do.
    let owner = world.store.object("cameras/000f/owner").expect("claimed");
    assert!(owner.starts_with(b"node-"), "the server's own name, not the tag");
    drop(server);
    for url in ["file:".to_owned(), format!("s3://{BUCKET}/elsewhere")] {
        let elsewhere = world.setup("000f").var("SERVICE_BLOB_URL", &url);
        let (code, _, text) = ended(&mut elsewhere.command());
        assert_eq!(code, Some(1), "{url}: {text}");
        assert!(
            text.contains("are only in the object store s3://footage/cameras at http"),
            "{text}"
        );
    }
    let server = world.setup("000f").start();
    assert!(!bytes(&stills(&server, &run)).is_empty());
}
