//! Files of one export part, written locally first.

use std::path::Path;

use gate::{Gate, GateConfig};
use media::{ErrorKind, Marker, Seq};
use tables::{Cell, EVENTS, FRAMES, FrameRow, MARKERS, Table, TableError, Whole};
use timeline::{Event, EventKind, EventMeta, FramesDecoded, StreamedEvent, Timeline};

use super::{ExportError, PART_EVENTS};

/// Number of frame rows that completes a part.
const PART_FRAMES: u64 = 1 << 20;
/// Bytes of a file that complete a part.
const PART_BYTES: u64 = 64 << 20;

/// Part in progress; one row group of each table is in memory.
pub(super) struct Making {
    first: EventMeta,
    events: Table,
    markers: Table,
    frames: Table,
    /// Number of events and columns that the log cannot read.
    skipped: u64,
}

impl Making {
    /// Creates a part that begins with `first`, with its files in `dir`.
    pub(super) fn new(dir: &Path, node: &str, first: EventMeta) -> Result<Making, TableError> {
        let [events, markers, frames] =
            [&EVENTS, &MARKERS, &FRAMES].map(|schema| Table::create(dir, schema, ("node", node)));
        Ok(Making { first, events: events?, markers: markers?, frames: frames?, skipped: 0 })
    }

    pub(super) fn is_full(&self) -> bool {
        self.events.rows() >= PART_EVENTS
            || self.frames.rows() >= PART_FRAMES
            || [&self.events, &self.frames].iter().any(|table| table.bytes() >= PART_BYTES)
    }

    /// Adds an event, and its marker or its frames.
    pub(super) fn push(
        &mut self,
        timeline: &Timeline,
        head: EventMeta,
        gate: GateConfig,
    ) -> Result<(), ExportError> {
        // Retention may have removed the event since.
        let Some(event) = timeline.get_parts(head.seq)? else { return Ok(()) };
        let told = self.tell(timeline, &event, gate);
        if let Err(ExportError::Log(error)) = &told
            && error.kind() == ErrorKind::DataLoss
        {
            // A retry would fail too; the row of the event shows its damage.
            tracing::error!(%error, seq = %head.seq, "an event is not exported whole");
            self.skipped += 1;
        } else {
            told?;
        }
        let run = head.run.to_string();
        let payload = event.into_outline();
        Ok(self.events.push(&[
            run.as_str().into(),
            head.seq.0.into(),
            head.at.epoch_ms.into(),
            head.kind.as_str().into(),
            payload.as_str().into(),
        ])?)
    }

    fn tell(
        &mut self,
        timeline: &Timeline,
        event: &StreamedEvent,
        gate: GateConfig,
    ) -> Result<(), ExportError> {
        if !matches!(event.head.kind, EventKind::MarkerEmitted | EventKind::FramesDecoded) {
            return event.damage().map_or(Ok(()), |damage| Err(damage.into()));
        }
        match event.decode()? {
            // Markers of the gate beside a model's are left out, as by `GET markers`.
            Event::MarkerEmitted(marker) if !marker.beside => {
                Ok(self.push_marker(event.head, &marker)?)
            }
            Event::FramesDecoded(decoded) => self.push_frames(timeline, event.head, &decoded, gate),
            _ => Ok(()),
        }
    }

    fn push_marker(&mut self, head: EventMeta, marker: &Marker) -> Result<(), TableError> {
        let (run, id) = (marker.run_id.to_string(), marker.marker_id.to_string());
        let supersedes = marker.supersedes_marker_id.map(|id| id.to_string());
        let analysis = marker.analysis_id.map(|id| id.to_string());
        self.markers.push(&[
            run.as_str().into(),
            marker.stream_id.as_str().into(),
            id.as_str().into(),
            marker.event_type.as_str().into(),
            marker.status.as_str().into(),
            marker.start_frame.into(),
            marker.end_frame.into(),
            marker.start_pts_ms.into(),
            marker.end_pts_ms.into(),
            marker.confidence.as_f64().into(),
            supersedes.as_deref().into(),
            analysis.as_deref().into(),
            marker.origin.map(|origin| Cell::Text(origin.as_str())).into(),
            head.seq.0.into(),
            head.at.epoch_ms.into(),
        ])
    }

    fn push_frames(
        &mut self,
        timeline: &Timeline,
        head: EventMeta,
        decoded: &FramesDecoded,
        gate: GateConfig,
    ) -> Result<(), ExportError> {
        let (run, stream) = (head.run.to_string(), decoded.stream_id.as_str());
        let mut gate = Gate::new(decoded.gate.unwrap_or(gate));
        for signal in timeline.signal_rows(&decoded.signals)? {
            let signal = signal?;
            let decision = gate.offer(&signal);
            let mut row = FrameRow::from((&signal, &decision));
            row.seq = Some(head.seq.0);
            row.push(&mut self.frames, &run, stream)?;
        }
        Ok(())
    }

    /// Returns the files with rows; `end` is the event after the last.
    pub(super) fn finish(self, end: Seq) -> Result<Part, TableError> {
        let events = self.events.rows();
        // Events come last: a reader that sees their rows finds the other files.
        let tables = [(&FRAMES, self.frames), (&MARKERS, self.markers), (&EVENTS, self.events)];
        let tables = tables.into_iter().filter(|(_, table)| table.rows() > 0);
        let (date, first) = (self.first.at.date(), self.first.seq);
        let files = tables.map(|(schema, table)| {
            Ok(File { table: schema.name, date: date.clone(), first, end, whole: table.finish()? })
        });
        Ok(Part { files: files.collect::<Result<_, _>>()?, end, events, skipped: self.skipped })
    }
}

/// Part with complete local files.
pub(super) struct Part {
    pub(super) files: Vec<File>,
    /// First event after the part.
    pub(super) end: Seq,
    pub(super) events: u64,
    pub(super) skipped: u64,
}

/// Parses the numbers of the first and the last event from the name of a file; `None` for other names.
pub(super) fn span(name: &str) -> Option<(Seq, Seq)> {
    let (first, last) = name.strip_suffix(".parquet")?.split_once('-')?;
    Some((Seq(first.parse().ok()?), Seq(last.parse().ok()?)))
}

pub(super) struct File {
    table: &'static str,
    date: String,
    first: Seq,
    end: Seq,
    pub(super) whole: Whole,
}

impl File {
    /// File name at the destination; a repeat gives the same one.
    pub(super) fn name(&self, node: &str) -> String {
        let File { table, date, first, end, .. } = self;
        let last = end.0 - 1;
        format!("{table}/date={date}/node={node}/{:020}-{last:020}.parquet", first.0)
    }
}
