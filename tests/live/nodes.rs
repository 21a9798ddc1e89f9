//! Three servers behind the proxies of `deploy/proxy`: where requests go, and what a node that ends takes with it.

use std::{collections::BTreeMap, path::Path, time::Duration};

use reqwest::blocking::Client;
use serde_json::{Value, json};

use crate::{
    api::{
        stream::Stream,
        uploads::{TYPE, file_form},
    },
    support::{
        Server, Setup, eventually, setting, wait_until,
        whip::{
            Publication, clip,
            proxies::{Kind, Proxy},
            sightline,
        },
    },
};

const TAGS: [&str; 3] = ["0001", "0002", "0003"];
/// Sessions of Alice's that the first node has memory for: half of its budget.
const ROOM: usize = 2;

/// Three servers, each at an address that it keeps, behind a proxy.
struct Fleet {
    setups: [Setup; 3],
    servers: [Server; 3],
    proxy: Proxy,
    /// The proxy, as clients see it.
    front: Server,
}

fn node(id: &str) -> usize {
    let tag = &id.split_once('-').expect("an id").1[..4];
    TAGS.iter().position(|known| *known == tag).unwrap_or_else(|| panic!("{id} has no node's tag"))
}

impl Fleet {
    fn start(kind: Kind) -> Option<Fleet> {
        let mut setups = TAGS.map(|tag| Setup::temporary().var("SERVICE_NODE_TAG", tag));
        let budget = (2 * ROOM * (25 << 20)).to_string();
        setups[0] = setups[0].clone().var("SERVICE_MEDIA_MEMORY_BUDGET_BYTES", &budget);
        let servers = setups.each_ref().map(Setup::start);
        let addresses = servers.each_ref().map(|server| server.addr().to_owned());
        let mut fixed = setups.into_iter().zip(&addresses);
        let setups = TAGS.map(|_| {
            let (setup, address) = fixed.next().expect("three");
            setup.var("SERVICE_BIND_ADDR", address)
        });
        let proxy = Proxy::start(kind, &addresses)?;
        let front = format!("http://{}", proxy.address());
        let front = Server::at(front, Client::builder().no_proxy());
        // HAProxy takes nodes for ready until it has asked them, nginx until they refuse.
        wait_until("ready nodes", || front.get("/v1/ready").status == 200);
        Some(Fleet { setups, servers, proxy, front })
    }

    /// New runs, and how many of them each node has.
    fn create(&self, count: usize) -> (Vec<String>, [usize; 3]) {
        let runs: Vec<String> = (0..count).map(|_| self.front.create_run()).collect();
        let mut spread = [0; 3];
        runs.iter().for_each(|run| spread[node(run)] += 1);
        (runs, spread)
    }

    fn drain(&self, at: usize, is_drained: bool) {
        self.proxy.drain((TAGS[at], self.servers[at].addr()), is_drained);
    }

    /// Polls until new runs go to these nodes and no others.
    fn takes_new(&self, expected: [bool; 3]) {
        wait_until("new runs on the nodes that take them", || {
            self.create(6).1.map(|count| count > 0) == expected
        });
    }

    /// The decided frames of a live run, by its node.
    fn frames(&self, run: &str) -> u64 {
        let signals = self.front.get(&format!("/v1/runs/{run}/signals?max_points=2")).assert_ok();
        signals.json()["frames"].as_u64().expect("a count")
    }

    /// Every one of these live runs goes on.
    fn all_live(&self, runs: &[&str]) {
        let before: Vec<u64> = runs.iter().map(|run| self.frames(run)).collect();
        for (run, before) in runs.iter().zip(before) {
            wait_until("more frames", || self.frames(run) > before + 5);
        }
    }
}

/// Finds all that one node made there by its path alone, its lists beneath its prefix.
fn routed_by_path(fleet: &Fleet) {
    // A node that a busy machine keeps from answering its check is left out until the next.
    let (runs, spread) = eventually("runs on every node", || {
        Some(fleet.create(9)).filter(|(_, spread)| spread.iter().all(|&count| count >= 2))
    });
    for run in &runs {
        assert_eq!(fleet.front.record(run)["run_id"], *run);
    }
    for (at, tag) in TAGS.iter().enumerate() {
        let listed = fleet.front.get(&format!("/nodes/{tag}/v1/runs?limit=1000")).json();
        let listed = listed.as_array().expect("a list").iter();
        let listed: Vec<&str> = listed.filter_map(|run| run["run_id"].as_str()).collect();
        assert!(
            listed.len() >= spread[at] && listed.iter().all(|run| node(run) == at),
            "{listed:?}"
        );
    }
    let path = format!("/nodes/{}/v1/runs?limit=1", TAGS[node(&runs[0])]);
    let next = fleet.front.get(&path).next_page().expect("a link");
    assert!(next.starts_with(&path), "{next}");
    let unknown = "/v1/runs/run-ffff0123456789abcdef0123456789ab";
    for path in [unknown.to_owned(), format!("/nodes/ffff{unknown}")] {
        assert_eq!(fleet.front.get(&path).status, 404, "{path}");
    }

    // An upload, the run that reads it and its job are of one node.
    let form = file_form("a.mp4", &std::fs::read(clip::scenes("A", 2)).expect("a clip"));
    let upload = fleet.front.call("POST", &format!("/nodes/{}/v1/upload", TAGS[1]));
    let uploaded = upload.header("content-type", TYPE).body(form).send().json();
    let name = uploaded["file_name"].as_str().unwrap_or_default();
    assert_eq!(name.get(..4), Some(TAGS[1]), "{uploaded}");
    fleet.front.get(&format!("/v1/files/{name}")).assert_ok();
    let run = runs.iter().find(|run| node(run) == 1).expect("a run");
    let ingest = json!({ "source_uri": uploaded["file_path"], "max_frames": 5 });
    fleet.front.post_run(run, "ingest", &ingest).assert_ok();

    // An event and a long poll are answered while their streams are open.
    let mut stream = Stream::open(&fleet.front, &format!("/v1/runs/{run}/events/stream"), None);
    stream.wait_for("frames_decoded");
    fleet.front.post_run(run, "keepalive", &json!({})).assert_ok();
    stream.wait_for("keepalive_refreshed");
}

