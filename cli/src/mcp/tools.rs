//! The tools: names, descriptions and handlers.

use std::sync::Arc;

use rmcp::{
    handler::server::tool::schema_for_input,
    model::{ContentBlock, JsonObject, Tool, ToolAnnotations},
    schemars::JsonSchema,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{api::Api, look, runs, text, timeline, work};
use crate::error::CliError;

/// Result of a call.
pub type Told = Result<Vec<ContentBlock>, CliError>;

/// Tools that only read.
const READING: &[Offer] = &[
    Offer::reading::<runs::ListRuns>(
        "list_runs",
        "List the runs of this key, the newest first: id, label, state, source and job under way.",
    ),
    Offer::reading::<runs::Search>(
        "search",
        "Find descriptions that have a text in them, in one run or in all. Gives the words around each \
         hit with its run and time; read_timeline tells what is around that time.",
    ),
    Offer::reading::<timeline::ReadTimeline>(
        "read_timeline",
        "Read what was found in a run: how many frames were kept and why, markers, descriptions. What \
         does not fit max_chars is summed up in spans of time, and left_out says how to ask for it.",
    ),
    Offer::reading::<look::LookAtKeyframe>(
        "look_at_keyframe",
        "Look at the stored still nearest to a moment of a run.",
    ),
    Offer::reading::<look::WhyFrame>(
        "why_frame",
        "Tell why a frame was kept as a still or was not: its signals, the reason and the thresholds.",
    ),
    Offer::reading::<look::AskModel>(
        "ask_model",
        "Ask a vision model of the server about a moment of a run: it is shown the stored still nearest \
         to it. Takes seconds, and tokens of the server's models; nothing is recorded.",
    ),
    Offer::reading::<runs::Jobs>(
        "jobs",
        "Tell how far the jobs of a run have come; of one job also what came of it, after waiting for \
         its end where asked.",
    ),
];

/// Tools that change something.
const WRITING: &[Offer] = &[
    Offer::adding::<work::StartIngest>(
        "start_ingest",
        "Start decoding a video that the server may read: frames are measured and those that tell \
         something are kept as stills. Answers at once with a job; jobs tells how far it has come.",
    ),
    Offer::adding::<work::StartAnalysis>(
        "start_analysis",
        "Start an analysis of the frames that a run has: it derives the markers. Answers with a job.",
    ),
    Offer::adding::<work::StartReasoning>(
        "start_reasoning",
        "Start decoding a video that the server may read and have a model describe it as the question \
         says. Takes tokens of the server's models. Answers at once with a job; the run completes with it.",
    ),
    Offer::ending::<work::StopRun>(
        "stop_run",
        "Stop a run for good: what it recorded stays, nothing more is added to it.",
    ),
    Offer::ending::<work::CancelJob>(
        "cancel_job",
        "Cancel a job: what it recorded stays, and its run goes on.",
    ),
];

/// A tool as offered to the assistant.
pub struct Offer {
    pub name: &'static str,
    about: &'static str,
    schema: fn() -> Arc<JsonObject>,
    reads_only: bool,
    ends: bool,
}

impl Offer {
    const fn reading<A: JsonSchema + 'static>(name: &'static str, about: &'static str) -> Offer {
        Offer { name, about, schema: schema::<A>, reads_only: true, ends: false }
    }

    const fn adding<A: JsonSchema + 'static>(name: &'static str, about: &'static str) -> Offer {
        Offer { name, about, schema: schema::<A>, reads_only: false, ends: false }
    }

    const fn ending<A: JsonSchema + 'static>(name: &'static str, about: &'static str) -> Offer {
        Offer { name, about, schema: schema::<A>, reads_only: false, ends: true }
    }

    /// Converts to the protocol's type.
    pub fn tool(&self) -> Tool {
        let hints = ToolAnnotations::new()
            .read_only(self.reads_only)
            .destructive(self.ends)
            .open_world(false);
        Tool::new(self.name, self.about, (self.schema)()).annotate(hints)
    }
}

fn schema<A: JsonSchema + 'static>() -> Arc<JsonObject> {
    schema_for_input::<A>().expect("arguments are objects")
}

/// Returns the tools for an assistant that may write, or may only read.
pub fn offered(may_write: bool) -> impl Iterator<Item = &'static Offer> {
    READING.iter().chain(if may_write { WRITING } else { &[] })
}

/// Runs the tool `name`.
pub async fn call(api: &Api, name: &str, arguments: JsonObject) -> Told {
    match name {
        "list_runs" => runs::list(api, parsed(arguments)?).await,
        "search" => runs::search(api, parsed(arguments)?).await,
        "read_timeline" => timeline::read(api, parsed(arguments)?).await,
        "look_at_keyframe" => look::keyframe(api, parsed(arguments)?).await,
        "why_frame" => look::why(api, parsed(arguments)?).await,
        "ask_model" => look::ask(api, parsed(arguments)?).await,
        "jobs" => runs::jobs(api, parsed(arguments)?).await,
        "start_ingest" => work::ingest(api, parsed(arguments)?).await,
        "start_analysis" => work::analysis(api, parsed(arguments)?).await,
        "start_reasoning" => work::reasoning(api, parsed(arguments)?).await,
        "stop_run" => work::stop(api, parsed(arguments)?).await,
        "cancel_job" => work::cancel(api, parsed(arguments)?).await,
        other => unreachable!("{other} is offered and not done"),
    }
}

fn parsed<A: DeserializeOwned>(arguments: JsonObject) -> Result<A, CliError> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        CliError::Usage(text::clipped(&format!("arguments: {error}"), text::BRIEF))
    })
}
