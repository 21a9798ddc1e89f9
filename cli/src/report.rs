//! A self-contained HTML page about one analysis: stills on a time axis, curves, activity episodes, markers.
//!
//! Promises one file without any network request, a content security policy that allows only its own script
//! and style, and no untrusted text as markup.

mod page;
mod still_sampler;

use std::path::Path;

use gate::{Gate, GateConfig, SelectionReason};
use media::{EventType, Signal};

pub use still_sampler::{ReportStill, StillSampler};

use crate::{activity::EpisodeRecord, error::CliError, replace::replace, wire::MarkerRecord};

/// Content of the page.
pub struct Report<'a> {
    /// Headline: the file's name.
    pub title: &'a str,
    /// Facts under the headline, as names and values.
    pub facts: Vec<(&'static str, String)>,
    /// Important notice, for example that the source was truncated.
    pub warning: Option<String>,
    /// Signals in ascending order of frames.
    pub signals: &'a [Signal],
    /// Activity episodes in ascending order.
    pub episodes: &'a [EpisodeRecord],
    /// Markers in the API's order.
    pub markers: &'a [MarkerRecord],
    /// Stills to show, and counts of the rest.
    pub stills: &'a StillSampler,
    /// Thresholds to draw; also decides the reason shown for each frame.
    pub gate: GateConfig,
    /// Time of the analysis, RFC 3339.
    pub made_at: String,
}

impl Report<'_> {
    pub fn write(&self, path: &Path) -> Result<(), CliError> {
        replace(path, None, |mut out| page::write(self, &mut out))
    }

    /// Returns the gate's reason for each frame, derived from the signals.
    fn reasons(&self) -> impl Iterator<Item = SelectionReason> {
        let mut gate = Gate::new(self.gate);
        self.signals.iter().map(move |signal| gate.offer(signal).reason)
    }

    fn markers_of(&self, kind: EventType) -> impl Iterator<Item = &MarkerRecord> {
        // A finalized marker repeats two markers, which are counted themselves.
        self.markers.iter().filter(move |m| m.kind() == kind && m.status != "finalized")
    }
}

#[cfg(test)]
mod tests;
