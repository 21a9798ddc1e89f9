//! `sightline events`: prints the timeline of a run, once or as it grows.
//!
//! Recorded events come in one response, printed while it is read. Following then polls `POST /v1/query` with
//! a cursor; it ends at the event that ends the run, and survives a restart of the server.

use std::time::{Duration, Instant};

use media::WallTime;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use worker::CancelToken;

use crate::{
    activity,
    client::{ApiClient, QUICK, ServerArgs, given, run_path},
    error::{ApiError, CliError},
    output::{StdoutWriter, TextTable, clock, printable},
    wire::{EventRecord, QueryReply},
    words,
};

/// Rows of the table that are aligned together, and most events of a poll.
const PAGE: u32 = 1000;
const WAIT_MS: u32 = 20_000;
/// Least interval of polls that find nothing: a draining server holds no answer.
pub const POLL_EVERY: Duration = Duration::from_millis(100);
const RECONNECT: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_secs(1);
const ENDS: [&str; 5] =
    ["run_completed", "run_failed", "run_expired", "stop_requested", "run_deleted"];

#[derive(clap::Args)]
#[command(after_long_help = words::of_events())]
pub struct EventsArgs {
    /// Run id
    run: String,
    /// Wait for further events until the run ends
    #[arg(long, short)]
    follow: bool,
    /// First sequence number to show
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from_seq: u64,
    /// Only events of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Print one JSON object a line, the payload as the server sent it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Fields used of a run.
#[derive(Deserialize)]
struct Run {
    status: String,
    #[serde(default)]
    active_job: Option<IgnoredAny>,
    #[serde(default)]
    session_id: Option<IgnoredAny>,
}

pub fn run(args: &EventsArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let (next, printer) = (args.from_seq, Printer::new(args.json));
    let mut timeline = Timeline { args, client: &client, next, has_ended: false, printer };
    retry_unreachable(args.follow.then(CancelToken::new).as_ref(), || timeline.read())?;
    if args.follow { timeline.follow() } else { Ok(()) }
}

/// Prints the timeline of a run; events before `next` have been printed.
struct Timeline<'a> {
    args: &'a EventsArgs,
    client: &'a ApiClient,
    next: u64,
    has_ended: bool,
    printer: Printer,
}

impl Timeline<'_> {
    /// Prints the recorded events while they are read.
    fn read(&mut self) -> Result<(), CliError> {
        let EventsArgs { run, kind, .. } = self.args;
        let from = [("from_seq", self.next.to_string())].into_iter();
        let query: Vec<_> = from.chain(kind.clone().map(|kind| ("kind", kind))).collect();
        let answer = self.client.reading(&run_path(run, "/events")?, &query)?;
        let read = self.client.each(answer, "events", |_, mut event: EventRecord| {
            event.run_id = Some(run.clone());
            // An older server ignores the parameter and sends all kinds.
            if kind.as_ref().is_none_or(|kind| *kind == event.kind) {
                self.take(&event)
            } else {
                Ok(())
            }
        });
        self.printer.flush()?;
        read
    }

    /// Prints new events until the run ends.
    fn follow(&mut self) -> Result<(), CliError> {
        let (mut more, mut is_told) = (false, false);
        while more || !self.has_ended {
            // The event that ends the run may be of another kind than asked for, so the run's state is
            // checked; then events before the end are read once more.
            let over = !more && self.is_over(&mut is_told)?;
            let query = json!({
                "run_id": self.args.run,
                "kind": self.args.kind,
                "from_seq": self.next,
                "limit": PAGE,
                "wait_ms": (!over).then_some(WAIT_MS),
            });
            let reply = ask(self.client, &given(query), &CancelToken::new())?;
            reply.matches.iter().try_for_each(|event| self.take(event))?;
            self.printer.flush()?;
            (self.next, more) = (reply.next_from_seq, reply.has_more);
            self.has_ended |= over;
        }
        Ok(())
    }

    /// Returns true if the run has ended; prints a note once if the run is idle.
    fn is_over(&self, is_told: &mut bool) -> Result<bool, CliError> {
        let path = run_path(&self.args.run, "")?;
        let never = CancelToken::new();
        let run: Run = retry_unreachable(Some(&never), || self.client.get(&path, &[]))?;
        let rests = run.active_job.is_none() && run.session_id.is_none();
        if rests && run.status == "processing" && !std::mem::replace(is_told, true) {
            note!(
                "sightline: nothing is under way in the run now; `sightline runs finish {}` ends it",
                printable(&self.args.run)
            );
        }
        Ok(!matches!(&*run.status, "pending" | "processing"))
    }

    fn take(&mut self, event: &EventRecord) -> Result<(), CliError> {
        self.next = event.seq + 1;
        self.has_ended |= ENDS.contains(&event.kind.as_str());
        self.printer.print(event)
    }
}

/// Polls once; waits for a server that went away to come back, as [`retry_unreachable`] does.
pub fn ask(
    client: &ApiClient,
    query: &Value,
    cancel: &CancelToken,
) -> Result<QueryReply, CliError> {
    let patience = QUICK + Duration::from_millis(WAIT_MS.into());
    let asked = Instant::now();
    let reply: QueryReply =
        retry_unreachable(Some(cancel), || client.post("v1/query", query, patience))?;
    if query["wait_ms"].is_u64() && reply.matches.is_empty() {
        std::thread::sleep(POLL_EVERY.saturating_sub(asked.elapsed()));
    }
    Ok(reply)
}

