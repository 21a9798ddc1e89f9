//! `sightline events`: the timeline of a run, once or as it grows.
//!
//! Following polls `POST /v1/query` with a cursor; it ends at the event that ends the run and
//! outlives a restart of the server.

use std::time::{Duration, Instant};

use media::WallTime;
use serde::Serialize;

use crate::{
    client::{Client, QUICK, ServerArgs},
    error::CliError,
    output::{Out, Table, printable},
    wire::{EventRecord, QueryReply},
};

const PAGE: u32 = 1000;
const WAIT_MS: u32 = 20_000;
const RECONNECT: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_secs(1);
const ENDS: [&str; 5] =
    ["run_completed", "run_failed", "run_expired", "stop_requested", "run_deleted"];

/// Arguments of `events`.
#[derive(clap::Args)]
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

/// The body of `POST /v1/query`.
#[derive(Serialize)]
pub struct Query<'a> {
    pub run_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'a str>,
    pub from_seq: u64,
    pub limit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Runs `events`.
pub fn run(args: &EventsArgs) -> Result<(), CliError> {
    let client = Client::new(&args.server)?;
    let mut from_seq = args.from_seq;
    let mut waiting = false;
    let mut table = Table::new(&[">SEQ", "TIME", "KIND", "PAYLOAD"]);
    loop {
        let query = Query {
            run_id: &args.run,
            kind: args.kind.as_deref(),
            from_seq,
            limit: PAGE,
            wait_ms: waiting.then_some(WAIT_MS),
        };
        let reply = ask(&client, &query, args.follow)?;
        print(args, &reply.matches, &mut table)?;
        from_seq = reply.next_from_seq;
        let whole = !reply.has_more;
        let ended = reply.matches.iter().any(|event| ENDS.contains(&event.kind.as_str()));
        if whole && (!args.follow || ended) {
            return Ok(());
        }
        waiting = args.follow && whole;
    }
}

/// One poll; while following, a server that went away gets some time to come back.
fn ask(client: &Client, query: &Query<'_>, patient: bool) -> Result<QueryReply, CliError> {
    let give_up = Instant::now() + RECONNECT;
    loop {
        match client.post("v1/query", query, QUICK + Duration::from_millis(WAIT_MS.into())) {
            Err(CliError::Unreachable { reason, .. }) if patient && Instant::now() < give_up => {
                eprintln!("sightline: {}; trying again", printable(&reason));
                std::thread::sleep(RETRY_EVERY);
            }
            outcome => return outcome,
        }
    }
}

fn print(args: &EventsArgs, events: &[EventRecord], table: &mut Table) -> Result<(), CliError> {
    let mut out = Out::stdout();
    if args.json {
        events.iter().try_for_each(|event| out.json_line(event))?;
        return out.finish();
    }
    for event in events {
        table.push([
            event.seq.to_string(),
            WallTime { epoch_ms: event.pts_ms }.rfc3339(),
            event.kind.clone(),
            brief(event.payload.get()),
        ]);
    }
    out.grow(table)?;
    out.finish()
}

/// The scalars of a payload, as many as fit on a line.
fn brief(payload: &str) -> String {
    const KEPT: usize = 100;
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(payload) else {
        return printable(&payload.chars().take(KEPT).collect::<String>());
    };
    let mut line = String::new();
    for (name, value) in fields.iter().filter(|(name, _)| *name != "request_id") {
        let text = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::Array(list) => format!("{name}=[{}]", list.len()),
            serde_json::Value::Object(_) => format!("{name}={{..}}"),
            serde_json::Value::String(text) => format!("{name}={text}"),
            scalar => format!("{name}={scalar}"),
        };
        if line.chars().count() + text.chars().count() > KEPT {
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
    fn a_payload_becomes_one_line_of_its_scalars() {
        let payload = "{\"request_id\":\"req-1\",\"frames\":3,\"signals\":[{},{}],\"tenant_id\":null,\"mode\":\"balanced\"}";
        assert_eq!(brief(payload), "frames=3 signals=[2] mode=balanced");
        assert_eq!(brief("not json"), "not json");
    }
}