/// New runs keep away from the node that has work, however it came there.
fn new_runs_go_where_little_is_done(fleet: &Fleet, sightline: &Path) {
    let (file, options) = (clip::scenes("A", 2), ["--loop", "--count", "4"]);
    let busy = Publication::start(sightline, &fleet.servers[2], &file, &json!({}), &options);
    wait_until("fewer runs on the busy node", || {
        let spread = fleet.create(12).1;
        spread[2] * 3 < spread[0].min(spread[1])
    });
    busy.interrupt();
    busy.finish();
    wait_until("as many runs again", || fleet.create(6).1 == [2, 2, 2]);
}

/// Live sessions beside a node that is drained, one that is killed, and an upgrade of the first.
fn sessions_outlive_other_nodes(fleet: &mut Fleet, sightline: &Path) {
    let count = if setting("SIGHTLINE_TEST_LONG").is_some() { 20 } else { 9 };
    let file = clip::scenes("A", 2);
    let address = fleet.proxy.address().to_string();
    let publish = || Publication::start_at(sightline, &address, &file, &json!({}), &["--loop"]);
    let mut sessions: BTreeMap<usize, Vec<Publication>> = BTreeMap::new();
    for _ in 0..count {
        let session = publish();
        sessions.entry(node(&session.run)).or_default().push(session);
    }
    let of = |at: usize| -> Vec<&str> { sessions[&at].iter().map(|it| it.run.as_str()).collect() };
    let spread: Vec<usize> = sessions.values().map(Vec::len).collect();
    println!("{count} sessions on the nodes: {spread:?}");
    // What the first refuses for want of memory the others have.
    assert!(spread[0] == ROOM && spread[1].min(spread[2]) >= count / 4, "{spread:?}");
    let all: Vec<&str> = (0..3).flat_map(of).collect();
    for run in &all {
        wait_until("frames", || fleet.frames(run) > 5);
    }

    // The first is drained: nothing new, and what it has goes on.
    fleet.drain(0, true);
    fleet.takes_new([false, true, true]);
    fleet.all_live(&all);

    // The second is killed: its runs alone are not answered, and come back with its log.
    let lost = of(1);
    let told: Vec<Vec<Value>> = lost.iter().map(|run| fleet.servers[1].events(run)).collect();
    fleet.servers[1].kill();
    fleet.takes_new([false, false, true]);
    assert!([502, 503].contains(&fleet.front.get(&format!("/v1/runs/{}", lost[0])).status));
    fleet.all_live(&[of(0), of(2)].concat());
    fleet.servers[1] = fleet.setups[1].start();
    for (run, told) in lost.iter().zip(told) {
        wait_until("its run", || fleet.front.get(&format!("/v1/runs/{run}")).status == 200);
        let events = fleet.servers[1].events(run);
        assert_eq!(events[..told.len()], told[..], "{run}");
        assert_eq!(fleet.servers[1].payloads(run, "run_failed").len(), 1, "{run}");
    }
    fleet.takes_new([false, true, true]);

    // The first is started anew: its sessions end, and nobody else's.
    fleet.servers[0].terminate();
    fleet.servers[0].wait(Duration::from_secs(60));
    fleet.servers[0] = fleet.setups[0].start();
    for run in of(0) {
        let body = fleet.front.record(run);
        assert!(
            ["failed", "completed"].contains(&body["status"].as_str().unwrap_or_default()),
            "{body}"
        );
    }
    fleet.drain(0, false);
    fleet.takes_new([true, true, true]);
    fleet.all_live(&of(2));
    // A publisher ends its session where the offer's answer says that it is.
    let last = sessions.remove(&2).expect("there").remove(0);
    last.interrupt();
    let (run, _) = last.finish();
    fleet.servers[2].wait_for_event(&run, "run_completed");
}

fn behind(kind: Kind) {
    let Some(sightline) = sightline() else { return };
    let Some(mut fleet) = Fleet::start(kind) else { return };
    routed_by_path(&fleet);
    // nginx knows the load of nodes only by what they refuse.
    if kind == Kind::HaProxy {
        new_runs_go_where_little_is_done(&fleet, &sightline);
    }
    sessions_outlive_other_nodes(&mut fleet, &sightline);
}

#[test]
fn haproxy_leads_to_the_node_of_a_run_and_away_from_one_that_ends() {
    behind(Kind::HaProxy);
}

#[test]
fn nginx_leads_to_the_node_of_a_run_and_away_from_one_that_ends() {
    behind(Kind::Nginx);
}
