//! The mirror in a real PostgreSQL: what it copies, and every way in which it is interrupted.
//!
//! Long because each way has a test of its own.

use std::{path::Path, sync::Arc, time::Duration};

use media::{RunId, Score, SessionId};
use serde_json::Value;
use sightline::{
    base::{
        database::{Database, DatabaseSettings, DatabaseUrl},
        meta_store::MetaStore,
        metrics::Metrics,
    },
    deliver::mirror::{EventMirror, Scope},
};
use timeline::{Event, FindingKind, FindingPayload, KeyframeStored, NewEvent, Timeline};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::{
    Server, Setup, copy,
    postgres::{Postgres, Proxy, Weather, url},
    seed, wait_until,
};

const RUN: RunId = RunId::from_bytes([7; 16]);

fn found(kind: FindingKind, session_id: Option<SessionId>, description: &str) -> NewEvent {
    let finding = FindingPayload {
        session_id,
        frame_index: 3,
        pts_ms: 100,
        confidence: Score::from_millionths(900_000),
        description: description.to_owned(),
        ..FindingPayload::default()
    };
    NewEvent { run: RUN, event: Event::Found(kind, finding) }
}

fn described(description: &str) -> NewEvent {
    NewEvent { run: RUN, event: seed::described(description) }
}

fn created() -> NewEvent {
    NewEvent { run: RUN, event: seed::session_created("alice") }
}

/// Appends to the log of a server that does not run.
fn seed(dir: &Path, events: Vec<NewEvent>) {
    let log = seed::log(dir);
    for batch in events.chunks(1000) {
        log.append_wait(batch.to_vec()).expect("appended");
    }
}

fn many(count: usize) -> Vec<NewEvent> {
    let text = "A delivery van is parked in front of the gate; two people carry a box. ".repeat(3);
    std::iter::once(created())
        .chain((0..count).map(|number| described(&format!("{number}: {text}"))))
        .collect()
}

fn start(dir: &Path, url: &str) -> Server {
    Setup::new(dir).var("SERVICE_DB_URL", url).var("SERVICE_DB_TIMEOUT_MS", "1000").start()
}

const IS_THERE: &str = "SELECT to_regclass('sightline_events') IS NOT NULL";
const COUNT: &str = "SELECT count(*) FROM sightline_events";
/// Every seq from the second on, none twice.
const WHOLE: &str =
    "SELECT count(*), count(DISTINCT seq), min(seq), max(seq) FROM sightline_events";

/// Waits until the tables are there, and so many rows.
fn wait_for_rows(postgres: &Postgres, count: usize) {
    postgres.wait_for(IS_THERE, "t");
    postgres.wait_for(COUNT, &count.to_string());
}

fn whole(count: usize) -> String {
    format!("{count}|{count}|2|{}", count + 1)
}

#[test]
fn descriptions_of_live_sessions_wait_for_a_database_and_are_copied_as_they_are_and_nothing_else() {
    use FindingKind::{ClipVlm, ClipVlmTiered, LoopDetected, StateTransition, Vlm, VlmTiered};
    let dir = tempfile::tempdir().expect("a directory");
    let still = KeyframeStored { description: "a still".to_owned(), ..seed::still(1) };
    let session = Some(seed::SESSION);
    let mut events = many(600);
    events.extend([
        found(Vlm, session, "a \u{0} and a \u{1f600} \"quoted\" \\ line\n"),
        found(StateTransition, session, "not copied"),
        found(VlmTiered, session, "second pass"),
        NewEvent { run: RUN, event: Event::KeyframeStored(still) },
        found(ClipVlm, session, ""),
        found(LoopDetected, session, "not copied"),
        found(Vlm, None, "of a file: not copied"),
        found(ClipVlmTiered, session, "a clip"),
    ]);
    seed(dir.path(), events);
    let mut postgres = Postgres::stopped();
    let server = start(dir.path(), &postgres.url());
    assert_eq!(server.get(&format!("/v1/runs/{RUN}")).status, 200);
    assert_eq!(server.post("/v1/runs", &serde_json::json!({})).status, 200, "nothing waits for it");
    let behind = || server.metric("service_mirror_behind_events");
    wait_until("the gauge follows", || behind() > 600.0);
    postgres.run();
    wait_for_rows(&postgres, 604);
    wait_until("the gauge follows", || behind() == 0.0);
    let rows = postgres.sql(
        "SELECT json_build_object('seq', seq, 'run_id', run_id, 'kind', kind, 'pts_ms', pts_ms, \
         'payload', payload) FROM sightline_events ORDER BY seq",
    );
    let rows: Vec<Value> =
        rows.lines().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    let copied = ["vlm", "vlm_tiered", "clip_vlm", "clip_vlm_tiered"];
    let mut expected = server.events(&RUN.to_string());
    expected.retain(|event| {
        copied.contains(&event["kind"].as_str().expect("a kind"))
            && event["payload"]["session_id"].is_string()
    });
    assert_eq!(rows, expected);
    let nodes = postgres.sql("SELECT DISTINCT node_id FROM sightline_events");
    assert!(nodes.starts_with("node-") && nodes.len() == 37, "{nodes}");
}

