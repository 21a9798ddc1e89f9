//! Decode passes of a run, as recorded in its timeline.

use std::path::Path;

use media::{FrameRate, GateConfig, RunId, Seq, Signal, Zones};
use timeline::{Event, EventKind, KeyframeStored, Timeline};

use crate::{
    error::{CliError, Exit},
    log::locate,
};

/// Events read at a time.
const PAGE: usize = 1000;

/// A `frames_decoded` event, and the stills stored before it.
pub struct RecordedPass {
    pub seq: Seq,
    pub source_uri: String,
    pub sample_fps: Option<FrameRate>,
    /// Thresholds of the recording; `None` in older logs.
    pub gate: Option<GateConfig>,
    /// Zones of the recording; in older logs only their names.
    pub zones: Zones,
    pub signals: Vec<Signal>,
    /// Stills in order; empty if stills are not stored.
    pub stills: Vec<KeyframeStored>,
    /// True if the pass was cut off: the last stills may not have been recorded.
    pub is_cut: bool,
}

/// Reads every decode pass of `run`, in order.
pub fn passes(data_dir: &Path, run: RunId) -> Result<Vec<RecordedPass>, CliError> {
    let dir = locate(data_dir)?;
    let failed = |source| CliError::Log { dir: dir.clone(), source };
    let (log, _) = Timeline::open_read_only(&dir).map_err(failed)?;
    let mut passes = Vec::new();
    let mut stills = Vec::new();
    let mut from = Seq(0);
    loop {
        let page = log.read(run, from, PAGE, None).map_err(failed)?;
        let Some(last) = page.last().map(|event| event.head.seq) else { break };
        for stored in &page {
            let kind = stored.head.kind;
            if !matches!(kind, EventKind::KeyframeStored | EventKind::FramesDecoded) {
                continue;
            }
            match stored.decode().map_err(failed)? {
                Event::KeyframeStored(still) => stills.push(still),
                Event::FramesDecoded(decoded) => passes.push(RecordedPass {
                    seq: stored.head.seq,
                    source_uri: decoded.source_uri,
                    sample_fps: decoded.sample_fps,
                    gate: decoded.gate,
                    zones: decoded.zones,
                    is_cut: decoded.reason.is_some(),
                    signals: log.signals(&decoded.signals).map_err(failed)?,
                    stills: std::mem::take(&mut stills),
                }),
                _ => {}
            }
        }
        from = Seq(last.0 + 1);
    }
    if passes.is_empty() {
        let dir = dir.display();
        let said = format!("{dir}: nothing was decoded for run {run}");
        return Err(CliError::Exit(Exit::NotFound, said));
    }
    Ok(passes)
}
