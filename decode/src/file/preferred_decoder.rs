//! Backend preferred to libav's own decoders, until it is lost.

use std::sync::OnceLock;

use crate::{BackendError, decoder::DecoderFactory};

/// Shared by all threads of a file and every round over it.
pub(super) struct PreferredDecoderState<'a> {
    engines: Option<&'a dyn DecoderFactory>,
    lost: OnceLock<String>,
}

impl<'a> PreferredDecoderState<'a> {
    /// Makes the state of a backend that may be lost already, for the given reason.
    pub(super) fn new(
        asked: Option<Result<&'a dyn DecoderFactory, &BackendError>>,
    ) -> PreferredDecoderState<'a> {
        let (engines, reason) = (asked.and_then(Result::ok), asked.and_then(Result::err));
        let lost = reason.map(|reason| OnceLock::from(reason.to_string())).unwrap_or_default();
        PreferredDecoderState { engines, lost }
    }

    /// Returns the preferred backend; `None` once it is lost.
    pub(super) fn engines(&self) -> Option<&'a dyn DecoderFactory> {
        self.engines.filter(|_| self.lost.get().is_none())
    }

    /// Returns true if the stream was left uncut for the backend, lost or not.
    pub(super) fn is_continuous(&self) -> bool {
        self.engines.is_some_and(DecoderFactory::is_continuous)
    }

    /// Marks the backend lost; only the first reason is kept.
    pub(super) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason);
    }

    pub(super) fn into_reason(self) -> Option<String> {
        self.lost.into_inner()
    }
}
