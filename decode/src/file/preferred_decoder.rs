//! Engine that is asked to decode before libav's own decoders, for as long as it is of use.

use std::sync::OnceLock;

use crate::decoder::DecoderFactory;

/// Shared by all threads of a file, and by every round over it.
pub(super) struct PreferredDecoderState<'a> {
    engines: Option<&'a dyn DecoderFactory>,
    lost: OnceLock<String>,
}

impl<'a> PreferredDecoderState<'a> {
    pub(super) fn new(engines: Option<&'a dyn DecoderFactory>) -> PreferredDecoderState<'a> {
        PreferredDecoderState { engines, lost: OnceLock::new() }
    }

    /// Returns the engine to ask first; `None` once it was lost.
    pub(super) fn engines(&self) -> Option<&'a dyn DecoderFactory> {
        self.engines.filter(|_| self.lost.get().is_none())
    }

    /// The stream was not cut for it, lost or not.
    pub(super) fn is_continuous(&self) -> bool {
        self.engines.is_some_and(DecoderFactory::is_continuous)
    }

    /// From here on it is not asked any more; the first reason is the one to tell.
    pub(super) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason);
    }

    /// Returns the reason for giving it up.
    pub(super) fn into_reason(self) -> Option<String> {
        self.lost.into_inner()
    }
}
