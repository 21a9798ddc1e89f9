//! Database schema: numbered SQL files, each applied once, all in one transaction.
//!
//! Servers that start together are serialized by an advisory lock. Applied migrations must not
//! change: a checksum that differs from the stored one is an error.

use std::time::Duration;

use deadpool_postgres::Transaction;
use sha2::{Digest, Sha256};

use super::{Database, DatabaseError};

/// Names and texts of the migrations; their versions count from 1.
const MIGRATIONS: [(&str, &str); 5] = [
    ("0001_feedback", include_str!("migrations/0001_feedback.sql")),
    ("0002_mirror", include_str!("migrations/0002_mirror.sql")),
    ("0003_skipped", include_str!("migrations/0003_skipped.sql")),
    ("0004_progress", include_str!("migrations/0004_progress.sql")),
    ("0005_log", include_str!("migrations/0005_log.sql")),
];

/// Key of the advisory lock: "sightlin" in ASCII.
const LOCK: i64 = 0x7369_6768_746c_696e;
/// Time limit of the whole migration, including the wait for another server.
const LIMIT: Duration = Duration::from_secs(60);

/// Applies missing migrations; returns their number.
pub(super) async fn migrate(database: &Database) -> Result<usize, DatabaseError> {
    let work = async {
        let mut lease = database.any_connection().await?;
        let transaction = lease.transaction().await?;
        let applied = apply(&transaction).await?;
        transaction.commit().await?;
        lease.give_back();
        Ok(applied)
    };
    tokio::time::timeout(LIMIT, work).await.unwrap_or(Err(DatabaseError::Timeout(LIMIT)))
}

async fn apply(transaction: &Transaction<'_>) -> Result<usize, DatabaseError> {
    let ms = LIMIT.as_millis();
    let limits = format!("SET LOCAL statement_timeout = {ms}; SET LOCAL lock_timeout = {ms}");
    transaction.batch_execute(&limits).await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let encoding: String = transaction.query_one("SHOW server_encoding", &[]).await?.get(0);
    if encoding != "UTF8" {
        return Err(DatabaseError::Encoding(encoding));
    }
    // Under the lock, because two servers that both find no table would both create it.
    transaction
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS sightline_migrations (
                 version integer PRIMARY KEY,
                 name text NOT NULL,
                 sha256 text NOT NULL,
                 applied_at timestamptz NOT NULL DEFAULT now()
             )",
        )
        .await?;
    let known = "SELECT version, sha256 FROM sightline_migrations ORDER BY version";
    let known: Vec<(i32, String)> =
        transaction.query(known, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
    let newest = MIGRATIONS.len() as i32;
    if let Some((version, _)) = known.iter().find(|(version, _)| *version > newest) {
        return Err(DatabaseError::Newer { version: *version });
    }
    let mut applied = 0;
    for (version, (name, sql)) in (1_i32..).zip(MIGRATIONS) {
        let sha256 = crate::base::hex(&Sha256::digest(sql));
        match known.iter().find(|(known, _)| *known == version) {
            Some((_, known)) if *known == sha256 => continue,
            Some(_) => return Err(DatabaseError::ChangedMigration { name }),
            None => {}
        }
        transaction.batch_execute(sql).await?;
        let note = "INSERT INTO sightline_migrations (version, name, sha256) VALUES ($1, $2, $3)";
        transaction.execute(note, &[&version, &name, &sha256]).await?;
        applied += 1;
    }
    Ok(applied)
}
