//! ONNX Runtime's library, one per process, and builders of sessions on its execution providers.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use media::ErrorKind;
use ort::{
    environment::Environment,
    ep,
    session::{Session, builder::SessionBuilder},
};

use super::{ExecutionProvider, OnnxError, RUNTIME_LIBRARY};

/// Library that was loaded, and its absolute path or bare name.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// Loads the library once per process. After a failure another call may try again, with another path too.
pub(super) fn environment(library: Option<&Path>) -> Result<Environment, OnnxError> {
    let asked = library.unwrap_or_else(|| Path::new(RUNTIME_LIBRARY));
    let failed = |error: &dyn Display| OnnxError {
        kind: ErrorKind::Unavailable,
        text: format!(
            "ONNX Runtime cannot be loaded: {error}; SERVICE_ONNXRUNTIME_PATH names its library"
        ),
    };
    // The loader searches for a bare name; a path is relative to the working directory.
    let path = match asked.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => std::path::absolute(asked)
            .map_err(|error| failed(&format!("{error}: {}", asked.display())))?,
        _ => asked.to_owned(),
    };
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((first, environment)) = loaded.as_ref() {
        if library.is_some() && *first != path {
            let text = format!("ONNX Runtime was loaded before, from {}", first.display());
            return Err(OnnxError { kind: ErrorKind::Conflict, text });
        }
        return Ok(environment.clone());
    }
    let environment = ort::init_from(&path)
        .map_err(|error| failed(&error))?
        .with_name("sightline")
        .with_telemetry(false)
        .build()
        .map_err(|error| failed(&error))?;
    *loaded = Some((path, environment.clone()));
    Ok(environment)
}

/// Returns a builder of sessions on `provider`; operators that the provider lacks run on the CPU.
pub(super) fn builder(
    environment: &Environment,
    provider: ExecutionProvider,
    threads: usize,
) -> Result<SessionBuilder, OnnxError> {
    let execution = match provider {
        ExecutionProvider::Auto | ExecutionProvider::Cpu => ep::CPU::default().build(),
        ExecutionProvider::Cuda => ep::CUDA::default().build(),
        ExecutionProvider::TensorRt => ep::TensorRT::default().build(),
    };
    let execution = execution.error_on_failure();
    Session::builder(environment)
        .and_then(|builder| Ok(builder.with_intra_threads(threads)?))
        .and_then(|builder| Ok(builder.with_execution_providers([execution])?))
        .map_err(|error| OnnxError::session(provider, error))
}
