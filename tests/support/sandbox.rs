//! Sandbox of media workers that the kernel of this machine allows.

use std::{path::Path, sync::OnceLock};

use worker::{SandboxPolicy, Supervisor, WorkerError, WorkerProgram};

/// The policy under which `program` reads media here: the default, or, where the kernel has no whole
/// sandbox, `best-effort`, which is said loudly.
pub fn policy(program: impl AsRef<Path>) -> SandboxPolicy {
    static FOUND: OnceLock<SandboxPolicy> = OnceLock::new();
    *FOUND.get_or_init(|| match Supervisor::new(WorkerProgram::at(program.as_ref())).sandbox() {
        Err(error @ WorkerError::Sandbox(_)) => {
            eprintln!("TESTS RUN WITHOUT A WHOLE SANDBOX: {error}");
            SandboxPolicy::BestEffort
        }
        // What else ails it is for the test to find.
        Ok(_) | Err(_) => SandboxPolicy::Require,
    })
}