#[test]
fn a_server_killed_between_the_insert_and_its_cursor_copies_nothing_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    seed(dir.path(), many(300));
    let postgres = Postgres::start();
    let proxy = Proxy::start(postgres.port());
    let mut server = start(dir.path(), &postgres.url());
    wait_for_rows(&postgres, 300);
    server.kill();
    seed(dir.path(), many(200));
    // Another server's events under the same seqs, and inserts that wait for the test.
    postgres.sql(
        "INSERT INTO sightline_events (node_id, seq, run_id, kind, pts_ms, payload) \
         SELECT 'node-other', seq, run_id, kind, pts_ms, '{\"theirs\":1}' FROM sightline_events; \
         CREATE TABLE held (); INSERT INTO held DEFAULT VALUES; \
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             WHILE EXISTS (SELECT FROM held) LOOP PERFORM pg_sleep(0.02); END LOOP; \
             RETURN NULL; END $$; \
         CREATE TRIGGER wait BEFORE INSERT ON sightline_events \
             FOR EACH STATEMENT EXECUTE FUNCTION wait()",
    );
    let mut server = Setup::new(dir.path())
        .var("SERVICE_DB_URL", &url(proxy.port()))
        .var("SERVICE_DB_TIMEOUT_MS", "60000")
        .start();
    let inserting = "SELECT count(*) FROM pg_stat_activity \
                     WHERE state = 'active' AND query LIKE '%INSERT INTO sightline_events %' \
                     AND pid <> pg_backend_pid()";
    postgres.wait_for(inserting, "1");
    // The insert is committed, and the server never learns of it.
    proxy.set(Weather::Mute);
    postgres.sql("DELETE FROM held");
    let ours = "SELECT count(*), count(DISTINCT seq), max(seq) FROM sightline_events \
                WHERE node_id <> 'node-other'";
    // A busy machine may have made the batch smaller than all.
    let is_more = "SELECT count(*) > 300 FROM sightline_events WHERE node_id <> 'node-other'";
    postgres.wait_for(is_more, "t");
    server.kill();
    seed(dir.path(), vec![described("the last")]);
    let server = start(dir.path(), &postgres.url());
    // Between them a start told that the session of their run was cut off.
    postgres.wait_for(ours, "501|501|504");
    let theirs = "SELECT count(*), count(DISTINCT payload::text) FROM sightline_events \
                  WHERE node_id = 'node-other'";
    assert_eq!(postgres.sql(theirs), "300|1");
    drop(server);
}

#[test]
fn a_slow_and_then_full_database_is_filled_in_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let postgres = Postgres::start();
    // The tables are made by a server with a log of its own.
    let other = start(&dir.path().join("other"), &postgres.url());
    postgres.wait_for(IS_THERE, "t");
    drop(other);
    // A whole batch takes longer than a statement may: less of it does not.
    postgres.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM pg_sleep(0.004); RETURN NEW; END $$; \
         CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER slow BEFORE INSERT ON sightline_events \
             FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    seed(dir.path(), many(600));
    let server = start(dir.path(), &postgres.url());
    postgres.wait_for("SELECT count(*) > 100 FROM sightline_events", "t");
    postgres.sql(
        "CREATE TRIGGER full_disk BEFORE INSERT ON sightline_events \
             FOR EACH ROW EXECUTE FUNCTION full_disk()",
    );
    let reply = server.get(&format!("/v1/runs/{RUN}/events?limit=1"));
    assert_eq!(reply.status, 200, "reading needs no database");
    let failures = || server.metric("service_mirror_failures_total");
    let before = failures();
    wait_until("the full disk is met", || failures() >= before + 2.0);
    postgres
        .sql("DROP TRIGGER full_disk ON sightline_events; DROP TRIGGER slow ON sightline_events");
    postgres.wait_for(COUNT, "600");
    assert_eq!(postgres.sql(WHOLE), whole(600));
}

