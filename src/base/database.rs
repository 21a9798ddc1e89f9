//! The optional PostgreSQL database: a bounded connection pool, its schema and its tables.
//!
//! Every use ends within a bounded time, and the server starts and works without the database.
//! The API's answers about runs and events depend on the log alone, never on data that only the
//! database holds.

mod feedback;
mod fleet;
mod migrate;
mod target;

use std::{ops::Deref, sync::Arc, time::Duration};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::error::SqlState;

use crate::base::backoff::{Backoff, jitter};

pub(crate) use feedback::FeedbackPage;
pub use feedback::NewFeedback;
pub use target::DatabaseUrl;

/// Delays between attempts to reach the database and apply its schema.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(250), factor: 2, longest: Duration::from_secs(10) };

/// Address of the database, and limits of its use.
#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    /// Address and credentials.
    pub target: DatabaseUrl,
    /// Maximum number of connections.
    pub connections: usize,
    /// Time limit of one use, from the wait for a connection to the result.
    pub timeout: Duration,
}

/// Error of a use of the database.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DatabaseError {
    #[error("the database is not ready: {0}")]
    NotReady(Arc<str>),
    /// The first attempt to apply the schema, after the start, has not ended.
    #[error("the database is not ready: it was not asked yet")]
    NotAsked,
    #[error("no database connection: {}", pool(.0))]
    Pool(#[from] PoolError),
    #[error("the database failed: {}", told(.0))]
    Query(#[from] tokio_postgres::Error),
    #[error("the database did not answer within {0:?}")]
    Timeout(Duration),
    #[error(
        "migration {name} was changed after it was applied: restore its file, or start with an \
         empty database"
    )]
    ChangedMigration { name: &'static str },
    #[error("the database was replaced by another one")]
    Replaced,
    #[error("the database has migration {version} of a newer server: update this server")]
    Newer { version: i32 },
    #[error("the database's encoding is {0}: make it with encoding UTF8")]
    Encoding(String),
}

impl DatabaseError {
    /// Returns true if the rows are at fault, so that a retry with the same rows fails again.
    pub(crate) fn is_about_rows(&self) -> bool {
        // SQLSTATE classes: data, integrity constraint, program limit, exception raised by a trigger.
        const CLASSES: [&str; 4] = ["22", "23", "54", "P0"];
        let DatabaseError::Query(error) = self else { return false };
        let code = error.code().map(SqlState::code);
        code.is_some_and(|code| CLASSES.iter().any(|class| code.starts_with(class)))
    }

    /// Returns true if a table or column is missing, as after the database was replaced by an empty one.
    fn is_about_tables(&self) -> bool {
        let DatabaseError::Query(error) = self else { return false };
        let gone = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN];
        error.code().is_some_and(|code| gone.contains(code))
    }
}

/// Returns the error's text with its cause, because the driver's own text is only "db error".
fn told(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error);
    match (error.as_db_error(), source) {
        (Some(told), _) => format!("{} ({})", told.message(), told.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

fn pool(error: &PoolError) -> String {
    match error {
        PoolError::Backend(error) => told(error),
        PoolError::Timeout(_) => "all are in use, or a new one takes too long".to_owned(),
        error => error.to_string(),
    }
}

/// Handle of the database; clones share the pool.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    timeout: Duration,
    schema: Arc<Mutex<Schema>>,
    /// Notified when a table was found missing.
    lost: Arc<Notify>,
}

/// State of the schema.
enum Schema {
    Unknown,
    Missing(Arc<str>),
    Applied,
}

impl Database {
    /// Creates the pool without connecting.
    pub fn new(settings: &DatabaseSettings) -> Database {
        let recycling_method = RecyclingMethod::Fast;
        let (config, tls) = settings.target.connect(settings.timeout);
        let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method });
        let pool = Pool::builder(manager)
            .max_size(settings.connections)
            .wait_timeout(Some(settings.timeout))
            .create_timeout(Some(settings.timeout))
            .recycle_timeout(Some(settings.timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .expect("timeouts have their runtime");
        let schema = Arc::new(Mutex::new(Schema::Unknown));
        Database { pool, timeout: settings.timeout, schema, lost: Arc::default() }
    }

    /// Applies the schema at the start, and again whenever a table is found missing.
    pub async fn keep_prepared(&self) {
        loop {
            self.prepare().await;
            self.lost.notified().await;
        }
    }

    /// Applies the schema; retries until that succeeds.
    pub async fn prepare(&self) {
        let mut failures = 0_u32;
        loop {
            match migrate::migrate(self).await {
                Ok(applied) => {
                    *self.schema.lock() = Schema::Applied;
                    tracing::info!(applied, "the database is ready");
                    return;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let reason = error.to_string();
                    // Logged once for each reason, because an outage may be long.
                    if self.set_missing(&reason) {
                        tracing::error!(reason, "database not ready; retrying");
                    }
                }
            }
            tokio::time::sleep(RETRY.delay(failures, jitter())).await;
        }
    }

    /// Marks the schema as missing. Returns true if the reason differs from the one before.
    fn set_missing(&self, reason: &str) -> bool {
        let mut schema = self.schema.lock();
        let is_known = matches!(&*schema, Schema::Missing(known) if **known == *reason);
        *schema = Schema::Missing(reason.into());
        !is_known
    }

    /// Returns a connection, or an error if the schema is not applied.
    pub(crate) async fn connection(&self) -> Result<Lease, DatabaseError> {
        match &*self.schema.lock() {
            Schema::Unknown => return Err(DatabaseError::NotAsked),
            Schema::Missing(reason) => return Err(DatabaseError::NotReady(Arc::clone(reason))),
            Schema::Applied => {}
        }
        self.any_connection().await
    }

    async fn any_connection(&self) -> Result<Lease, DatabaseError> {
        Ok(Lease(Some(self.pool.get().await?)))
    }

    /// Runs `work` with the time limit of one use, and gives its connection back.
    pub(crate) async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<(Lease, T), DatabaseError>>,
    ) -> Result<T, DatabaseError> {
        let outcome = tokio::time::timeout(self.timeout, work).await;
        let outcome = outcome.unwrap_or(Err(DatabaseError::Timeout(self.timeout)));
        if let Err(error) = &outcome
            && error.is_about_tables()
        {
            self.set_missing("its tables are gone, and are made again");
            self.lost.notify_one();
        }
        outcome.map(|(lease, found)| {
            lease.give_back();
            found
        })
    }
}

/// A pooled connection, closed on drop unless it is given back: one with a result outstanding, or
/// after an error, must not be reused.
pub(crate) struct Lease(Option<Object>);

impl Lease {
    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Lease {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.as_ref().expect("held until given back")
    }
}

impl std::ops::DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Object {
        self.0.as_mut().expect("held until given back")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
