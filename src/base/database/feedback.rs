//! Feedback of callers on runs. Does not know which runs still exist; the caller passes a filter.

use media::{FeedbackId, RunId};
use tokio_postgres::{Row, types::ToSql};

use super::{Database, DatabaseError};
use crate::base::keys::Principal;

/// Feedback to be stored.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct NewFeedback {
    pub id: FeedbackId,
    pub run: RunId,
    pub principal: Principal,
    /// Rating from 0 to 10.
    pub rating: u8,
    /// Category, in the caller's own words.
    pub category: String,
    pub feedback: Option<String>,
}

/// A page, newest first.
pub struct FeedbackPage<T> {
    pub feedback: Vec<T>,
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

    /// Returns the feedback of `principal` before position `before`, on runs for which `is_visible` is true, as `read`
    /// from `feedback_id`, `run_id`, `rating`, `category`, `feedback`, and `created_ms` by the database's clock.
    pub async fn feedback<T>(
        &self,
        principal: &Principal,
        before: Option<u64>,
        limit: usize,
        is_visible: impl Fn(&str) -> bool,
        read: fn(&Row) -> Result<T, DatabaseError>,
    ) -> Result<FeedbackPage<T>, DatabaseError> {
        const SELECT: &str = "SELECT position, feedback_id, run_id, rating, category, feedback, \
             (extract(epoch FROM created_at) * 1000)::bigint AS created_ms FROM sightline_feedback \
             WHERE principal = $1 AND position < $2 ORDER BY position DESC LIMIT $3";
        let mut before =
            before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        let step = (limit + 1).max(STEP_MIN);
        let work = async {
            let lease = self.connection().await?;
            let select = lease.prepare_cached(SELECT).await?;
            let (mut page, mut last) = (FeedbackPage { feedback: Vec::new(), next: None }, None);
            for _ in 0..STEPS {
                let wanted: [&(dyn ToSql + Sync); 3] =
                    [&principal.as_str(), &before, &(step as i64)];
                let rows = lease.query(&select, &wanted).await?;
                let is_last = rows.len() < step;
                for row in rows {
                    if page.feedback.len() == limit {
                        page.next = last;
                        break;
                    }
                    // The column is an identity, which starts at 1.
                    before = row.try_get("position")?;
                    if is_visible(row.try_get("run_id")?) {
                        last = Some(before.unsigned_abs());
                        page.feedback.push(read(&row)?);
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
