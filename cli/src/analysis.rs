//! Analyses one file in a media worker: signals, decisions and markers, as the server makes them.

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use decode::{FileReport, StreamInfo};
use gate::{Decision, EpisodeChange, Episodes, Gate, GateConfig, SelectionReason};
use indicatif::ProgressBar;
use media::{MarkerOrigin, Rotation, RunId, Signal};
use timeline::{AnalysisKey, FrameLabel, MarkerConfig, derive_markers};
use worker::{
    CancelToken, EncodedImage, FrameRecord, JobEvent, JobOptions, JobSpec, Supervisor, WorkerError,
    WorkerLimits,
};

use crate::{
    activity::EpisodeRecord,
    error::CliError,
    output::{counted, grouped},
    progress,
    wire::MarkerRecord,
};

/// Run id of analyses without one, constant so that marker ids depend on the media only.
pub const NO_RUN: RunId = RunId::from_bytes([0; 16]);
/// Name that the server gives to an unnamed stream.
pub const STREAM: &str = "main";
/// Time limit of an analysis. A waiting user can press Ctrl-C; the limit is for hanging workers.
const WALL: Duration = Duration::from_secs(24 * 3600);
/// Limit of the worker's output: stills of half a million 8K frames.
const OUTPUT_BYTES: u64 = 256 << 30;

/// Analysis of a file.
pub struct AnalyzeJob {
    pub path: PathBuf,
    pub run: RunId,
    pub options: JobOptions,
}

pub struct Analysis {
    pub run: RunId,
    pub bytes: u64,
    pub stream: StreamInfo,
    pub report: FileReport,
    pub gate: GateConfig,
    pub signals: Vec<Signal>,
    pub decided: Decided,
}

/// Still of a selected frame.
pub struct Still {
    pub frame_index: u64,
    pub pts_ms: i64,
    pub reason: SelectionReason,
    pub picture: EncodedImage,
}

/// Results that follow from the signals alone.
pub struct Decided {
    pub decisions: Vec<Decision>,
    pub episodes: Vec<EpisodeRecord>,
    pub markers: Vec<MarkerRecord>,
}

