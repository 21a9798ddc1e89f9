//! Feedback in a real PostgreSQL: the routes, a database that is down, slow, full or gone, its schema, and connections whose other
//! end proves who it is.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::json;
use sightline::base::{
    database::{Database, DatabaseError, DatabaseSettings, DatabaseUrl, NewFeedback},
    keys::Principal,
};

use super::bodies::ODD;
use crate::support::{
    BOB, PATIENCE, Reply, Server, Setup, assert_has,
    postgres::{Postgres, Proxy, Weather, assert_kept_secret, url},
    shared, wait_until,
};

fn setup(url: &str) -> Setup {
    Setup::temporary().var("SERVICE_DB_URL", url)
}

fn submit(server: &Server, run: &str) -> Reply {
    let body = json!({ "rating": 7, "category": ODD, "feedback": ODD });
    server.post_run(run, "feedback", &body)
}

/// Submits until it is taken, however often it fails.
fn submit_in_the_end(server: &Server, run: &str) {
    wait_until("it is taken", || {
        let reply = submit(server, run);
        if reply.status != 200 {
            assert_clean_failure(&reply);
        }
        reply.status == 200
    });
}

/// A 500 of the contract that tells nothing of the database.
fn assert_clean_failure(reply: &Reply) {
    let error = json!({
        "code": "internal_error", "message": "the database does not answer now",
        "request_id": reply.header("x-request-id"), "details": [],
    });
    assert_eq!((reply.status, reply.json()), (500, json!({ "error": error })));
}

