//! One stream of Server-Sent Events: a cursor into the log, read on whenever the client has room.
//!
//! Holds only the piece of text being sent; a slow client reads older pages of the log. A stream ends with a
//! comment that gives the reason. A client that reconnects with its last event id misses and repeats nothing.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::BoxError;
use bytes::Bytes;
use media::Seq;
use timeline::PayloadChunks;
use tokio::time::{Instant, sleep_until};

use super::{
    Filter, StreamScope, Subscription,
    page::{CLOSE, PageKey, SsePage, one_line, open},
};
use crate::{
    base::{
        blocking::blocking,
        stepped_body::{Step, stepped},
    },
    runs::{lifecycle::RunState, registry::next_piece},
};

/// Longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Empty comment, sent after a silence to keep the connection alive.
const QUIET: &[u8] = b":\n\n";

/// Error of a stream that cannot be read on; the client sees it cut off.
#[derive(Debug, thiserror::Error)]
#[error("the log cannot be read")]
pub(super) struct Broken;

/// Position of a stream in the log.
pub struct EventStreamCursor {
    subscription: Subscription,
    filter: Filter,
    next: Seq,
    /// Remaining payload of the large event being sent.
    payload: Option<PayloadChunks>,
    is_done: bool,
}

impl EventStreamCursor {
    pub fn new(subscription: Subscription, filter: Filter, after: Seq) -> EventStreamCursor {
        let next = Seq(after.0.saturating_add(1));
        EventStreamCursor { subscription, filter, next, payload: None, is_done: false }
    }

    /// Returns true if no event is left and none can follow; skips pages without events.
    pub async fn is_over(&mut self) -> bool {
        match &self.subscription.scope {
            StreamScope::Run(run) if run.has_ended() => {}
            _ => return false,
        }
        loop {
            let Some(page) = self.page().await else { return false };
            if !page.text.is_empty() || page.large.is_some() {
                return false;
            }
            self.next = page.next;
            if !page.is_cut {
                return true;
            }
        }
    }

    pub fn body(self) -> axum::body::Body {
        stepped(Box::new(self), None, EventStreamCursor::read_on)
    }

    async fn read_on(mut self: Box<Self>) -> Step<Box<Self>> {
        let piece = self.piece().await?;
        Ok(piece.map(|piece| (piece, self)))
    }

    async fn page(&self) -> Option<Arc<SsePage>> {
        let Subscription { streams, scope, .. } = &self.subscription;
        let key = PageKey::new(scope, streams.registry.timeline(), self.next, &self.filter);
        streams.page(key, scope).await
    }

    /// Returns the comment that ends the stream after all currently readable events, if it is to end.
    fn end(&self) -> Option<&'static str> {
        if self.subscription.streams.closed.is_cancelled() {
            return Some(": the server is shutting down\n\n");
        }
        match &self.subscription.scope {
            StreamScope::Owner(_) => None,
            StreamScope::Run(run) => match run.lifecycle() {
                RunState::Deleted => Some(": the run was deleted\n\n"),
                _ if run.has_ended() => Some(": the run has ended\n\n"),
                _ => None,
            },
        }
    }

    /// Returns the next piece of text; `None` at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Broken> {
        if self.is_done {
            return Ok(None);
        }
        if let Some(payload) = self.payload.take() {
            return self.payload_piece(payload).await.map(Some);
        }
        let streams = Arc::clone(&self.subscription.streams);
        let wake = Arc::clone(&self.subscription.wake);
        let quiet = Instant::now() + HEARTBEAT;
        loop {
            let mut woken = pin!(wake.notified());
            // Enabled before reading, so that an event published between the two wakes the stream.
            woken.as_mut().enable();
            // Checked before reading, so that the read includes the last event.
            let end = self.end();
            let page = self.page().await.ok_or(Broken)?;
            self.next = page.next;
            if !page.text.is_empty() {
                return Ok(Some(page.text.clone()));
            }
            if let Some(large) = page.large {
                return self.begin(large).await.map(Some);
            }
            if page.is_cut && Instant::now() < quiet {
                continue;
            }
            if page.is_cut {
                return Ok(Some(Bytes::from_static(QUIET)));
            }
            if let Some(end) = end {
                self.is_done = true;
                return Ok(Some(Bytes::from_static(end.as_bytes())));
            }
            tokio::select! {
                () = woken => {}
                () = streams.closed.cancelled() => {}
                () = sleep_until(quiet) => return Ok(Some(Bytes::from_static(QUIET))),
            }
        }
    }

    /// Returns the start of the event at `seq`; its payload follows in pieces.
    async fn begin(&mut self, seq: Seq) -> Result<Bytes, Broken> {
        let timeline = self.subscription.streams.registry.timeline().clone();
        let parts = reading(move || timeline.get_parts(seq)).await?;
        self.next = Seq(seq.0 + 1);
        let mut text = String::new();
        match parts {
            Some(parts) => {
                open(&mut text, &self.subscription.scope, &parts.head);
                self.payload = Some(parts.into_payload());
            }
            // The event was purged with its run meanwhile: an empty comment continues the stream.
            None => text.push_str(":\n\n"),
        }
        Ok(text.into())
    }

    async fn payload_piece(&mut self, mut payload: PayloadChunks) -> Result<Bytes, Broken> {
        let read = move || next_piece(&mut payload).transpose().map(|piece| (piece, payload));
        let (piece, payload) = reading(read).await?;
        match piece {
            Some(piece) => {
                self.payload = Some(payload);
                Ok(one_line(piece).into())
            }
            None => Ok(Bytes::from_static(CLOSE.as_bytes())),
        }
    }
}

/// Runs disk reads on a blocking thread.
pub(super) async fn reading<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, timeline::TimelineError> + Send + 'static,
) -> Result<T, Broken> {
    let read = blocking(read).await.map_err(BoxError::from).and_then(|read| Ok(read?));
    read.map_err(|error| {
        tracing::error!(%error, "an event stream cannot be read");
        Broken
    })
}