#[test]
fn a_log_that_was_put_back_is_copied_once_what_it_lost_is_gone_from_the_database() {
    let postgres = Postgres::start();
    for (scope, table) in [("descriptions", "sightline_events"), ("all", "sightline_log")] {
        let dir = tempfile::tempdir().expect("a directory");
        let [data, backup] = ["data", "backup"].map(|name| dir.path().join(name));
        let start = || {
            let setup = Setup::new(dir.path()).var("SERVICE_DB_URL", &postgres.url());
            setup.var("SERVICE_DB_MIRROR", scope).start()
        };
        let count = |text: &str| {
            format!("SELECT count(*) FROM {table} WHERE payload::text LIKE '%{text}%'")
        };
        seed(dir.path(), vec![created(), described("kept")]);
        let server = start();
        postgres.wait_for(&format!("SELECT to_regclass('{table}') IS NOT NULL"), "t");
        postgres.wait_for(&count("kept"), "1");
        drop(server);
        copy(&data, &backup);
        seed(dir.path(), (0..5).map(|_| described("lost")).collect());
        let server = start();
        postgres.wait_for(&count("lost"), "5");
        drop(server);
        // Behind what the database has, and past it before the database is asked.
        for new in [2, 9] {
            std::fs::remove_dir_all(&data).expect("lost");
            copy(&backup, &data);
            seed(dir.path(), (0..new).map(|_| described("new")).collect());
            let server = start();
            let failures = || server.metric("service_mirror_failures_total");
            wait_until("it is told", || failures() > 1.0);
            assert_eq!(postgres.sql(&count("new")), "0", "{scope}");
        }
        let node = postgres.sql(&format!("SELECT DISTINCT node_id FROM {table}"));
        let first = format!("SELECT min(seq) FROM {table} WHERE payload::text LIKE '%lost%'");
        let from = postgres.sql(&first);
        let runbook = include_str!("../../docs/operate/runbooks.md");
        let mut all = runbook.split('`').filter(|text| text.starts_with("DELETE FROM"));
        let own = all.find(|text| text.contains(table)).expect("in the runbook");
        postgres
            .sql(&own.replace("NODE", node.trim()).replace("= N", &format!("= {}", from.trim())));
        let server = start();
        postgres.wait_for(&count("new"), "9");
        assert_eq!(postgres.sql(&count("kept")), "1", "{scope}");
        assert_eq!(postgres.sql(&count("lost")), "0", "{scope}");
        drop(server);
    }
}

/// A mirror with a log that the test appends to.
pub struct Own {
    pub log: Timeline,
    pub metrics: Arc<Metrics>,
    _stop: DropGuard,
    _dir: tempfile::TempDir,
}

