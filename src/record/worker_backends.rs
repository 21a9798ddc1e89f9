//! Chooses the decode and gate backends by running each candidate in a real worker.

use decode::DecodeBackend;
use worker::{
    BackendChoice, BackendRequest, BackendSelectError, DecodeSelection, GateBackend, Supervisor,
    WorkerError, WorkerProgram,
};

/// Reason that the configured backends cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    #[error("SERVICE_DECODE_BACKEND asks for {backend}: {source}")]
    Decode { backend: &'static str, source: WorkerError },
    #[error("SERVICE_GATE_BACKEND asks for {backend}: {source}")]
    Gate { backend: &'static str, source: WorkerError },
}

/// Backends and isolation of media workers that were selected, or the reason that no worker starts.
#[derive(Debug)]
pub struct WorkerCapabilities(pub Result<DecodeSelection, WorkerError>);

impl WorkerCapabilities {
    /// Starts workers until one decodes; fails if a device that the settings name is missing.
    pub(crate) fn choose(
        program: WorkerProgram,
        wanted: &BackendRequest,
    ) -> Result<(Supervisor, WorkerCapabilities), WorkersError> {
        let error = match Supervisor::select(&program, wanted) {
            Ok((supervisor, selection)) => {
                log(&selection);
                return Ok((supervisor, WorkerCapabilities(Ok(selection))));
            }
            Err(BackendSelectError::Gate { backend, source }) => {
                return Err(WorkersError::Gate { backend: backend.as_str(), source });
            }
            Err(BackendSelectError::Decode(error)) => error,
        };
        if let BackendChoice::Named(backend) = wanted.choice
            && backend != DecodeBackend::Software
        {
            return Err(WorkersError::Decode { backend: backend.as_str(), source: error });
        }
        tracing::error!(%error, "no media worker starts: no media is read");
        Ok((Supervisor::new(program), WorkerCapabilities(Err(error))))
    }

    /// Returns the selected decode backend; `None` if no worker starts.
    pub fn selection(&self) -> Option<&DecodeSelection> {
        self.0.as_ref().ok()
    }

    pub fn backend(&self) -> DecodeBackend {
        self.selection().map_or(DecodeBackend::Software, |found| found.backend)
    }

    /// Decode backends tried before, and why they are not used.
    pub fn passed_over(&self) -> impl Iterator<Item = (&'static str, String)> {
        let tried = self.selection().into_iter().flat_map(|found| &found.passed_over);
        tried.map(|(backend, error)| (backend.as_str(), error.to_string()))
    }

    pub fn gate(&self) -> GateBackend {
        self.selection().map_or(GateBackend::Cpu, |found| found.gate.backend)
    }

    /// Gate backends tried before, and why they are not used.
    pub fn gate_passed_over(&self) -> impl Iterator<Item = (&'static str, String)> {
        let tried = self.selection().into_iter().flat_map(|found| &found.gate.passed_over);
        tried.map(|(backend, error)| (backend.as_str(), error.to_string()))
    }

    /// Isolation of the workers: `full`, `partial` if the system lacks a mechanism or a device needs its
    /// driver's files, or `unavailable`.
    pub fn sandbox(&self) -> &'static str {
        match &self.0 {
            Ok(found) if found.sandbox.is_full() => "full",
            Ok(_) => "partial",
            Err(_) => "unavailable",
        }
    }

    /// Missing parts of the isolation, or the reason that no worker starts; `None` if isolation is full.
    pub fn sandbox_detail(&self) -> Option<String> {
        let found = self.selection().map(|found| &found.sandbox);
        let lacks = found.filter(|report| !report.is_full()).map(ToString::to_string);
        lacks.or_else(|| self.refusal())
    }

    /// Reason that no media can be read; `None` if some can.
    pub fn refusal(&self) -> Option<String> {
        self.0.as_ref().err().map(ToString::to_string)
    }
}

/// Logs what was selected, and what was passed over.
fn log(selection: &DecodeSelection) {
    let DecodeSelection { backend, capabilities, sandbox, passed_over, gate } = selection;
    for (backend, error) in passed_over {
        let reason = error.to_string();
        tracing::info!(backend = backend.as_str(), reason, "decode backend not used");
    }
    for tried in capabilities.codecs.iter().filter(|tried| tried.reason.is_some()) {
        let (codec, bits, reason) = (tried.codec.as_str(), tried.bits, tried.reason.as_deref());
        tracing::warn!(codec, bits, reason, decoder = tried.decoder, "not decoded as asked");
    }
    tracing::info!(backend = backend.as_str(), "media is decoded");
    for (backend, error) in &gate.passed_over {
        let reason = error.to_string();
        tracing::info!(backend = backend.as_str(), reason, "gate backend not used");
    }
    let (gate, measurer) = (gate.backend, capabilities.measurer.as_str());
    tracing::info!(backend = gate.as_str(), measurer, "frames are measured");
    if sandbox.is_full() {
        tracing::info!(report = %sandbox, "media workers are sandboxed");
    } else {
        tracing::warn!(report = %sandbox, "media workers are sandboxed in part only");
    }
}
