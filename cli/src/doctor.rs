//! `sightline doctor`: what this machine can decode and measure, and why not.
//!
//! Nothing is believed that can be tried: each codec decodes a tiny clip in a real, sandboxed
//! worker, and the worker tries what its sandbox must refuse. The clips are two frames of FFmpeg's
//! `testsrc`, encoded with its own encoders.

mod checks;

use std::path::PathBuf;

use serde::Serialize;
use worker::{CancelToken, Supervisor, WorkerProgram};

use crate::{
    error::CliError,
    interrupt,
    output::{Out, Table},
};

/// Arguments of `doctor`.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Print one JSON object: version, healthy, checks[{area, name, state, detail}]
    #[arg(long)]
    json: bool,
    /// Data directory of the server
    #[arg(long, value_name = "DIR", env = "SERVICE_DATA_DIR", default_value = ".sightline-data")]
    data_dir: PathBuf,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// Works, with something missing that the detail names.
    Warn,
    /// Does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    area: &'static str,
    name: String,
    state: State,
    detail: String,
}

impl Check {
    fn new(area: &'static str, name: &str, state: State, detail: impl Into<String>) -> Check {
        Check { area, name: name.to_owned(), state, detail: detail.into() }
    }
}

#[derive(Serialize)]
struct Findings<'a> {
    version: &'static str,
    healthy: bool,
    checks: &'a [Check],
}

/// Runs `doctor`.
pub fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let cancel = CancelToken::new();
    interrupt::on_signal(&cancel)?;
    let supervisor = Supervisor::new(WorkerProgram::current());
    let mut checks = checks::sandbox(&supervisor);
    checks.extend(checks::decoders(&supervisor, &cancel));
    checks.push(checks::measurer());
    checks.push(checks::machine());
    checks.push(checks::program("SERVICE_FFMPEG_PATH", "ffmpeg"));
    checks.push(checks::program("SERVICE_FFPROBE_PATH", "ffprobe"));
    checks.push(checks::data_dir(&args.data_dir));
    if cancel.is_cancelled() {
        return Err(CliError::Interrupted);
    }
    let failed: Vec<&Check> = checks.iter().filter(|check| check.state == State::Fail).collect();

    let mut out = Out::stdout();
    if args.json {
        let healthy = failed.is_empty();
        out.json(&Findings { version: env!("CARGO_PKG_VERSION"), healthy, checks: &checks })?;
    } else {
        let mut table = Table::new(&["AREA", "CHECK", "STATE", "DETAIL"]);
        for check in &checks {
            let state = match check.state {
                State::Ok => "ok",
                State::Warn => "warn",
                State::Fail => "FAIL",
            };
            let cells = [check.area, &check.name, state, &check.detail];
            table.push(cells.map(str::to_owned));
        }
        out.table(&table)?;
    }
    out.finish()?;
    match failed.as_slice() {
        [] => Ok(()),
        [one] => Err(CliError::Check(format!("{} {}: {}", one.area, one.name, one.detail))),
        many => Err(CliError::Check(format!("{} checks failed", many.len()))),
    }
}
