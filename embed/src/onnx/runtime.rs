//! ONNX Runtime's library, one per process, and builders of sessions on its execution providers.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

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
    // The loader searches for a bare name; a path is relative to the working directory.
    let path = match asked.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => std::path::absolute(asked)
            .map_err(|error| OnnxError::Runtime(format!("{error}: {}", asked.display())))?,
        _ => asked.to_owned(),
    };
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((first, environment)) = loaded.as_ref() {
        if library.is_some() && *first != path {
            return Err(OnnxError::OtherRuntime(first.clone()));
        }
        return Ok(environment.clone());
    }
    let failed = |error: &dyn std::fmt::Display| OnnxError::Runtime(error.to_string());
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
    let failed = |reason: String| OnnxError::Session { provider: provider.as_str(), reason };
    let builder = Session::builder(environment).map_err(|error| failed(error.to_string()))?;
    let builder = builder.with_intra_threads(threads).map_err(|error| failed(error.to_string()))?;
    builder.with_execution_providers([execution]).map_err(|error| failed(error.to_string()))
}
