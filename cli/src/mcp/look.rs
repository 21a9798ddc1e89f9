//! Tools about one moment of a run: its still, the gate's decision, and a model's answer about it.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use rmcp::{
    model::ContentBlock,
    schemars::{self, JsonSchema},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::{Api, run_path},
    runs::items,
    text::{TEXT, block, clipped, picked},
    tools::Told,
};
use crate::{error::CliError, output::printable};

/// Most pages of a thousand stills that are searched for the nearest.
const PAGES: usize = 100;
/// Default length of a still's longer edge in pixels.
const EDGE: u32 = 768;
/// Time limit of the model in milliseconds, and of the request.
const MODEL_MS: u32 = 120_000;
const MODEL: Duration = Duration::from_millis(MODEL_MS as u64 + 5000);

/// Arguments of `look_at_keyframe`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookAtKeyframe {
    /// The run
    run_id: String,
    /// The moment, in milliseconds of the video
    at_ms: i64,
    /// Pixels of the picture's longer edge, 32 to 2048; 768 when missing
    max_edge: Option<u32>,
}

/// Returns the still nearest to a moment, as a picture and its description.
pub async fn keyframe(api: &Api, args: LookAtKeyframe) -> Told {
    let still = nearest(api, &args.run_id, args.at_ms).await?;
    let path = run_path(&args.run_id, &format!("/keyframes/{}", still.sha256))?;
    let edge = args.max_edge.unwrap_or(EDGE).clamp(32, 2048);
    let jpeg = api.bytes(&path, &[("max_edge", edge.to_string())]).await?;
    Ok(vec![ContentBlock::image(STANDARD.encode(jpeg), "image/jpeg"), block(&still.told)])
}

/// A stored still.
struct Still {
    sha256: String,
    /// Fields for the assistant.
    told: Value,
}

/// Finds the still of `run` that is nearest to `at_ms`.
async fn nearest(api: &Api, run: &str, at_ms: i64) -> Result<Still, CliError> {
    let path = run_path(run, "/keyframes")?;
    let mut page = api.page(&path, &[("limit", "1000".to_owned())]).await?;
    let mut best: Option<(u64, Value)> = None;
    let mut damaged = 0;
    for _ in 0..PAGES {
        damaged += page.value["damaged_events"].as_u64().unwrap_or(0);
        for still in items(&page.value["keyframes"]) {
            let Some(pts_ms) = still["pts_ms"].as_i64() else { continue };
            let away = pts_ms.abs_diff(at_ms);
            if best.as_ref().is_none_or(|(nearest, _)| away < *nearest) {
                best = Some((away, still.clone()));
            }
        }
        let Some(next) = page.next.take() else { break };
        page = api.next_page(&path, &next).await?;
    }
    let (away, still) = best.ok_or_else(|| {
        CliError::Usage(
            "the run has no stills: nothing was ingested yet, or the server keeps none".into(),
        )
    })?;
    // Checked because the hash becomes part of a path.
    let sha256 = still["image_sha256"]
        .as_str()
        .filter(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let sha256 = sha256.ok_or_else(|| api.target.odd("a still without its hash"))?;
    let fields = ["frame_index", "pts_ms", "event_type", "description"];
    let mut told = picked(&still, &fields);
    told["ms_away"] = away.into();
    // A nearer still may be among those that the server cannot read.
    if damaged > 0 {
        told["damaged_events"] = damaged.into();
    }
    Ok(Still { sha256: sha256.to_owned(), told })
}

/// Arguments of `why_frame`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyFrame {
    /// The run
    run_id: String,
    /// Number of the frame among the analysed ones, from 0
    frame_index: u64,
    /// The stream; the one that was decoded last when missing
    stream_id: Option<String>,
}

/// Returns the gate's decision about a frame, and its reason.
pub async fn why(api: &Api, args: WhyFrame) -> Told {
    let path = run_path(&args.run_id, &format!("/frames/{}", args.frame_index))?;
    let query: Vec<(&str, String)> =
        args.stream_id.map(|it| ("stream_id", it)).into_iter().collect();
    let mut frame = api.get(&path, &query).await?;
    if let Some(fields) = frame.as_object_mut() {
        fields.shift_remove("request_id");
    }
    Ok(vec![block(&frame)])
}

/// Arguments of `ask_model`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskModel {
    /// The run
    run_id: String,
    /// The moment, in milliseconds of the video
    at_ms: i64,
    /// The question
    question: String,
    /// A model of the server; when missing the run's own if it is ready, or else the first that is
    model: Option<String>,
}

/// Asks a model about a moment.
pub async fn ask(api: &Api, args: AskModel) -> Told {
    let still = nearest(api, &args.run_id, args.at_ms).await?;
    let model = match args.model {
        Some(model) => model,
        None => ready(api, &args.run_id).await?,
    };
    let body = json!({
        "model": model,
        "prompt": args.question,
        "images": [{ "keyframe": { "run_id": args.run_id, "sha256": still.sha256 } }],
        "max_tokens": 1024,
        "timeout_ms": MODEL_MS,
    });
    let answer = api.post("v1/infer", &body, MODEL).await?;
    let mut told = picked(&answer, &["model", "provider", "finish_reason", "tokens"]);
    told["answer"] = clipped(answer["output_text"].as_str().unwrap_or_default(), TEXT).into();
    told["keyframe"] = still.told;
    Ok(vec![block(&told)])
}

/// Returns the default model: the run's own if it is ready, else the first ready one.
async fn ready(api: &Api, run: &str) -> Result<String, CliError> {
    let own = api.get(&run_path(run, "")?, &[]).await?["model"].clone();
    let models = api.get("v1/models", &[]).await?;
    let ready = items(&models["models"]).iter().filter(|model| model["availability"] == "ready");
    let ids: Vec<&str> = ready.filter_map(|model| model["id"].as_str()).collect();
    let own = own.as_str().filter(|own| ids.contains(own));
    own.or(ids.first().copied()).map(str::to_owned).ok_or_else(|| {
        let backends =
            items(&models["providers"]).iter().filter_map(|it| it["last_error"].as_str());
        let why: Vec<String> = backends.map(printable).collect();
        let none = "no model of the server is ready; whoever runs it can add a backend";
        CliError::Usage(if why.is_empty() {
            none.into()
        } else {
            format!("{none} ({})", why.join("; "))
        })
    })
}