impl Own {
    pub fn start(scope: Scope, url: &str) -> Own {
        let dir = tempfile::tempdir().expect("a directory");
        let log = seed::log(dir.path());
        let ledger = MetaStore::open(&dir.path().join("ledger")).expect("opens");
        let target = DatabaseUrl::parse(url).expect("a target");
        let timeout = Duration::from_secs(5);
        let database = Database::new(&DatabaseSettings { target, connections: 2, timeout });
        let metrics = Arc::new(Metrics::new());
        let (copied, counted) = (log.clone(), Arc::clone(&metrics));
        let mirror =
            EventMirror::new(scope, database.clone(), copied, ledger, counted).expect("one");
        let stop = CancellationToken::new();
        mirror.start(stop.clone());
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(database.keep_prepared()).await });
        Own { log, metrics, _stop: stop.drop_guard(), _dir: dir }
    }

    fn append(&self, descriptions: &[&str]) {
        let events = descriptions.iter().map(|text| described(text)).collect();
        self.log.append_wait(events).expect("appended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_may_hang_be_restored_refuse_an_event_or_be_replaced_while_the_server_runs() {
    let postgres = Postgres::start();
    hanging(&postgres).await;
    for check in [restored, refusing, replaced] {
        postgres.sql("DELETE FROM sightline_events");
        let own = Own::start(Scope::Descriptions, &postgres.url());
        postgres.wait_for("SELECT to_regclass('sightline_skipped') IS NOT NULL", "t");
        check(&postgres, &own);
    }
}

/// One that is replaced is filled from the start.
fn replaced(postgres: &Postgres, own: &Own) {
    own.append(&["a", "b"]);
    let is_there = "SELECT to_regclass('sightline_skipped') IS NOT NULL";
    let all = "SELECT count(*), min(seq), max(seq) FROM sightline_events";
    postgres.wait_for(all, "2|1|2");
    // An empty one in its place.
    postgres.sql(
        "DROP TABLE sightline_events, sightline_feedback, sightline_migrations, \
         sightline_database, sightline_skipped, sightline_progress, sightline_log, \
         sightline_log_progress, sightline_runs",
    );
    own.append(&["c"]);
    postgres.wait_for(is_there, "t");
    postgres.wait_for(all, "3|1|3");
    // One that another server has used.
    postgres.sql("DELETE FROM sightline_events; UPDATE sightline_database SET id = 'other'");
    own.append(&["d"]);
    postgres.wait_for(all, "4|1|4");
}

/// Rows that a restore takes back are copied again.
fn restored(postgres: &Postgres, own: &Own) {
    for (text, count) in [("one", "3"), ("two", "6")] {
        own.append(&[text; 3]);
        postgres.wait_for(COUNT, count);
    }
    postgres
        .sql("DELETE FROM sightline_events WHERE seq > 2; UPDATE sightline_progress SET seq = 2");
    own.append(&["three"]);
    postgres.wait_for(COUNT, "7");
    // What somebody deletes there stays deleted.
    postgres.sql("DELETE FROM sightline_events");
    own.append(&["four"]);
    postgres.wait_for(COUNT, "1");
    assert_eq!(postgres.sql("SELECT max(seq) FROM sightline_events"), "8");
}

/// An event that the database never takes is listed and passed.
fn refusing(postgres: &Postgres, own: &Own) {
    postgres.sql(
        "ALTER TABLE sightline_events ADD CONSTRAINT edible \
         CHECK (payload::text NOT LIKE '%poison%')",
    );
    own.append(&["a", "b", "poison", "c", "poison too", "d"]);
    postgres.wait_for(
        "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM sightline_events",
        "1 2 4 6",
    );
    let skipped = postgres.sql("SELECT seq, kind, reason FROM sightline_skipped ORDER BY seq");
    let rows: Vec<&str> = skipped.lines().collect();
    assert!(rows[0].starts_with("3|vlm|") && rows[0].contains("edible"), "{skipped}");
    assert!(rows[1].starts_with("5|vlm|") && rows.len() == 2, "{skipped}");
    assert_eq!(own.metrics.mirror_skipped.get(), 2);
    own.append(&["e"]);
    postgres.wait_for(COUNT, "5");
}

/// One that hangs delays no append and gets all of them later.
async fn hanging(postgres: &Postgres) {
    let proxy = Proxy::start(postgres.port());
    let own = Own::start(Scope::Descriptions, &url(proxy.port()));
    postgres.wait_for(IS_THERE, "t");
    let count = 500;
    for weather in [Weather::Fair, Weather::Hanging] {
        proxy.set(weather);
        let log = own.log.clone();
        let append =
            move || (0..count).try_for_each(|_| log.append_wait(vec![described("live")]).map(drop));
        // A hang would be for as long as the weather stays.
        let appended = tokio::task::spawn_blocking(append);
        let appended = tokio::time::timeout(Duration::from_secs(60), appended).await;
        appended.expect("appends go on").expect("no panic").expect("appended");
    }
    let read = own.log.read(RUN, media::Seq(1), 10_000, None).expect("read");
    assert_eq!(read.len(), 2 * count);
    proxy.set(Weather::Fair);
    let all = format!("{0}|{0}|1|{0}", 2 * count);
    postgres.wait_for(WHOLE, &all);
}
