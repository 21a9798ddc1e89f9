//! `sightline log`: the run log on disk, without its server.
//!
//! `verify` and `cat` change nothing and may run beside a server. `repair` truncates the log at its first
//! damage, keeps the cut bytes in files beside it, and needs the server stopped.

mod ledger;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use media::{BlobHash, RunId, Seq};
use serde_json::{json, value::RawValue};
use timeline::{BlobStore, CutBytes, Event, EventKind, RepairPlan, StoredEvent, TimelineError};

use crate::{
    error::{CliError, Exit},
    output::{StdoutWriter, counted, grouped},
    wire::EventRecord,
};

#[derive(clap::Args)]
pub struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(clap::Subcommand)]
enum LogCommand {
    /// Read and check every acknowledged byte, stills and ledger too; exit code 7 when something is damaged or lost
    ///
    /// Names every place where a journal is damaged, each damaged column and still, and a damaged ledger. Stills
    /// are checked only up to the first damage of the journal.
    Verify {
        /// Data directory of the server, or its log
        dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print every event as one JSON object a line; exit with 7 if damaged ones are left out
    Cat {
        /// Data directory of the server, or its log
        dir: PathBuf,
        /// Only events of this run
        #[arg(long, value_name = "ID")]
        run: Option<RunId>,
        /// Only events of this kind
        #[arg(long, value_parser = kind)]
        kind: Option<EventKind>,
        /// First sequence number to show
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        from_seq: u64,
    },
    /// Truncate a damaged log at its first damage; the rest is kept in files beside it
    ///
    /// The rest is every later event, as numbers have no gaps: also those that are not damaged and that the server
    /// still answers, and those that it acknowledged since the damage. Restore the newest backup in its place, or
    /// save what you need with `sightline events` and `sightline export` while the server runs. Needs it stopped.
    Repair {
        /// Data directory of the server, or its log
        dir: PathBuf,
        /// Only print what would be cut
        #[arg(long, conflicts_with = "json")]
        dry_run: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

fn kind(text: &str) -> Result<EventKind, String> {
    EventKind::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("no such kind; there are {}", names.join(", "))
    })
}

pub fn run(args: &LogArgs) -> Result<(), CliError> {
    match &args.command {
        LogCommand::Verify { dir, json } => verify(&locate(dir)?, *json),
        LogCommand::Cat { dir, run, kind, from_seq } => cat(&locate(dir)?, |event| {
            let head = &event.head;
            run.is_none_or(|run| head.run == run)
                && kind.is_none_or(|kind| head.kind == kind)
                && head.seq >= Seq(*from_seq)
        }),
        LogCommand::Repair { dir, dry_run: true, .. } => print_plan(&locate(dir)?),
        LogCommand::Repair { dir, json, .. } => repair(&locate(dir)?, *json),
    }
}

/// Returns the log below a data directory, or the directory itself if it is a log.
pub fn locate(dir: &Path) -> Result<PathBuf, CliError> {
    let candidates = [dir.to_owned(), dir.join("log")];
    candidates.into_iter().find(|candidate| candidate.join("journal").is_dir()).ok_or_else(|| {
        let dir = dir.display();
        let said = format!("{dir}: no log of a server: name the data directory of one");
        CliError::Exit(Exit::NotFound, said)
    })
}

fn verify(dir: &Path, json: bool) -> Result<(), CliError> {
    let failed = |source| CliError::Log { dir: dir.to_owned(), source };
    let mut report = timeline::verify(dir).map_err(failed)?;
    let (stills, stills_away) = verify_stills(dir, &mut report.problems);
    let open = verify_open(&beside(dir, "open-columns"), &mut report.problems);
    let ledger = beside(dir, "ledger");
    report.problems.extend(ledger::check(ledger.parent().unwrap_or(dir))?);
    let torn_tail = report.torn.as_ref().map(torn);
    let problems: Vec<String> = report.problems.iter().map(TimelineError::to_string).collect();
    let mut out = StdoutWriter::stdout();
    if json {
        out.json(&json!({
            "sound": problems.is_empty(),
            "events": report.events,
            "files": report.files,
            "columns": report.columns,
            "open_columns": open,
            "stills": stills,
            "stills_away": stills_away,
            "footers_missing": report.footers_missing,
            "torn_tail": torn_tail,
            "problems": problems,
        }))?;
    } else {
        let (events, files) = (counted(report.events, "event"), counted(report.files, "file"));
        let (columns, stills) = (counted(report.columns, "column"), counted(stills, "still"));
        out.line(format_args!("{events} in {files}, {columns}, {stills}"))?;
        if open > 0 {
            out.line(format_args!("{} in progress, or left", counted(open, "recording")))?;
        }
        if stills_away > 0 {
            let away = grouped(stills_away);
            out.line(format_args!(
                "{away} more stills are in the object store, which is not read"
            ))?;
        }
        if let Some(torn) = torn_tail {
            out.line(format_args!("an unfinished batch, cut at the next start: {torn}"))?;
        }
        if report.footers_missing > 0 {
            let missing = report.footers_missing;
            out.line(format_args!("{missing} footers missing, made again at the next start"))?;
        }
        problems.iter().try_for_each(|problem| out.line(problem))?;
        if problems.is_empty() {
            out.line("sound")?;
        }
    }
    out.finish()?;
    // The first problem becomes the error, so that the exit code is that of damage.
    report.problems.into_iter().next().map_or(Ok(()), |problem| Err(failed(problem)))
}

/// Checks the open columns in `dir`; returns the number of intact ones. An unfinished end is no damage.
fn verify_open(dir: &Path, problems: &mut Vec<TimelineError>) -> u64 {
    let paths = match fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            let (what, path) = ("list the open columns", dir.to_owned());
            problems.push(TimelineError::Io { what, path, source });
            Vec::new()
        }
    };
    let mut whole = 0;
    for path in paths {
        match timeline::check_open_column(&path) {
            Ok(is_one) => whole += u64::from(is_one),
            // The recording has ended meanwhile.
            Err(_) if !path.exists() => {}
            Err(problem) => problems.push(problem),
        }
    }
    whole
}

