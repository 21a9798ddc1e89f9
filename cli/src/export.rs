//! `sightline export`: writes a run's frames, episodes, markers and events as Parquet, see docs/PARQUET.md.
//!
//! Responses of any length are read and written row by row. The files appear once all are complete; until
//! then earlier ones stay.

mod records;

use std::path::{Path, PathBuf};

use reqwest::blocking::Response;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tables::{EPISODES, EVENTS, FRAMES, FrameRow, MARKERS, Schema, Table, TableError, Whole};
use worker::CancelToken;

use crate::{
    activity,
    analysis::{self, Analysis},
    client::{ApiClient, ServerArgs, run_path},
    error::CliError,
    interrupt,
    output::{self, StdoutWriter, grouped},
    wire::MarkerRecord,
};
use records::{EventRow, marker_cells, push_episode};

/// End of the long help.
const FILES_HELP: &str = "\
Files:
  frames.parquet   one row a frame: its signals and what the gate decided
  episodes.parquet one row an episode, in which something moves
  markers.parquet  one row a marker of the newest analysis
  events.parquet   one row an event, its payload as JSON
docs/PARQUET.md has every column. DuckDB, Polars and pandas open them as they are.";

#[derive(clap::Args)]
#[command(after_long_help = FILES_HELP)]
pub struct ExportArgs {
    /// Run id
    run: String,
    /// Directory for the files, made when there is none
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &ExportArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let cancel = interrupt::token()?;
    let export = Export { client: &client, run: &args.run, cancel: &cancel };
    // Comes first, so that an unknown run leaves no directory.
    let events = export.ask("/events", &[])?;
    let mut folder = Folder::open(&args.out)?;
    let streams = export.events(&mut folder, events)?;
    export.frames(&mut folder, streams)?;
    export.episodes(&mut folder)?;
    export.markers(&mut folder)?;
    let rows = folder
        .whole
        .iter()
        .map(|file| [file.path.display().to_string(), grouped(file.rows), grouped(file.bytes)]);
    let table = output::TextTable::of(["FILE", ">ROWS", ">BYTES"], rows);
    folder.keep()?;
    let mut out = StdoutWriter::stdout();
    out.table(&table)?;
    out.finish()
}

/// Writes the results of `analyze`, which has no events.
pub fn write_analysis(dir: &Path, found: &Analysis) -> Result<(), CliError> {
    let run = found.run.to_string();
    let mut folder = Folder::open(dir)?;
    let mut frames = folder.table(&FRAMES, &run)?;
    for (signal, decision) in found.signals.iter().zip(&found.decided.decisions) {
        FrameRow::from((signal, decision)).push(&mut frames, &run, analysis::STREAM)?;
    }
    folder.add(frames)?;
    let mut episodes = folder.table(&EPISODES, &run)?;
    found.decided.episodes.iter().try_for_each(|it| push_episode(&mut episodes, &run, it))?;
    folder.add(episodes)?;
    let mut markers = folder.table(&MARKERS, &run)?;
    found.decided.markers.iter().try_for_each(|marker| markers.push(&marker_cells(marker)))?;
    folder.add(markers)?;
    folder.keep()
}

/// Run to export, and the client to fetch it with.
struct Export<'a> {
    client: &'a ApiClient,
    run: &'a str,
    cancel: &'a CancelToken,
}

impl Export<'_> {
    fn ask(&self, rest: &str, query: &[(&str, String)]) -> Result<Response, CliError> {
        self.client.reading(&run_path(self.run, rest)?, query)
    }

    /// Passes each item of a response's array to `take`; fails after Ctrl-C.
    fn each<T: DeserializeOwned>(
        &self,
        answer: Response,
        list: &str,
        mut take: impl FnMut(&Map<String, Value>, T) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        self.client.each(answer, list, |head, item| match self.cancel.is_cancelled() {
            true => Err(CliError::Interrupted),
            false => take(head, item),
        })
    }

    /// Writes the events; returns the streams that have frames.
    fn events(&self, folder: &mut Folder, answer: Response) -> Result<Vec<String>, CliError> {
        let mut table = folder.table(&EVENTS, self.run)?;
        let mut streams: Vec<String> = Vec::new();
        self.each(answer, "events", |_, event: EventRow| {
            if let Some(stream) = event.stream()
                && !streams.iter().any(|known| known == stream)
            {
                streams.push(stream.to_owned());
            }
            Ok(event.push(&mut table, self.run)?)
        })?;
        folder.add(table)?;
        Ok(streams)
    }

    fn frames(&self, folder: &mut Folder, streams: Vec<String>) -> Result<(), CliError> {
        let mut table = folder.table(&FRAMES, self.run)?;
        let mut queries: Vec<Vec<(&str, String)>> =
            streams.into_iter().map(|stream| vec![("stream_id", stream)]).collect();
        if queries.is_empty() {
            // A live stream has frames before the event that names it.
            queries.push(Vec::new());
        }
        for query in queries {
            let answer = self.ask("/signals", &query)?;
            self.each(answer, "signals", |head, frame: FrameRow<'_>| {
                let stream = head.get("stream_id").and_then(Value::as_str).unwrap_or_default();
                Ok(frame.push(&mut table, self.run, stream)?)
            })?;
        }
        folder.add(table)
    }

    fn episodes(&self, folder: &mut Folder) -> Result<(), CliError> {
        let mut table = folder.table(&EPISODES, self.run)?;
        let found = activity::fetch(self.client, self.run)?;
        found.iter().try_for_each(|it| push_episode(&mut table, self.run, it))?;
        folder.add(table)
    }

    fn markers(&self, folder: &mut Folder) -> Result<(), CliError> {
        let mut table = folder.table(&MARKERS, self.run)?;
        let answer = self.ask("/markers", &[])?;
        self.each(answer, "markers", |_, marker: MarkerRecord| {
            Ok(table.push(&marker_cells(&marker))?)
        })?;
        folder.add(table)
    }
}

/// Folder of the files, and the files that are complete.
struct Folder {
    dir: PathBuf,
    whole: Vec<Whole>,
}

impl Folder {
    /// Opens the directory, and creates it if it does not exist.
    fn open(dir: &Path) -> Result<Folder, CliError> {
        std::fs::create_dir_all(dir)
            .map_err(|source| CliError::Write { path: dir.to_owned(), source })?;
        Ok(Folder { dir: dir.to_owned(), whole: Vec::new() })
    }

    /// Begins a file of rows about `run`.
    fn table(&self, schema: &Schema, run: &str) -> Result<Table, CliError> {
        Ok(Table::create(&self.dir, schema, ("run_id", run))?)
    }

    /// Completes a file that has all its rows.
    fn add(&mut self, table: Table) -> Result<(), CliError> {
        self.whole.push(table.finish()?);
        Ok(())
    }

    /// Renames every file to its final name.
    fn keep(self) -> Result<(), CliError> {
        Ok(self.whole.into_iter().try_for_each(Whole::keep)?)
    }
}

impl From<TableError> for CliError {
    fn from(TableError { path, source }: TableError) -> CliError {
        CliError::Write { path, source }
    }
}
