//! The only place of the command line that reads environment variables directly; arguments use clap's `env`.
#![expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use worker::{SandboxPolicy, WorkerProgram};

use crate::error::CliError;

/// Variable with the sandbox policy of media workers.
pub const SANDBOX: &str = "SERVICE_SANDBOX";

/// Returns true if the variable is set, to nothing.
pub fn is_empty(variable: &OsStr) -> bool {
    std::env::var_os(variable).is_some_and(|value| value.is_empty())
}

/// Returns true if `NO_COLOR` asks for plain text (<https://no-color.org>).
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Returns the path of an executable as the service finds it: from the variable, else on `PATH`.
pub fn find_program(variable: &str, name: &str) -> Option<PathBuf> {
    let named = (!variable.is_empty()).then(|| std::env::var_os(variable)).flatten();
    if let Some(path) = named.filter(|value| !value.is_empty()) {
        return Some(PathBuf::from(path)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns the server beside this program, or else the one on `PATH`.
pub fn server_program() -> Option<PathBuf> {
    const NAME: &str = "sightline-server";
    // The path of this program may be unknown; then only `PATH` is searched.
    let beside = std::env::current_exe().ok().map(|this| this.with_file_name(NAME));
    beside.filter(|path| path.is_file()).or_else(|| find_program("", NAME))
}

/// Returns the sandbox policy of media workers, if it is set.
pub fn sandbox() -> Result<Option<SandboxPolicy>, CliError> {
    let Some(named) = std::env::var_os(SANDBOX).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let policy = named.to_str().and_then(SandboxPolicy::from_name);
    let wrong = || CliError::Usage(format!("{SANDBOX} must be require or best-effort"));
    policy.map(Some).ok_or_else(wrong)
}

/// Returns this binary as a media worker with the sandbox policy.
pub fn worker_program() -> Result<WorkerProgram, CliError> {
    confined(WorkerProgram::current())
}

/// Returns the server's binary as a media worker with the sandbox policy, as it has gate backends that this
/// binary lacks; without a server this binary.
pub fn server_as_worker() -> Result<WorkerProgram, CliError> {
    let program = server_program().map_or_else(WorkerProgram::current, WorkerProgram::at);
    confined(program)
}

fn confined(program: WorkerProgram) -> Result<WorkerProgram, CliError> {
    let program = program.with_sandbox(sandbox()?.unwrap_or_default());
    Ok(program.with_fork_server(|_, _| ()))
}

/// Returns `named`, or else the data directory that a server started here would use.
pub fn data_dir(named: Option<&Path>) -> PathBuf {
    if let Some(named) = named.filter(|named| !named.as_os_str().is_empty()) {
        return named.to_owned();
    }
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let roots = var("SERVICE_INGEST_FILE_ROOTS").unwrap_or_default();
    let roots = roots.split(',').map(str::trim).filter(|root| !root.is_empty()).map(PathBuf::from);
    timeline::default_data_dir(&roots.collect::<Vec<_>>(), var)
}

/// Returns the NVIDIA driver capabilities that a container was given.
pub fn driver_capabilities() -> Option<String> {
    std::env::var("NVIDIA_DRIVER_CAPABILITIES").ok().filter(|value| !value.is_empty())
}

/// Returns the environment variables that a server needs to start; its settings are passed separately.
pub fn for_a_server() -> Vec<(&'static str, std::ffi::OsString)> {
    let kept =
        ["PATH", "LD_LIBRARY_PATH", "SERVICE_FFMPEG_PATH", "SERVICE_FFPROBE_PATH", "RUST_LOG"];
    kept.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))).collect()
}
