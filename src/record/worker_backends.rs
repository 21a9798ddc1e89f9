//! Chooses the decode and gate backends by running each candidate in a real worker.

use decode::DecodeBackend;
use worker::{
    BackendChoice, BackendRequest, BackendSelectError, Capabilities, DecodeSelection, GateBackend,
    SandboxReport, Supervisor, WorkerError, WorkerProgram,
};

/// Reason that the configured backends cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// A decode backend that the settings name does not decode.
    #[error("SERVICE_DECODE_BACKEND asks for {backend}: {source}")]
    Decode {
        /// Name of the backend.
        backend: &'static str,
        /// Error of the worker.
        source: WorkerError,
    },
    /// A gate backend that the settings name does not measure.
    #[error("SERVICE_GATE_BACKEND asks for {backend}: {source}")]
    Gate {
        /// Name of the backend.
        backend: &'static str,
        /// Error of the worker.
        source: WorkerError,
    },
}

/// Capabilities and isolation of media workers.
#[derive(Debug)]
pub struct WorkerCapabilities {
    /// Preferred decode backend.
    pub backend: DecodeBackend,
    /// Decode backends tried before, and why they are not used.
    pub passed_over: Vec<(DecodeBackend, String)>,
    /// Preferred gate backend.
    pub gate: GateBackend,
    /// Gate backends tried before, and why they are not used.
    pub gate_passed_over: Vec<(GateBackend, String)>,
    /// Capabilities of a worker; `None` if no worker starts.
    pub capabilities: Option<Capabilities>,
    /// Isolation of the workers.
    pub sandbox: SandboxStatus,
    /// Missing parts of the isolation, or the reason that no worker starts; `None` if isolation is full.
    pub sandbox_detail: Option<String>,
    /// Forbidden actions that a worker tried at startup and the sandbox refused.
    pub refused: usize,
}

media::named! {
    /// Isolation of media workers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SandboxStatus {
        /// Isolated by every mechanism.
        Full = "full",
        /// Isolated in part: the system lacks a mechanism, or a device needs its driver's files.
        Partial = "partial",
        /// No worker starts.
        Unavailable = "unavailable",
    }
}

impl SandboxStatus {
    /// Maps the report of a worker to its isolation and the missing parts.
    fn of(report: &SandboxReport) -> (SandboxStatus, Option<String>) {
        if report.is_full() {
            tracing::info!(%report, "media workers are sandboxed");
            (SandboxStatus::Full, None)
        } else {
            tracing::warn!(%report, "media workers are sandboxed in part only");
            (SandboxStatus::Partial, Some(report.to_string()))
        }
    }
}

impl WorkerCapabilities {
    /// Starts workers until one decodes; fails if a device that the settings name is missing.
    pub(crate) fn choose(
        program: WorkerProgram,
        wanted: &BackendRequest,
    ) -> Result<(Supervisor, WorkerCapabilities), WorkersError> {
        let error = match Supervisor::select(&program, wanted) {
            Ok((supervisor, selection)) => {
                return Ok((supervisor, WorkerCapabilities::of(selection)));
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
        let workers = WorkerCapabilities {
            backend: DecodeBackend::Software,
            passed_over: Vec::new(),
            gate: GateBackend::Cpu,
            gate_passed_over: Vec::new(),
            capabilities: None,
            sandbox: SandboxStatus::Unavailable,
            sandbox_detail: Some(error.to_string()),
            refused: 0,
        };
        Ok((Supervisor::new(program), workers))
    }

    fn of(selection: DecodeSelection) -> WorkerCapabilities {
        let DecodeSelection { backend, capabilities, sandbox, passed_over, gate } = selection;
        let passed_over: Vec<(DecodeBackend, String)> =
            passed_over.into_iter().map(|(backend, error)| (backend, error.to_string())).collect();
        for (backend, reason) in &passed_over {
            tracing::info!(backend = backend.as_str(), reason, "decode backend not used");
        }
        for tried in capabilities.codecs.iter().filter(|tried| tried.reason.is_some()) {
            let (codec, bits, reason) = (tried.codec.as_str(), tried.bits, tried.reason.as_deref());
            tracing::warn!(codec, bits, reason, decoder = tried.decoder, "not decoded as asked");
        }
        tracing::info!(backend = backend.as_str(), "media is decoded");
        let gate_passed_over = told(gate.passed_over);
        let (gate, measurer) = (gate.backend, capabilities.measurer.as_str());
        tracing::info!(backend = gate.as_str(), measurer, "frames are measured");
        let refused = sandbox.refused;
        let (sandbox, sandbox_detail) = SandboxStatus::of(&sandbox);
        let capabilities = Some(capabilities);
        WorkerCapabilities {
            backend,
            passed_over,
            gate,
            gate_passed_over,
            capabilities,
            sandbox,
            sandbox_detail,
            refused,
        }
    }

    /// Reason that no media can be read; `None` if some can.
    pub fn refusal(&self) -> Option<&str> {
        match self.sandbox {
            SandboxStatus::Unavailable => self.sandbox_detail.as_deref(),
            SandboxStatus::Full | SandboxStatus::Partial => None,
        }
    }
}

/// Logs each gate backend that is not used, and returns the reasons as text.
fn told(passed_over: Vec<(GateBackend, WorkerError)>) -> Vec<(GateBackend, String)> {
    let told = |(backend, error): (GateBackend, WorkerError)| {
        let reason = error.to_string();
        tracing::info!(backend = backend.as_str(), reason, "gate backend not used");
        (backend, reason)
    };
    passed_over.into_iter().map(told).collect()
}