/// Analyses a file; passes each still to `on_still` as it arrives, and keeps none.
pub fn analyze(
    supervisor: &Supervisor,
    job: &AnalyzeJob,
    cancel: &CancelToken,
    mut on_still: impl FnMut(Still) -> Result<(), CliError>,
) -> Result<Analysis, CliError> {
    let (input, bytes) = open(&job.path)?;
    let gate = job.options.gate;
    let limits = WorkerLimits { wall: WALL, output_bytes: OUTPUT_BYTES, ..WorkerLimits::default() };
    let spec = JobSpec { limits, ..JobSpec::new(input, job.options.clone()) };
    let mut stream = None;
    let (mut signals, mut decides) = (Vec::new(), Gate::new(gate));
    let mut bar: Option<ProgressBar> = None;
    let mut failure = None;
    let outcome = supervisor.run_job(spec, cancel, &mut |event| {
        match event {
            JobEvent::Opened(info) => {
                let ms = info.duration.and_then(|length| u64::try_from(length.as_millis()).ok());
                bar = Some(progress::start("analysing", ms));
                stream = Some(info);
            }
            JobEvent::Progress { frames, pts_ms } => {
                if let Some(bar) = &bar {
                    let at = u64::try_from(pts_ms).unwrap_or(0);
                    progress::show(bar, at, None, counted(frames, "frame"));
                }
            }
            JobEvent::Frames(records) => {
                for FrameRecord { signal, pictures, .. } in records {
                    signals.push(signal);
                    let (reason, still) = (decides.offer(&signal).reason, pictures.still);
                    let Signal { frame_index, pts_ms, .. } = signal;
                    let still = still.map(|picture| Still { frame_index, pts_ms, reason, picture });
                    if let Err(error) = still.map_or(Ok(()), &mut on_still) {
                        failure = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            JobEvent::Measured(by) => {
                if let Some(reason) = by.lost {
                    note!("warning: the gate's device was given up: {reason}");
                }
            }
            JobEvent::Segment { .. } | JobEvent::Spent(_) | JobEvent::Done(_) => {}
        }
        ControlFlow::Continue(())
    });
    bar.iter().for_each(ProgressBar::finish_and_clear);
    // A cancelled analysis counts as interrupted, whatever its outcome.
    if let Some(failure) = cancel.is_cancelled().then_some(CliError::Interrupted).or(failure) {
        return Err(failure);
    }
    let failed = |source| CliError::Analysis { path: job.path.clone(), source };
    let report = outcome.map_err(failed)?;
    let stream = stream.ok_or_else(|| failed(WorkerError::Ended))?;
    let decided = decide(job.run, gate, &job.options.zones.names(), &signals);
    Ok(Analysis { run: job.run, bytes, stream, report, gate, signals, decided })
}

/// Opens a regular file, and returns its length; opening anything else may block for ever.
pub fn open(path: &Path) -> Result<(File, u64), CliError> {
    let failed = |source| CliError::Read { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(CliError::Analysis { path: path.to_owned(), source: WorkerError::NotAFile });
    }
    Ok((File::open(path).map_err(failed)?, metadata.len()))
}

/// Derives the decisions, the episodes in zones of these names, and the markers of `run`.
pub fn decide(run: RunId, config: GateConfig, zones: &[String], signals: &[Signal]) -> Decided {
    let mut gate = Gate::new(config);
    let decisions: Vec<Decision> = signals.iter().map(|signal| gate.offer(signal)).collect();
    let mut open = Episodes::default();
    let pairs = signals.iter().zip(&decisions);
    let mut episodes: Vec<_> = pairs
        .filter_map(|(signal, decision)| open.push(signal, decision, config.quiet_below()))
        .filter_map(|change| match change {
            EpisodeChange::Started(_) => None,
            EpisodeChange::Ended(episode) => Some(episode),
        })
        .collect();
    episodes.extend(open.end());
    let episodes = episodes.iter().map(|it| EpisodeRecord::of(it, STREAM, zones)).collect();
    let findings = signals.iter().zip(&decisions).map(|(signal, decision)| FrameLabel {
        frame_index: signal.frame_index,
        pts_ms: signal.pts_ms,
        event_type: decision.reason.event_type(),
        is_scene_cut: decision.reason == SelectionReason::SceneCut,
        confidence: decision.confidence,
        origin: MarkerOrigin::Gate,
    });
    let stream = STREAM.parse().expect("the constant is a valid stream id");
    let analysis = AnalysisKey { run, stream, ordinal: 0 };
    let markers = derive_markers(&analysis, findings, MarkerConfig::default());
    Decided { decisions, episodes, markers: markers.iter().map(MarkerRecord::from).collect() }
}

/// Returns facts about a source, as names and values to print.
pub fn facts(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let Analysis { stream, report, .. } = analysis;
    let picture = report.first_extent.unwrap_or(stream.extent);
    let turned = match stream.rotation {
        Rotation::None => String::new(),
        rotation => format!(", turned {}°", rotation.degrees()),
    };
    let mut facts = vec![
        ("Codec", stream.codec.as_str().to_owned()),
        ("Container", container(stream)),
        ("Picture", format!("{}×{}{turned}", picture.width, picture.height)),
        ("Pixels", stream.pixel_format.clone()),
    ];
    if let Some(rate) = report.source_rate.or(stream.source_rate) {
        facts.push(("Rate", format!("{} fps", rounded(rate.as_f64()))));
    }
    if let Some(duration) = stream.duration {
        facts.push(("Duration", crate::output::clock(duration.as_millis())));
    }
    facts.push(("File", crate::output::bytes(analysis.bytes)));
    facts.push(("Decoder", report.decoder.clone()));
    let analysed = grouped(report.frames);
    let frames = match report.frames == report.source_frames {
        true => format!("{analysed} analysed"),
        false => format!("{analysed} of {} analysed", grouped(report.source_frames)),
    };
    facts.push(("Frames", frames));
    facts
}

/// Returns the first two of libav's names of the container; `mov` has six.
pub fn container(stream: &StreamInfo) -> String {
    stream.container.split(',').take(2).collect::<Vec<_>>().join("/")
}

/// Returns a warning if the results are incomplete.
pub fn warning(report: &FileReport) -> Option<String> {
    if report.more_frames {
        let frames = counted(report.frames, "frame");
        return Some(format!("The source goes on after {frames}: --max-frames asks for more."));
    }
    match (report.truncated, report.damaged_packets) {
        (true, 0) => Some("The source ends early; everything before that is shown.".to_owned()),
        (true, n) => Some(format!("The source ends early and {} packets are damaged.", grouped(n))),
        (false, 0) => None,
        (false, n) => Some(format!("{} packets of the source are damaged.", grouped(n))),
    }
}

/// Rounds to two decimals.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