fn beside(dir: &Path, name: &str) -> PathBuf {
    match dir.file_name() {
        Some(_) => dir.with_file_name(name),
        // Of `.` and `..` the name is not known.
        None => dir.join("..").join(name),
    }
}

/// Checks the stills that the log in `dir` names; returns the number of intact ones, and of those that only
/// the object store has. Stills of deleted runs and past their retention may be missing.
fn verify_stills(dir: &Path, problems: &mut Vec<TimelineError>) -> (u64, u64) {
    let blobs = BlobStore::at(&beside(dir, "blobs"));
    let kept_from = match blobs.removed_before() {
        Ok(before) => before,
        Err(problem) => {
            problems.push(problem);
            return (0, 0);
        }
    };
    // Each still, and the runs that may still show it.
    let mut stills: BTreeMap<(BlobHash, u64), BTreeSet<RunId>> = BTreeMap::new();
    let mut deleted: BTreeSet<RunId> = BTreeSet::new();
    let named = timeline::cat(dir, |event| {
        let head = event.head;
        if head.kind == EventKind::RunDeleted {
            deleted.insert(head.run);
        }
        if head.kind == EventKind::KeyframeStored
            && let Ok(Event::KeyframeStored(still)) = event.decode()
        {
            let runs = stills.entry((still.image_sha256, still.image_bytes)).or_default();
            runs.extend(kept_from.is_none_or(|from| head.at >= from).then_some(head.run));
        }
        ControlFlow::Continue(())
    });
    if named.is_err() && problems.is_empty() {
        problems.extend(named.err());
    }
    let (mut intact, mut away) = (0, 0);
    for ((hash, bytes), runs) in stills {
        match blobs.get(&hash, bytes) {
            Ok(Some(_)) => intact += 1,
            Ok(None) if runs.is_subset(&deleted) => {}
            Ok(None) => problems.push(TimelineError::Damaged {
                file: blobs.path(&hash),
                offset: 0,
                what: "the still that an event names is missing",
            }),
            // The server checks those when it reads them.
            Err(TimelineError::Away { .. }) => away += 1,
            Err(problem) => problems.push(problem),
        }
    }
    (intact, away)
}