fn ids(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let json = reply.json();
    let listed = json["feedback"].as_array().expect("an array");
    listed.iter().map(|one| one["feedback_id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn without_a_database_the_routes_say_so() {
    let server = shared();
    let run = server.create_run();
    for reply in [submit(&server, &run), server.get("/v1/feedback")] {
        assert_eq!((reply.status, reply.code().as_str()), (500, "internal_error"));
        let message = reply.json()["error"]["message"].as_str().expect("a text").to_owned();
        assert!(message.contains("the database client is not configured"), "{message}");
    }
}

#[test]
fn feedback_is_kept_once_the_database_has_come_and_again_once_it_is_back() {
    let mut postgres = Postgres::stopped();
    let setup = setup(&postgres.url());
    let server = setup.start();
    let run = server.create_run();
    assert_clean_failure(&submit(&server, &run));
    assert_clean_failure(&server.get("/v1/feedback"));
    postgres.run();
    submit_in_the_end(&server, &run);
    let other = server.create_run();
    feedback_is_kept_paged_and_only_its_owners(&server, &run, &other);
    assert_eq!(postgres.sql("SELECT count(*) FROM sightline_feedback"), "6");

    postgres.kill();
    // Its processes outlive it for a moment, and may take one more.
    let (mut kept, mut reply) = (1, submit(&server, &other));
    while reply.status == 200 && kept < 100 {
        (kept, reply) = (kept + 1, submit(&server, &other));
    }
    assert_clean_failure(&reply);
    assert_eq!(server.get(&format!("/v1/runs/{other}")).status, 200, "runs need no database");
    postgres.run();
    submit_in_the_end(&server, &other);
    assert_eq!(ids(&server.get("/v1/feedback")).len(), kept + 1);
    assert_kept_secret(setup.dir());
}

/// One of `run` is kept before, and one of `other` alone afterwards.
fn feedback_is_kept_paged_and_only_its_owners(server: &Server, run: &str, other: &str) {
    // The tables take what the document bounds.
    let most = json!({ "rating": 10, "category": "c".repeat(128), "feedback": "f".repeat(8192) });
    let least = json!({ "rating": 0, "category": "é", "feedback": null, "more": 1 });
    for body in [&most, &least, &most, &least] {
        server.post_run(run, "feedback", body).assert_ok();
    }
    let kept = submit(server, other).json();
    assert_has(&kept, &json!({ "run_id": other, "status": "submitted" }));
    let id = kept["feedback_id"].as_str().expect("an id").to_owned();
    assert!(id.len() == 35 && id.starts_with("fb-"), "{id}");
    assert!(kept["request_id"].as_str().is_some_and(|id| id.starts_with("req-")));

    let all = server.get("/v1/feedback");
    let newest = all.json()["feedback"][0].take();
    let expected = json!({ "feedback_id": id, "rating": 7, "category": ODD, "feedback": ODD });
    assert_has(&newest, &expected);
    assert!(newest["created_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{newest}");
    assert_eq!((ids(&all).len(), all.header("link")), (6, ""));

    let pages = server.pages("/v1/feedback?limit=2", || ());
    let pages: Vec<Vec<String>> = pages.iter().map(ids).collect();
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(pages.concat(), ids(&all));
    assert!(ids(&server.call("GET", "/v1/feedback").key(Some(BOB)).send()).is_empty());

    server.call("DELETE", &format!("/v1/runs/{run}")).send().assert_ok();
    assert_eq!(ids(&server.get("/v1/feedback")), [id]);
    assert_eq!(submit(server, run).status, 404);
}

#[test]
fn a_database_that_fails_in_any_way_fails_a_request_in_bounded_time_and_is_used_again() {
    let postgres = Postgres::start();
    let proxy = Proxy::start(postgres.port());
    let server = setup(&url(proxy.port())).var("SERVICE_DB_TIMEOUT_MS", "3000").start();
    let run = server.create_run();
    submit_in_the_end(&server, &run);
    one_that_others_wrote_to_is_full_or_changed(&postgres, &server, &run);
    proxy.set(Weather::Slow);
    submit_in_the_end(&server, &run);
    for weather in [Weather::Hanging, Weather::Cut] {
        proxy.set(weather);
        // More than there are connections, so that some wait for one.
        std::thread::scope(|scope| {
            let requests: Vec<_> = (0..12).map(|_| scope.spawn(|| submit(&server, &run))).collect();
            assert_eq!(server.get(&format!("/v1/runs/{run}/state")).status, 200);
            let started = Instant::now();
            requests.into_iter().for_each(|request| {
                assert_clean_failure(&request.join().expect("no panic"));
            });
            assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        });
        proxy.set(Weather::Fair);
        submit_in_the_end(&server, &run);
    }
}

fn one_that_others_wrote_to_is_full_or_changed(postgres: &Postgres, server: &Server, run: &str) {
    postgres.sql(
        "INSERT INTO sightline_feedback (feedback_id, run_id, principal, rating, category) \
         SELECT 'fb-' || n, 'run-gone', 'alice', 1, 'c' FROM generate_series(1, 1000) n",
    );
    let pages = server.pages("/v1/feedback?limit=1", || ());
    let found = (pages.iter().flat_map(ids).count(), pages.len());
    assert_eq!(found, (1, 2), "a page whose rows are all of deleted runs is not the last");
    postgres.sql("DELETE FROM sightline_feedback WHERE run_id = 'run-gone'");

    postgres.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'could not extend file \"base/5/16384\"' USING ERRCODE = '53100'; \
         END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON sightline_feedback \
             FOR EACH ROW EXECUTE FUNCTION full_disk()",
    );
    for _ in 0..20 {
        assert_clean_failure(&submit(server, run));
    }
    assert_eq!(ids(&server.get("/v1/feedback")).len(), 1, "reading goes on");
    postgres.sql("DROP TRIGGER full_disk ON sightline_feedback");
    submit_in_the_end(server, run);

    postgres.sql("ALTER TABLE sightline_feedback ALTER COLUMN rating TYPE text");
    for _ in 0..3 {
        assert_clean_failure(&server.get("/v1/feedback"));
    }
    postgres.sql(
        "ALTER TABLE sightline_feedback ALTER COLUMN rating TYPE smallint USING rating::smallint",
    );
    assert_eq!(ids(&server.get("/v1/feedback")).len(), 2);
}

fn library(postgres: &Postgres, query: &str) -> Database {
    let target = DatabaseUrl::parse(&format!("{}?{query}", postgres.url())).expect("a target");
    let timeout = Duration::from_secs(5);
    Database::new(&DatabaseSettings { target, connections: 2, timeout })
}

fn anything() -> NewFeedback {
    NewFeedback {
        id: "fb-00000000000000000000000000000000".parse().expect("an id"),
        run: "run-00000000000000000000000000000000".parse().expect("an id"),
        principal: Principal::named("alice"),
        rating: 1,
        category: "c".to_owned(),
        feedback: None,
    }
}

/// Reason that the database does not become ready.
async fn refusal(database: &Database, expected: &str) {
    let preparing = tokio::spawn({
        let database = database.clone();
        async move { database.prepare().await }
    });
    let started = Instant::now();
    loop {
        match database.submit(&anything()).await {
            Err(DatabaseError::NotReady(reason)) if reason.contains(expected) => break,
            other => assert!(started.elapsed() < PATIENCE, "{other:?}, expected {expected}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    preparing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_are_applied_once_by_servers_that_start_at_once_and_never_change() {
    let postgres = Postgres::start();
    let starts: Vec<_> = (0..6)
        .map(|_| {
            let database = library(&postgres, "");
            tokio::spawn(async move { database.prepare().await })
        })
        .collect();
    for start in starts {
        tokio::time::timeout(PATIENCE, start).await.expect("ready in time").expect("no panic");
    }
    let applied = postgres.sql("SELECT version || name FROM sightline_migrations ORDER BY version");
    let applied: BTreeSet<&str> = applied.lines().collect();
    let all = ["10001_feedback", "20002_mirror", "30003_skipped", "40004_progress", "50005_log"];
    assert_eq!(applied, BTreeSet::from(all));

    postgres.sql("INSERT INTO sightline_migrations VALUES (99, '0099_future', 'x')");
    refusal(&library(&postgres, ""), "has migration 99 of a newer server").await;
    postgres.sql("DELETE FROM sightline_migrations WHERE version = 99");
    postgres.sql("UPDATE sightline_migrations SET sha256 = 'x' WHERE version = 1");
    refusal(&library(&postgres, ""), "migration 0001_feedback was changed after it was").await;
    refusal(&library(&postgres, "sslmode=require"), "server does not support TLS").await;
    postgres.sql("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0");
    let latin =
        DatabaseUrl::parse(&postgres.url().replace("/postgres", "/latin")).expect("a target");
    let settings =
        DatabaseSettings { target: latin, connections: 1, timeout: Duration::from_secs(5) };
    refusal(&Database::new(&settings), "encoding is LATIN1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_checked_where_that_is_asked_for() {
    let postgres = Postgres::start_with_tls();
    let dir = tempfile::tempdir().expect("a directory");
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("one");
    let stranger = dir.path().join("stranger.pem");
    std::fs::write(&stranger, other.cert.pem()).expect("written");
    let trusted = postgres.certificate();
    let verified =
        |path: &std::path::Path| format!("sslmode=verify-full&sslrootcert={}", path.display());
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'sightline'";
    for query in ["sslmode=require".to_owned(), verified(&trusted)] {
        let database = library(&postgres, &query);
        let ready = tokio::time::timeout(PATIENCE, database.prepare()).await;
        ready.unwrap_or_else(|_| panic!("{query}: not ready"));
        assert_eq!(postgres.sql(encrypted), "t", "{query}");
    }
    refusal(&library(&postgres, &verified(&stranger)), "certificate").await;
}