/// Retries while the server is unreachable, until Ctrl-C, or the caller asks too often; for `RECONNECT` at most, and
/// not at all without `cancel`.
pub fn retry_unreachable<T>(
    cancel: Option<&CancelToken>,
    mut ask: impl FnMut() -> Result<T, CliError>,
) -> Result<T, CliError> {
    let give_up = Instant::now() + RECONNECT;
    // What follows a Ctrl-C is tried again too; the next one exits the process.
    let was_cancelled = cancel.is_some_and(CancelToken::is_cancelled);
    loop {
        let reason = match (ask(), cancel.filter(|_| Instant::now() < give_up)) {
            (Err(CliError::Unreachable { reason, .. }), Some(cancel))
                if cancel.is_cancelled() == was_cancelled =>
            {
                reason
            }
            (Err(CliError::Api(ApiError { status: 429, message, .. })), Some(_)) => message,
            (outcome, _) => return outcome,
        };
        note!("sightline: {}; trying again", printable(&reason));
        std::thread::sleep(RETRY_EVERY);
    }
}

/// Prints events to standard output, as JSON lines or a growing table.
pub struct Printer {
    table: Option<TextTable>,
    out: StdoutWriter,
}

impl Printer {
    pub fn new(json: bool) -> Printer {
        let table = (!json).then(|| TextTable::new(&[">SEQ", "TIME", "KIND", "PAYLOAD"]));
        Printer { table, out: StdoutWriter::stdout() }
    }

    /// Prints `event`; a table row only after some more or at [`flush`](Printer::flush).
    pub fn print(&mut self, event: &EventRecord) -> Result<(), CliError> {
        let Some(table) = &mut self.table else { return self.out.json_line(event) };
        table.push([
            event.seq.to_string(),
            WallTime { epoch_ms: event.pts_ms }.rfc3339(),
            event.kind.clone(),
            told(&event.kind, event.payload.get()),
        ]);
        if table.len() < PAGE as usize { Ok(()) } else { self.out.grow(table) }
    }

    /// Prints waiting rows and flushes standard output.
    pub fn flush(&mut self) -> Result<(), CliError> {
        self.table.as_mut().map_or(Ok(()), |table| self.out.grow(table))?;
        self.out.flush()
    }
}

/// Describes a payload in words if its kind has a description, else by its fields.
fn told(kind: &str, payload: &str) -> String {
    let words = kind.starts_with("activity_").then(|| serde_json::from_str(payload).ok()).flatten();
    match words.and_then(|payload| activity::words(kind, &payload)) {
        Some((at_ms, words)) => format!("{} {}", clock(at_ms), printable(&words)),
        None => brief(payload),
    }
}

/// Formats the scalars of a payload, as many as fit on a line.
fn brief(payload: &str) -> String {
    const KEPT: usize = 100;
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(payload) else {
        return printable(&payload.chars().take(KEPT).collect::<String>());
    };
    let mut line = String::new();
    // The description comes first and ids are left out; the JSON output has them.
    let said = fields.get_key_value("description").filter(|(_, said)| **said != "");
    let others = fields.iter().filter(|(name, _)| *name != "description" && !name.ends_with("_id"));
    for (name, value) in said.into_iter().chain(others) {
        let text = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::Array(list) => format!("{name}=[{}]", list.len()),
            serde_json::Value::Object(_) => format!("{name}={{..}}"),
            serde_json::Value::String(text) => format!("{name}={text}"),
            scalar => format!("{name}={scalar}"),
        };
        let text = match text.char_indices().nth(KEPT) {
            Some((end, _)) if line.is_empty() => format!("{}..", &text[..end]),
            _ => text,
        };
        if line.chars().count() + text.chars().count() > KEPT + 2 {
            line.push_str(" ..");
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&text);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_away_is_not_waited_for_after_ctrl_c() {
        for cancel in [Some(CancelToken::new()), None] {
            let mut asked = 0;
            let outcome = retry_unreachable(cancel.as_ref(), || {
                asked += 1;
                cancel.iter().for_each(CancelToken::cancel);
                let (server, reason) = (String::new(), String::new());
                Err::<(), _>(CliError::Unreachable { server, reason })
            });
            assert!(matches!(outcome, Err(CliError::Unreachable { .. })));
            assert_eq!(asked, 1);
        }
    }

    #[test]
    fn a_payload_becomes_one_line_of_its_scalars() {
        let payload = "{\"request_id\":\"req-1\",\"frames\":3,\"signals\":[{},{}],\"tenant_id\":null,\"mode\":\"balanced\"}";
        assert_eq!(brief(payload), "frames=3 signals=[2] mode=balanced");
        let said = "{\"session_id\":\"sess-1\",\"frame_index\":4,\"description\":\"a van\"}";
        assert_eq!(brief(said), "description=a van frame_index=4");
        let marker = "{\"marker_id\":\"mk-1\",\"stream_id\":\"main\",\"event_type\":\"scene_cut\"}";
        assert_eq!(brief(marker), "event_type=scene_cut");
        let long = format!("{{\"a\":1,\"description\":\"{}\"}}", "ä".repeat(200));
        assert!(brief(&long).starts_with("description=ää") && brief(&long).ends_with(".. .."));
        assert_eq!(brief("not json"), "not json");
    }
}
