//! The only place of the command line that reads the environment by hand; arguments use clap's `env`.
#![expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]

use std::path::{Path, PathBuf};

use worker::{SandboxPolicy, WorkerProgram};

use crate::error::CliError;

/// The setting that says what the sandbox of media workers must be like.
pub const SANDBOX: &str = "SERVICE_SANDBOX";

/// The user asked for plain text (<https://no-color.org>).
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Path of an executable that the service would use: from the variable, else the search path.
pub fn find_program(variable: &str, name: &str) -> Option<PathBuf> {
    let named = (!variable.is_empty()).then(|| std::env::var_os(variable)).flatten();
    if let Some(path) = named.filter(|value| !value.is_empty()) {
        return Some(PathBuf::from(path)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// The server beside this program, or else the one on the search path.
pub fn server_program() -> Option<PathBuf> {
    const NAME: &str = "sightline-server";
    // Where this program is cannot always be told; then there is the path.
    let beside = std::env::current_exe().ok().map(|this| this.with_file_name(NAME));
    beside.filter(|path| path.is_file()).or_else(|| find_program("", NAME))
}

/// Sandbox policy of media workers, where it is set.
pub fn sandbox() -> Result<Option<SandboxPolicy>, CliError> {
    let Some(named) = std::env::var_os(SANDBOX).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let policy = named.to_str().and_then(SandboxPolicy::from_name);
    let wrong = || CliError::Usage(format!("{SANDBOX} must be require or best-effort"));
    policy.map(Some).ok_or_else(wrong)
}

/// This binary as a media worker in such a sandbox.
pub fn worker_program() -> Result<WorkerProgram, CliError> {
    confined(WorkerProgram::current())
}

/// The server's binary as a media worker in such a sandbox, which has gate backends that this one has not; this
/// one where there is no server.
pub fn server_as_worker() -> Result<WorkerProgram, CliError> {
    let program = server_program().map_or_else(WorkerProgram::current, WorkerProgram::at);
    confined(program)
}

fn confined(program: WorkerProgram) -> Result<WorkerProgram, CliError> {
    let program = program.with_sandbox(sandbox()?.unwrap_or_default());
    Ok(program.with_fork_server(|_, _| ()))
}

/// The data directory that is named, or else the one that a server started here would use.
pub fn data_dir(named: Option<&Path>) -> PathBuf {
    if let Some(named) = named.filter(|named| !named.as_os_str().is_empty()) {
        return named.to_owned();
    }
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let roots = var("SERVICE_INGEST_FILE_ROOTS").unwrap_or_default();
    let roots = roots.split(',').map(str::trim).filter(|root| !root.is_empty()).map(PathBuf::from);
    timeline::default_data_dir(&roots.collect::<Vec<_>>(), var)
}

/// Capabilities of an NVIDIA driver that a container was given.
pub fn driver_capabilities() -> Option<String> {
    std::env::var("NVIDIA_DRIVER_CAPABILITIES").ok().filter(|value| !value.is_empty())
}

/// Variables of our environment that a server needs to start; its settings are given one by one.
pub fn for_a_server() -> Vec<(&'static str, std::ffi::OsString)> {
    let kept =
        ["PATH", "LD_LIBRARY_PATH", "SERVICE_FFMPEG_PATH", "SERVICE_FFPROBE_PATH", "RUST_LOG"];
    kept.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))).collect()
}
