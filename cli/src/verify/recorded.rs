//! Decode passes of a run, as its timeline records them.

use std::path::Path;

use media::{FrameRate, GateConfig, RunId, Seq, Signal, Zones};
use timeline::{Event, EventKind, KeyframeStored, Timeline};

use crate::{error::CliError, log::locate};

/// Events read at a time.
const PAGE: usize = 1000;

/// One `frames_decoded`, and the stills that were stored with it.
pub struct RecordedPass {
    pub seq: Seq,
    pub source_uri: String,
    pub sample_fps: Option<FrameRate>,
    /// Thresholds that it was recorded with; `None` in older logs.
    pub gate: Option<GateConfig>,
    /// Its zones; of older logs the names alone.
    pub zones: Zones,
    pub signals: Vec<Signal>,
    /// In order; none where stills are not stored.
    pub stills: Vec<KeyframeStored>,
    /// Something cut it off: the last stills may not have been told.
    pub is_cut: bool,
}

/// Every decode pass of `run`, in order.
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
        return Err(CliError::NotFound(format!(
            "{}: nothing was decoded for run {run}",
            dir.display()
        )));
    }
    Ok(passes)
}
