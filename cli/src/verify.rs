//! `sightline verify`: decodes a run's source again and checks the run's timeline against it.
//!
//! Every signal, every decision that led to a still and every still of each decode pass must be reproduced
//! bit for bit, on any backend, with the thresholds of the recording. Reads the log beside a running server
//! and changes nothing.

mod compare;
mod recorded;

use std::path::{Path, PathBuf};

use decode::Sampling;
use gate::GateConfig;
use media::{RunId, Score, Zones};
use serde::Serialize;
use worker::{CancelToken, Supervisor};

use self::{
    compare::{FirstDifference, VerifyResult},
    recorded::RecordedPass,
};
use crate::{
    doctor::DecodeArgs,
    environment,
    error::{CliError, Exit},
    interrupt,
    output::{StdoutWriter, counted},
    zones::ZoneArgs,
};

#[derive(clap::Args)]
pub struct VerifyArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: RunId,
    /// Data directory of the server, or its log [default: where a server started here keeps it]
    #[arg(long, value_name = "DIR", env = "SERVICE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The source, where it is not where the run says it was
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    zones: ZoneArgs,
}

/// The server's thresholds, which decided what is selected where the recording does not say by which it was made.
#[derive(clap::Args)]
#[command(next_help_heading = "Thresholds of the server, for recordings that name none")]
struct GateArgs {
    /// Keepalive interval in frames; 0 disables it [default: 2 s]
    #[arg(long, value_name = "N", env = "SERVICE_GATE_KEEPALIVE_FRAMES")]
    keepalive_frames: Option<u32>,
    /// Scene score of a cut
    #[arg(long, value_name = "SCORE", env = "SERVICE_GATE_SCENE_CUT", default_value = "0.5",
        value_parser = score)]
    scene_cut: Score,
    /// Activity score that starts an episode
    #[arg(long, value_name = "SCORE", env = "SERVICE_GATE_ACTIVITY_ON", default_value = "0.0015",
        value_parser = score)]
    activity_on: Score,
    /// Activity score below which an episode ends
    #[arg(long, value_name = "SCORE", env = "SERVICE_GATE_ACTIVITY_OFF", default_value = "0.0011",
        value_parser = score)]
    activity_off: Score,
    /// Change of mean luma
    #[arg(long, value_name = "SCORE", env = "SERVICE_GATE_LUMA_SHIFT", default_value = "0.15",
        value_parser = score)]
    luma_shift: Score,
    /// Flicker
    #[arg(long, value_name = "SCORE", env = "SERVICE_GATE_FLICKER", default_value = "0.55",
        value_parser = score)]
    flicker: Score,
    /// Ghosting
    #[arg(long, value_name = "SCORE", env = "SERVICE_GATE_GHOSTING", default_value = "0.55",
        value_parser = score)]
    ghosting: Score,
    /// Noise
    #[arg(long, value_name = "SCORE", env = "SERVICE_GATE_NOISE", default_value = "0.55",
        value_parser = score)]
    noise: Score,
}

fn score(text: &str) -> Result<Score, String> {
    let found = text.parse().ok().and_then(|found| Score::from_f64(found).ok());
    found.ok_or_else(|| "must be a number in 0 to 1".to_owned())
}

impl From<&GateArgs> for GateConfig {
    fn from(args: &GateArgs) -> GateConfig {
        let &GateArgs {
            keepalive_frames, scene_cut, activity_on, activity_off, luma_shift, ..
        } = args;
        let &GateArgs { flicker, ghosting, noise, .. } = args;
        let default = GateConfig::default();
        GateConfig {
            keepalive_frames: keepalive_frames.unwrap_or(default.keepalive_frames),
            keepalive_ms: default.keepalive_ms.filter(|_| keepalive_frames.is_none()),
            scene_cut,
            activity_on,
            activity_off,
            luma_shift,
            flicker,
            ghosting,
            noise,
        }
    }
}

#[derive(Serialize)]
struct Verified {
    run_id: String,
    proven: bool,
    passes: Vec<PassRecord>,
}

#[derive(Serialize)]
struct PassRecord {
    /// Sequence number of the `frames_decoded` event that ends the pass.
    seq: u64,
    source: String,
    decoder: String,
    frames: u64,
    stills: u64,
    divergence: Option<FirstDifference>,
}

