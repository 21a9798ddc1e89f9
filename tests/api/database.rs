//! The database by itself: its schema, and connections whose other end proves who it is.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use sightline::base::{
    database::{Database, DatabaseError, DatabaseSettings, DatabaseUrl, NewFeedback},
    keys::Principal,
};

use crate::support::{PATIENCE, postgres::Postgres};

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
