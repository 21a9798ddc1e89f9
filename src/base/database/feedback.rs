//! Feedback of callers on runs. Does not know which runs still exist; the caller passes a filter.

use media::{FeedbackId, RunId, WallTime};
use tokio_postgres::{Row, types::ToSql};

use super::{Database, DatabaseError};
use crate::base::keys::Principal;

/// Feedback to be stored.
#[derive(Clone, Debug)]
pub struct NewFeedback {
    /// Id of the feedback.
    pub id: FeedbackId,
    /// Run that the feedback is about.
    pub run: RunId,
    /// Caller that submits the feedback.
    pub principal: Principal,
    /// Rating from 0 to 10.
    pub rating: u8,
    /// Category, in the caller's own words.
    pub category: String,
    /// Text of the feedback.
    pub feedback: Option<String>,
}

/// Feedback as stored.
#[derive(Clone, Debug)]
pub struct Feedback {
    /// Position in the order of all feedback; the cursor of pages.
    pub position: u64,
    pub id: String,
    pub run: String,
    pub rating: i16,
    pub category: String,
    pub feedback: Option<String>,
    /// Time of storage, by the database's clock.
    pub created_at: WallTime,
}

/// A page, newest first.
#[derive(Clone, Debug)]
pub struct FeedbackPage {
    pub feedback: Vec<Feedback>,
    /// Cursor of the next page, which holds feedback before this position; `None` on the last page.
    pub next: Option<u64>,
}

/// Minimum number of rows read by one query.
const STEP_MIN: usize = 100;
/// Maximum number of queries for one page. A page may be short if most rows belong to deleted runs.
const STEPS: usize = 8;

impl Database {
    /// Stores `feedback`. After an error it may have been stored nevertheless.
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
            Ok((lease, ()))
        };
        self.bounded(work).await
    }

    /// Returns the feedback of `principal` before position `before`, on runs for which `is_visible` is true.
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
                    return Ok((lease, page));
                }
            }
            page.next = Some(before as u64);
            Ok((lease, page))
        };
        self.bounded(work).await
    }
}

/// Parses a row, which may hold invalid values if the table was edited by hand.
fn feedback(row: &Row) -> Result<Feedback, tokio_postgres::Error> {
    Ok(Feedback {
        // The column is an identity, which starts at 1.
        position: row.try_get::<_, i64>(0)?.max(0) as u64,
        id: row.try_get(1)?,
        run: row.try_get(2)?,
        rating: row.try_get(3)?,
        category: row.try_get(4)?,
        feedback: row.try_get(5)?,
        created_at: WallTime { epoch_ms: row.try_get(6)? },
    })
}