fn torn(tail: &timeline::TornTail) -> String {
    format!("{} bytes at offset {} of {}", tail.bytes, tail.offset, tail.file.display())
}

fn cat(dir: &Path, wanted: impl Fn(&StoredEvent) -> bool) -> Result<(), CliError> {
    let mut out = StdoutWriter::stdout();
    let mut failure = None;
    let outcome = timeline::cat(dir, |event| {
        if !wanted(&event) {
            return ControlFlow::Continue(());
        }
        match print(&mut out, event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    // Events before the damage are printed, then the damage is reported.
    let finished = out.finish();
    failure.map_or(Ok(()), Err)?;
    outcome.map_err(|source| CliError::Log { dir: dir.to_owned(), source })?;
    finished
}

fn print(out: &mut StdoutWriter, event: StoredEvent) -> Result<(), CliError> {
    let payload = RawValue::from_string(event.payload.into_string())
        .map_err(|error| CliError::Check(format!("event {}: {error}", event.head.seq)))?;
    out.json_line(&EventRecord {
        seq: event.head.seq.0,
        pts_ms: event.head.at.epoch_ms,
        kind: event.head.kind.as_str().to_owned(),
        run_id: Some(event.head.run.to_string()),
        payload,
    })
}

/// Returns a line about the events that a repair would cut; `None` if nothing is damaged.
fn plan(dir: &Path) -> Result<Option<String>, CliError> {
    let plan = timeline::plan_repair(dir)
        .map_err(|source| CliError::Log { dir: dir.to_owned(), source })?;
    Ok(plan.map(|RepairPlan { damage, from, readable }| {
        let readable = grouped(readable);
        format!("{damage}: a cut takes event {from} and all after it, {readable} of them readable")
    }))
}

fn print_plan(dir: &Path) -> Result<(), CliError> {
    let plan = plan(dir)?;
    let mut out = StdoutWriter::stdout();
    out.line(plan.as_deref().unwrap_or("nothing is damaged, nothing would be cut"))?;
    out.finish()
}

fn repair(dir: &Path, json: bool) -> Result<(), CliError> {
    if let Some(plan) = plan(dir)? {
        note!("sightline: {plan}");
    }
    let report =
        timeline::repair(dir).map_err(|source| CliError::Log { dir: dir.to_owned(), source })?;
    let mut out = StdoutWriter::stdout();
    if json {
        let removed = report.removed.iter().map(|CutBytes { from, offset, bytes, kept_in }| {
            let (from, kept_in) = (from.to_string_lossy(), kept_in.to_string_lossy());
            json!({ "from": from, "offset": offset, "bytes": bytes, "kept_in": kept_in })
        });
        out.json(&json!({
            "events": report.events,
            "damage": report.damage.as_ref().map(TimelineError::to_string),
            "removed": removed.collect::<Vec<_>>(),
        }))?;
        return out.finish();
    }
    match &report.damage {
        Some(damage) => out.line(format_args!("cut at: {damage}"))?,
        None => out.line("nothing is damaged, nothing was cut")?,
    }
    for cut in &report.removed {
        let (from, kept) = (cut.from.display(), cut.kept_in.display());
        out.line(format_args!(
            "{} bytes of {from} from offset {} are now in {kept}",
            cut.bytes, cut.offset
        ))?;
    }
    out.line(format_args!("left: {}", counted(report.events, "event")))?;
    out.finish()
}
