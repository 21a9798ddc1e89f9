//! The optional PostgreSQL database: a bounded pool, its schema, and what is kept in it.
//!
//! Promises that every use ends within a bounded time, whatever the database does, and that
//! the server starts and works without it. Nothing that only the database holds decides what
//! the API says of runs and events: the log does.

mod feedback;
mod fleet;
mod migrate;

mod target;

use std::{ops::Deref, sync::Arc, time::Duration};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use media::ErrorKind;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::error::SqlState;

use crate::base::backoff::{Backoff, jitter};

pub use feedback::{Feedback, FeedbackPage, NewFeedback};
pub use fleet::{FleetHit, FleetRun};

pub use target::DatabaseUrl;

/// Delays of the attempts to reach a database before it has its schema.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(250), factor: 2, longest: Duration::from_secs(10) };

/// Target of the database, and limits of its use.
#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    /// Address and credentials.
    pub target: DatabaseUrl,
    /// Most connections.
    pub connections: usize,
    /// Longest time that one use may take, from waiting for a connection to the answer.
    pub timeout: Duration,
}

/// Reason for which a use of the database failed.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Its schema is not there yet, for this reason.
    #[error("the database is not ready: {0}")]
    NotReady(Arc<str>),
    /// The server has only begun, and its schema is being looked at.
    #[error("the database is not ready: it was not asked yet")]
    NotAsked,
    /// No connection.
    #[error("no database connection: {}", pool(.0))]
    Pool(#[from] PoolError),
    /// The database refused, or the connection broke.
    #[error("the database failed: {}", told(.0))]
    Query(#[from] tokio_postgres::Error),
    /// The use took too long.
    #[error("the database did not answer within {0:?}")]
    Timeout(Duration),
    /// A migration that was applied is not the one that this server has.
    #[error(
        "migration {name} was changed after it was applied: restore its file, or start with an \
         empty database"
    )]
    ChangedMigration {
        /// The migration of this server.
        name: &'static str,
    },
    /// Another database answers than before.
    #[error("the database was replaced by another one")]
    Replaced,
    /// A newer server has been here.
    #[error("the database has migration {version} of a newer server: update this server")]
    Newer {
        /// The newest version applied.
        version: i32,
    },
    /// The database cannot hold every text.
    #[error("the database's encoding is {0}: make it with encoding UTF8")]
    Encoding(String),
}

impl DatabaseError {
    /// Always [`ErrorKind::Internal`]: the contract answers 500 whatever the database does.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Internal
    }

    /// Returns true where the data is at fault, and not the moment: the same rows fail again.
    pub(crate) fn is_about_rows(&self) -> bool {
        // Data, integrity, a program's limits, and what a trigger raises.
        const CLASSES: [&str; 4] = ["22", "23", "54", "P0"];
        let DatabaseError::Query(error) = self else { return false };
        let code = error.code().map(SqlState::code);
        code.is_some_and(|code| CLASSES.iter().any(|class| code.starts_with(class)))
    }

    /// Returns true where the tables are gone, as when an empty database replaced theirs.
    fn is_about_tables(&self) -> bool {
        let DatabaseError::Query(error) = self else { return false };
        let gone = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN];
        error.code().is_some_and(|code| gone.contains(code))
    }
}

/// The driver's own text says only "db error": the reason is in the source.
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

/// The database; clones share its connections.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    timeout: Duration,
    schema: Arc<Mutex<Schema>>,
    /// The tables are gone.
    lost: Arc<Notify>,
}

/// State of the tables.
enum Schema {
    Unknown,
    Missing(Arc<str>),
    Applied,
}

impl Database {
    /// A database that nothing has been asked of yet.
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

    /// Keeps the schema up to date: now, and whenever its tables turn out to be gone.
    pub async fn keep_prepared(&self) {
        loop {
            self.prepare().await;
            self.lost.notified().await;
        }
    }

    /// Brings the schema up to date, trying again for as long as it takes.
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
                    // Said once for each reason: an outage may be long.
                    if self.set_missing(&reason) {
                        tracing::error!(reason, "database not ready; retrying");
                    }
                }
            }
            tokio::time::sleep(RETRY.delay(failures, jitter())).await;
        }
    }

    /// True when the reason is another than before.
    fn set_missing(&self, reason: &str) -> bool {
        let mut schema = self.schema.lock();
        let is_known = matches!(&*schema, Schema::Missing(known) if **known == *reason);
        *schema = Schema::Missing(reason.into());
        !is_known
    }

    /// A connection to a database whose schema is there.
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

    /// Result of `work` within the time that a use may take.
    pub(crate) async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, DatabaseError>>,
    ) -> Result<T, DatabaseError> {
        let outcome = tokio::time::timeout(self.timeout, work).await;
        let outcome = outcome.unwrap_or(Err(DatabaseError::Timeout(self.timeout)));
        if let Err(error) = &outcome
            && error.is_about_tables()
        {
            self.set_missing("its tables are gone, and are made again");
            self.lost.notify_one();
        }
        outcome
    }
}

/// A connection that is closed unless it is given back: one with an answer outstanding, or
/// that saw an error, is of no use to anybody else.
pub(crate) struct Lease(Option<Object>);

impl Lease {
    pub(crate) fn give_back(mut self) {
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
