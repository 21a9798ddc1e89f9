//! Download body: every wait has a timeout, every byte is charged, and the connection is reused.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::DownloadBudget;
use crate::egress::{
    EgressError, RequestUrl, TimeoutPhase,
    http1::{Http1Connection, IDLE, failure},
};

/// Connection left by the last finished body, for the next request to the same host.
#[derive(Clone, Default)]
pub(super) struct IdleConnection(Arc<Mutex<Option<(RequestUrl, Http1Connection)>>>);

impl IdleConnection {
    /// Takes the idle connection if it leads to `target` and is still open.
    pub async fn take(&self, target: &RequestUrl) -> Option<Http1Connection> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (_, mut connection) = kept.filter(|(end, _)| end.is_beside(target))?;
        connection.is_ready().await.then_some(connection)
    }

    fn keep(&self, target: RequestUrl, connection: Http1Connection) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((target, connection));
    }
}

/// Body of a download.
pub struct DownloadBody {
    pub(super) target: RequestUrl,
    pub(super) incoming: Incoming,
    pub(super) connection: Option<Http1Connection>,
    pub(super) budget: Arc<DownloadBudget>,
    pub(super) idle: IdleConnection,
    /// Bytes put back by the reader.
    pub(super) pending: Bytes,
}

impl fmt::Debug for DownloadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DownloadBody").field("host", &self.target.host()).finish_non_exhaustive()
    }
}

impl DownloadBody {
    /// Returns the next bytes, at most 64 KiB; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EgressError> {
        if !self.pending.is_empty() {
            return Ok(Some(std::mem::take(&mut self.pending)));
        }
        loop {
            let until = self.budget.end().min(Instant::now() + IDLE);
            let frame = timeout_at(until, self.incoming.frame()).await.map_err(|_| {
                let idle = EgressError::Timeout { wait: TimeoutPhase::Idle, after: IDLE };
                if until < self.budget.end() { idle } else { self.budget.late() }
            })?;
            let Some(frame) = frame else {
                if let Some(connection) = self.connection.take() {
                    self.idle.keep(self.target.clone(), connection);
                }
                return Ok(None);
            };
            let frame = frame.map_err(|error| failure(&self.target, &error))?;
            // Trailers are ignored.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.budget.take(data.len() as u64)?;
                return Ok(Some(data));
            }
        }
    }

    /// Puts back bytes that [`DownloadBody::next`] returned.
    pub fn unread(&mut self, bytes: Bytes) {
        self.pending = bytes;
    }

    /// Reads and discards `count` bytes.
    pub(super) async fn skip(&mut self, mut count: u64) -> Result<(), EgressError> {
        while count > 0 {
            let Some(mut bytes) = self.next().await? else {
                return Err(EgressError::Cut { host: self.target.host().to_owned() });
            };
            let passed = bytes.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            count -= passed as u64;
            self.pending = bytes.split_off(passed);
        }
        Ok(())
    }
}