pub fn run(args: &VerifyArgs) -> Result<(), CliError> {
    let cancel = interrupt::token()?;
    let passes = recorded::passes(&environment::data_dir(args.data_dir.as_deref()), args.run)?;
    let program = environment::worker_program()?;
    let (supervisor, _) = Supervisor::select(&program, &args.decode.wanted())?;
    let mut records = Vec::new();
    for pass in &passes {
        records.push(prove(&supervisor, args, pass, &cancel)?);
    }
    let first =
        records.iter().find_map(|record| record.divergence.as_ref().map(|d| (record.seq, d)));
    let failure = first.map(|(seq, divergence)| format!("event {seq}: {divergence}"));
    let verified =
        Verified { run_id: args.run.to_string(), proven: failure.is_none(), passes: records };
    print(&verified, args.json)?;
    failure.map_or(Ok(()), |failure| {
        let said = "verification failed; recorded run differs from its source";
        Err(CliError::Exit(Exit::Damaged, format!("{said}: {failure}")))
    })
}

fn prove(
    supervisor: &Supervisor,
    args: &VerifyArgs,
    pass: &RecordedPass,
    cancel: &CancelToken,
) -> Result<PassRecord, CliError> {
    let path = match &args.source {
        Some(path) => path.clone(),
        None => local_path(&pass.source_uri)?,
    };
    let gate = pass.gate.unwrap_or_else(|| (&args.gate).into());
    let zones = zones(pass, args.zones.zones()?)?;
    let proof = compare::prove(supervisor, pass, &path, (gate, zones), cancel)?;
    let VerifyResult { decoder, frames, stills, divergence } = proof;
    let source = path.display().to_string();
    Ok(PassRecord { seq: pass.seq.0, source, decoder, frames, stills, divergence })
}

/// Returns the zones of a pass: as recorded, or `given` if an older log has only their names.
fn zones(pass: &RecordedPass, given: Zones) -> Result<Zones, CliError> {
    let is_whole = pass.zones.zones.iter().all(|zone| !zone.polygon.is_empty());
    if is_whole && given.zones.is_empty() {
        return Ok(pass.zones.clone());
    }
    let names = pass.zones.names();
    if given.names() == names {
        return Ok(given);
    }
    let remedy = match is_whole {
        true => "which the log has: leave out --zone",
        false => "of which an older log has no corners: name them by --zone",
    };
    let (seq, names) = (pass.seq.0, names.join(", "));
    Err(CliError::Usage(format!("event {seq}: it was recorded with the zones [{names}], {remedy}")))
}

/// Returns the local file that a source names, if it names one.
fn local_path(uri: &str) -> Result<PathBuf, CliError> {
    let path = uri.strip_prefix("file://").unwrap_or(uri);
    let told = || format!("{uri} is not a file here: name a copy of it with --source");
    if path.contains("://") {
        return Err(CliError::Usage(told()));
    }
    if !Path::new(path).exists() {
        return Err(CliError::Exit(Exit::NotFound, told()));
    }
    Ok(Path::new(path).to_owned())
}

/// Returns the sampling of a pass; equal indices show that every frame of the source was taken.
fn sampling(pass: &RecordedPass) -> Sampling {
    let is_every =
        pass.signals.iter().all(|signal| signal.source_frame_index == Some(signal.frame_index));
    match pass.sample_fps {
        Some(rate) if !is_every => Sampling::Fixed(rate),
        _ => Sampling::Every,
    }
}

fn print(verified: &Verified, json: bool) -> Result<(), CliError> {
    let mut out = StdoutWriter::stdout();
    if json {
        out.json(verified)?;
        return out.finish();
    }
    for pass in &verified.passes {
        let (frames, stills) = (counted(pass.frames, "frame"), counted(pass.stills, "still"));
        let found = match &pass.divergence {
            None => "proven".to_owned(),
            Some(divergence) => format!("DIVERGES: {divergence}"),
        };
        out.line(format_args!(
            "event {}: {frames} and {stills} of {} by {}: {found}",
            pass.seq, pass.source, pass.decoder
        ))?;
    }
    out.finish()
}
