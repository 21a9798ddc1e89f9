//! ONNX Runtime's library and what it may run on: one of each library a process.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use ort::{
    environment::Environment,
    ep::{self, ExecutionProviderDispatch},
    session::{Session, builder::SessionBuilder},
};

use super::{ExecutionProvider, OnnxError, RUNTIME_LIBRARY};

/// The library that was loaded, by the path that was asked for.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// Loads the library, once. A failure can be tried again, with another path too.
pub(super) fn environment(library: Option<&Path>) -> Result<Environment, OnnxError> {
    let asked = library.unwrap_or_else(|| Path::new(RUNTIME_LIBRARY));
    // A bare name is the loader's to find; a path is from the working directory, not the program's.
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

/// Makes a builder of sessions on `provider` and nowhere else, as far as its own operators reach.
pub(super) fn builder(
    environment: &Environment,
    provider: ExecutionProvider,
    threads: usize,
) -> Result<SessionBuilder, OnnxError> {
    let execution = execution(provider)?;
    let failed = |reason: String| OnnxError::Session { provider: provider.as_str(), reason };
    let builder = Session::builder(environment).map_err(|error| failed(error.to_string()))?;
    let builder = builder.with_intra_threads(threads).map_err(|error| failed(error.to_string()))?;
    builder.with_execution_providers([execution]).map_err(|error| failed(error.to_string()))
}

fn execution(provider: ExecutionProvider) -> Result<ExecutionProviderDispatch, OnnxError> {
    let dispatch = match provider {
        ExecutionProvider::Auto | ExecutionProvider::Cpu => ep::CPU::default().build(),
        ExecutionProvider::Cuda => ep::CUDA::default().build(),
        ExecutionProvider::TensorRt => ep::TensorRT::default().build(),
    };
    Ok(dispatch.error_on_failure())
}
