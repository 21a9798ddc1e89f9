//! The tools: names, descriptions and handlers.

use std::{pin::Pin, sync::Arc};

use rmcp::{
    handler::server::tool::schema_for_input,
    model::{ContentBlock, JsonObject, Tool, ToolAnnotations},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{api::Api, look, runs, text, timeline, work};
use crate::error::CliError;

/// Result of a call.
pub type Told = Result<Vec<ContentBlock>, CliError>;

type Called<'a> = Pin<Box<dyn Future<Output = Told> + Send + 'a>>;

/// A tool as offered to the assistant.
pub struct Offer {
    pub name: &'static str,
    about: &'static str,
    schema: fn() -> Arc<JsonObject>,
    effect: Effect,
    pub call: fn(&Api, JsonObject) -> Called<'_>,
}

#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Reads,
    Adds,
    /// Ends something for good.
    Ends,
}

/// Makes the table of the tools: effect, name, handler with the type of its arguments, description.
macro_rules! tools {
    ($($effect:ident $name:literal $module:ident::$run:ident($args:ident) $about:literal;)*) => {
        &[$(Offer {
            name: $name,
            about: $about,
            schema: || schema_for_input::<$module::$args>().expect("arguments are objects"),
            effect: Effect::$effect,
            call: |api, arguments| {
                Box::pin(async move { $module::$run(api, parsed(arguments)?).await })
            },
        }),*]
    };
}

const TOOLS: &[Offer] = tools! {
    Reads "list_runs" runs::list(ListRuns)
        "List the runs of this key, the newest first: id, label, state, source and job under way.";
    Reads "search" runs::search(Search)
        "Find descriptions that have a text in them, in one run or in all. Gives the words around each \
         hit with its run and time; read_timeline tells what is around that time.";
    Reads "read_timeline" timeline::read(ReadTimeline)
        "Read what was found in a run: how many frames were kept and why, markers, descriptions. What \
         does not fit max_chars is summed up in spans of time, and left_out says how to ask for it.";
    Reads "look_at_keyframe" look::keyframe(LookAtKeyframe)
        "Look at the stored still nearest to a moment of a run.";
    Reads "why_frame" look::why(WhyFrame)
        "Tell why a frame was kept as a still or was not: its signals, the reason and the thresholds.";
    Reads "ask_model" look::ask(AskModel)
        "Ask a vision model of the server about a moment of a run: it is shown the stored still nearest \
         to it. Takes seconds, and tokens of the server's models; nothing is recorded.";
    Reads "jobs" runs::jobs(Jobs)
        "Tell how far the jobs of a run have come; of one job also what came of it, after waiting for \
         its end where asked.";
    Adds "start_ingest" work::ingest(StartIngest)
        "Start decoding a video that the server may read: frames are measured and those that tell \
         something are kept as stills. Answers at once with a job; jobs tells how far it has come.";
    Adds "start_analysis" work::analysis(StartAnalysis)
        "Start an analysis of the frames that a run has: it derives the markers. Answers with a job.";
    Adds "start_reasoning" work::reasoning(StartReasoning)
        "Start decoding a video that the server may read and have a model describe it as the question \
         says. Takes tokens of the server's models. Answers at once with a job; the run completes with it.";
    Ends "stop_run" work::stop(StopRun)
        "Stop a run for good: what it recorded stays, nothing more is added to it.";
    Ends "cancel_job" work::cancel(CancelJob)
        "Cancel a job: what it recorded stays, and its run goes on.";
};

impl Offer {
    /// Converts to the protocol's type.
    pub fn tool(&self) -> Tool {
        let hints = ToolAnnotations::new()
            .read_only(self.effect == Effect::Reads)
            .destructive(self.effect == Effect::Ends)
            .open_world(false);
        Tool::new(self.name, self.about, (self.schema)()).annotate(hints)
    }
}

/// Returns the tools for an assistant that may write, or may only read.
pub fn offered(may_write: bool) -> impl Iterator<Item = &'static Offer> {
    TOOLS.iter().filter(move |tool| may_write || tool.effect == Effect::Reads)
}

fn parsed<A: DeserializeOwned>(arguments: JsonObject) -> Result<A, CliError> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        CliError::Usage(text::clipped(&format!("arguments: {error}"), text::BRIEF))
    })
}
