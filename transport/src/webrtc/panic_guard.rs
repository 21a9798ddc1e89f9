//! Wrapper of a session's handler that confines a panic to that session.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{SessionFailure, SessionHandler};

/// Handler of a session; `None` once it has panicked.
pub(super) struct PanicGuardedHandler(Option<Box<dyn SessionHandler>>);

impl PanicGuardedHandler {
    pub(super) fn new(sink: Box<dyn SessionHandler>) -> PanicGuardedHandler {
        PanicGuardedHandler(Some(sink))
    }

    /// Calls the handler. A handler that panics is dropped and never called again.
    pub(super) fn call(
        &mut self,
        call: impl FnOnce(&mut dyn SessionHandler),
    ) -> Result<(), SessionFailure> {
        let sink = self.0.as_deref_mut().ok_or(SessionFailure::Sink)?;
        if catch_unwind(AssertUnwindSafe(|| call(sink))).is_ok() {
            return Ok(());
        }
        tracing::error!("the sink of a WebRTC session panicked");
        self.give_up();
        Err(SessionFailure::Sink)
    }

    fn give_up(&mut self) {
        let sink = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(sink))).is_err() {
            tracing::error!("the sink of a WebRTC session panicked when it was dropped");
        }
    }
}

impl Drop for PanicGuardedHandler {
    fn drop(&mut self) {
        self.give_up();
    }
}
