//! A self-contained HTML page about one analysis: stills on a time axis, curves, episodes of activity, markers.
//!
//! Promises: one file, no request to anywhere, a content security policy that only its own
//! script and style satisfy, and no text from outside that is markup.

mod page;
mod still_sampler;

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use gate::{Gate, GateConfig, SelectionReason};
use media::{EventType, Signal};

pub use still_sampler::{ReportStill, StillSampler};

use crate::{activity::EpisodeRecord, error::CliError, wire::MarkerRecord};

/// Content of the page.
pub struct Report<'a> {
    /// Headline: the file's name.
    pub title: &'a str,
    /// `(what, value)` under the headline.
    pub facts: Vec<(&'static str, String)>,
    /// A sentence the reader must not miss, such as that the source was cut short.
    pub warning: Option<String>,
    /// One signal a frame, ascending.
    pub signals: &'a [Signal],
    /// Episodes of activity, ascending.
    pub episodes: &'a [EpisodeRecord],
    /// Markers in the order of the API.
    pub markers: &'a [MarkerRecord],
    /// Stills to show, and counts of the rest.
    pub stills: &'a StillSampler,
    /// Thresholds to draw; also decides the reason shown for each frame.
    pub gate: GateConfig,
    /// Time of the analysis, RFC 3339.
    pub made_at: String,
}

impl Report<'_> {
    /// Writes the page to `path`.
    pub fn write(&self, path: &Path) -> Result<(), CliError> {
        let write = || -> std::io::Result<()> {
            let mut out = BufWriter::new(File::create(path)?);
            page::write(self, &mut out)?;
            out.flush()
        };
        write().map_err(|source| CliError::Write { path: path.to_owned(), source })
    }

    /// The gate's reason for each frame, which its signal alone decides.
    fn reasons(&self) -> impl Iterator<Item = SelectionReason> {
        let mut gate = Gate::new(self.gate);
        self.signals.iter().map(move |signal| gate.offer(signal).reason)
    }

    fn markers_of(&self, kind: EventType) -> impl Iterator<Item = &MarkerRecord> {
        // A finalized marker repeats two segments that are markers of their own.
        self.markers.iter().filter(move |m| m.kind() == kind && m.status != "finalized")
    }
}

#[cfg(test)]
mod tests;
