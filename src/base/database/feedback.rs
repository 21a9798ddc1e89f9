//! Feedback of callers on runs. Does not know which runs still exist: callers ask for that.

use media::{FeedbackId, RunId, WallTime};
use tokio_postgres::{Row, types::ToSql};

use super::{Database, DatabaseError};
use crate::base::keys::Principal;

/// Feedback to keep.
#[derive(Clone, Debug)]
pub struct NewFeedback {
    /// Its id.
    pub id: FeedbackId,
    /// The run it is about.
    pub run: RunId,
    /// Caller that gives it.
    pub principal: Principal,
    /// Rating from 0 to 10.
    pub rating: u8,
    /// Subject of the feedback, in the caller's own word.
    pub category: String,
    /// Text of the feedback.
    pub feedback: Option<String>,
}

/// Feedback as it was kept.
#[derive(Clone, Debug)]
pub struct Feedback {
    /// Position in the one order; pages go by it.
    pub position: u64,
    /// Its id.
    pub id: String,
    /// The run it is about.
    pub run: String,
    /// Rating from 0 to 10.
    pub rating: i16,
    /// Subject of the feedback, in the caller's own word.
    pub category: String,
    /// Text of the feedback.
    pub feedback: Option<String>,
    /// Time at which it was kept, by the database's clock.
    pub created_at: WallTime,
}

/// A page, newest first.
#[derive(Clone, Debug)]
pub struct FeedbackPage {
    /// Feedback on the page.
    pub feedback: Vec<Feedback>,
    /// The next page holds what was kept before this position.
    pub next: Option<u64>,
}

/// Fewest rows looked at in one query.
const STEP_MIN: usize = 100;
/// Queries for one page: a page may be short when most of the rows are of deleted runs.
const STEPS: usize = 8;

impl Database {
    /// Keeps `feedback`; when this fails it may have been kept all the same.
    pub async fn submit(&self, feedback: &NewFeedback) -> Result<(), DatabaseError> {
        const INSERT: &str = "INSERT INTO sightline_feedback \
             (feedback_id, run_id, principal, rating, category, feedback) \
             VALUES ($1, $2, $3, $4, $5, $6)";
        let (id, run) = (feedback.id.to_string(), feedback.run.to_string());
        let (principal, rating) = (feedback.principal.as_str(), i16::from(feedback.rating));
        let work = async {
            let lease = self.connection().await?;
            let insert = lease.prepare_cached(INSERT).await?;
            let (category, text) = (&feedback.category, &feedback.feedback);
            lease.execute(&insert, &[&id, &run, &principal, &rating, category, text]).await?;
            lease.give_back();
            Ok(())
        };
        self.bounded(work).await
    }

    /// The feedback of `principal` before position `before` on runs that `is_visible`.
    pub async fn feedback(
        &self,
        principal: &Principal,
        before: Option<u64>,
        limit: usize,
        is_visible: impl Fn(&str) -> bool,
    ) -> Result<FeedbackPage, DatabaseError> {
        const SELECT: &str = "SELECT position, feedback_id, run_id, rating, category, feedback, \
             (extract(epoch FROM created_at) * 1000)::bigint FROM sightline_feedback \
             WHERE principal = $1 AND position < $2 ORDER BY position DESC LIMIT $3";
        let mut before =
            before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        let step = (limit + 1).max(STEP_MIN);
        let work = async {
            let lease = self.connection().await?;
            let select = lease.prepare_cached(SELECT).await?;
            let mut page = FeedbackPage { feedback: Vec::new(), next: None };
            for _ in 0..STEPS {
                let wanted: [&(dyn ToSql + Sync); 3] =
                    [&principal.as_str(), &before, &(step as i64)];
                let rows = lease.query(&select, &wanted).await?;
                let is_last = rows.len() < step;
                for row in &rows {
                    let feedback = feedback(row)?;
                    if page.feedback.len() == limit {
                        page.next = page.feedback.last().map(|last| last.position);
                        break;
                    }
                    before = feedback.position as i64;
                    if is_visible(&feedback.run) {
                        page.feedback.push(feedback);
                    }
                }
                if is_last || page.next.is_some() {
                    lease.give_back();
                    return Ok(page);
                }
            }
            lease.give_back();
            page.next = Some(before as u64);
            Ok(page)
        };
        self.bounded(work).await
    }
}

/// Reads a row; a table that was changed by hand may hold anything.
fn feedback(row: &Row) -> Result<Feedback, tokio_postgres::Error> {
    Ok(Feedback {
        // Identities count from 1.
        position: row.try_get::<_, i64>(0)?.max(0) as u64,
        id: row.try_get(1)?,
        run: row.try_get(2)?,
        rating: row.try_get(3)?,
        category: row.try_get(4)?,
        feedback: row.try_get(5)?,
        created_at: WallTime { epoch_ms: row.try_get(6)? },
    })
}
