//! Configuration that a publisher attaches to its offer, and later prompt updates.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use gate::GateConfig;
use infer::OutputSchema;
use worker::ClipSpec;

use crate::{
    api::{
        prelude::*,
        reason::{CropFields, ModelName, output_schema},
        thresholds::{self, GateOverrides},
        zones::{self, ZoneFields, ZoneList},
    },
    base::{
        json::{self, Declared, FieldError, number, said},
        model_catalog::Catalog,
    },
    record::live::{Instruction, SessionOptions},
};

pub const ENCODED_BYTES_MAX: usize = 8192;
pub const CLIP_FPS_DEFAULT: u64 = 6;
const CLIP_PICTURES: u32 = 8;
/// Maximum edge of a picture of a clip, pixels.
const CLIP_EDGE: u32 = 768;
pub const CLIP_LENGTH_S: std::ops::RangeInclusive<f64> = 0.1..=60.0;
/// Time from the end of one clip to the start of the next, seconds.
pub const CLIP_DELAY_S: std::ops::RangeInclusive<f64> = 0.0..=60.0;
/// Default of both the length and the delay of clips, seconds.
pub const CLIP_S_DEFAULT: f64 = 0.5;

pub type LivePrompt = BoundedText<1, 4096>;
pub type TokenRate = BoundedInt<1, 10_000>;
pub type ClipFps = BoundedInt<1, 30>;

/// Configuration that a publisher may attach to its offer; unknown fields are refused.
#[derive(ToSchema)]
pub struct PublishConfig {
    /// Prompt about the pictures of the session.
    #[schema(inline)]
    prompt: Option<LivePrompt>,
    /// Maximum output tokens of descriptions per second; no limit when missing.
    #[schema(inline)]
    max_output_tokens_per_second: Option<TokenRate>,
    /// Describes clips in addition to selected frames.
    clip_mode: Option<ClipMode>,
    /// Region of the picture that models are shown.
    crop: Option<CropFields>,
    /// JSON Schema that answers must match.
    #[schema(value_type = Option<schema_types::AnyObject>)]
    output_schema: Option<OutputSchema>,
    /// Model that describes, by its id in `GET /v1/models` or its upstream name.
    #[schema(value_type = Option<String>)]
    model: Option<ModelName>,
    /// Label stored in events, which can be filtered by it.
    index_name: Option<schema_types::Label>,
    /// Mode of the run; `balanced` when missing.
    mode: Option<schema_types::AnalysisMode>,
    /// Thresholds of this recording, which override those of the mode.
    gate: Option<GateOverrides>,
    /// Watched zones; an episode of activity names those that it touches.
    #[schema(value_type = Option<Vec<ZoneFields>>, max_items = 16)]
    zones: Option<ZoneList>,
    /// True to ignore motion outside of the zones.
    activity_zones_only: Option<bool>,
    /// Label of the run.
    label: Option<schema_types::Label>,
}

declared!(PublishConfig {
    prompt: optional said(LivePrompt::read), max_output_tokens_per_second, clip_mode, crop,
    output_schema: optional output_schema, model, index_name, mode, gate, zones, activity_zones_only, label,
}; closed |object| {
    zones::check(object, &zones, &activity_zones_only);
});

/// Length, delay and rate of clips.
#[derive(ToSchema)]
struct ClipMode {
    /// Pictures per second; 6 when missing. A model is shown at most eight pictures of a clip.
    #[schema(inline)]
    target_fps: Option<ClipFps>,
    /// Length of a clip in seconds; 0.5 when missing.
    #[schema(minimum = 0.1, maximum = 60.0)]
    clip_length_seconds: Option<f64>,
    /// Seconds from the end of a clip to the start of the next; 0.5 when missing.
    #[schema(minimum = 0.0, maximum = 60.0)]
    delay_seconds: Option<f64>,
}

declared!(ClipMode {
    target_fps, clip_length_seconds: optional number(CLIP_LENGTH_S), delay_seconds: optional number(CLIP_DELAY_S),
}; closed);

/// Decodes the JSON of the attach config; `None` without the header.
pub fn decoded(header: Option<&HeaderValue>) -> ApiResult<Option<Value>> {
    let Some(header) = header else { return Ok(None) };
    let refused = |text: &str| bad(format!("x-attach-config {text}"));
    if header.len() > ENCODED_BYTES_MAX {
        return Err(refused("has more than 8192 bytes"));
    }
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(header.as_bytes());
    let decoded = decoded.map_err(|_| refused("is not base64url without padding"))?;
    let value = json::parse(&decoded);
    value.map(Some).map_err(|error| refused(&format!("is no JSON: {error}")))
}

/// Reads an attach config; fields left out get the defaults, and thresholds those of `server`.
pub fn read(
    config: Option<&Value>,
    catalog: &Catalog,
    server: GateConfig,
) -> ApiResult<SessionOptions> {
    let Some(config) = config else {
        return Ok(SessionOptions { gate: server, ..SessionOptions::default() });
    };
    let asked = PublishConfig::take(config, Form::Naming(catalog));
    let asked = asked.map_err(|faults| listed("x-attach-config", faults))?;
    let mode = asked.mode.map(|it| it.0).unwrap_or_default();
    let ms = |seconds: Option<f64>| (seconds.unwrap_or(CLIP_S_DEFAULT) * 1000.0).round() as u32;
    let clips = asked.clip_mode.map(|clip| ClipSpec {
        target_fps: clip.target_fps.map_or(CLIP_FPS_DEFAULT, |it| it.0) as u32,
        length_ms: ms(clip.clip_length_seconds),
        delay_ms: ms(clip.delay_seconds),
        pictures: CLIP_PICTURES,
        max_edge: CLIP_EDGE,
    });
    Ok(SessionOptions {
        instruction: Instruction {
            prompt: asked.prompt.map_or_else(String::new, |it| it.0),
            schema: asked.output_schema.map(Arc::new),
        },
        tokens_per_second: asked.max_output_tokens_per_second.map(|BoundedInt(rate)| rate as u32),
        clips,
        crop: asked.crop.and_then(CropFields::crop),
        model: asked.model.map(|ModelName(model)| model.as_str().to_owned()),
        index_name: asked.index_name.map(|it| it.0),
        mode,
        gate: thresholds::chosen(asked.gate, Some(mode), server),
        zones: zones::zones(asked.zones, asked.activity_zones_only),
        label: asked.label.map(|it| it.0),
    })
}

/// New prompt for models.
#[derive(ToSchema)]
pub struct PromptUpdate {
    /// Prompt of 1 to 4096 bytes.
    #[schema(inline)]
    prompt: LivePrompt,
    /// JSON Schema that answers must match; the default one when missing.
    #[schema(value_type = Option<schema_types::AnyObject>)]
    output_schema: Option<(OutputSchema, Value)>,
}

declared!(PromptUpdate {
    prompt: required said(LivePrompt::read),
    output_schema: optional |given| output_schema(given).map(|schema| (schema, given.clone())),
});

/// Reads a new prompt; also returns its output schema as given.
pub fn instruction(body: &JsonBody) -> ApiResult<(Instruction, Option<Value>)> {
    let read = body.read().map_err(|faults| listed("the prompt", faults))?;
    let PromptUpdate { prompt: BoundedText(prompt), output_schema } = read;
    let (schema, given) = output_schema.unzip();
    Ok((Instruction { prompt, schema: schema.map(Arc::new) }, given))
}

fn bad(text: String) -> ApiError {
    ApiError::Plain(StatusCode::BAD_REQUEST, text)
}

/// Returns an error that lists all faults in one line of plain text.
fn listed(what: &str, faults: Faults) -> ApiError {
    bad(format!("{what} cannot be used: {}", FieldError::joined(&Vec::<FieldError>::from(faults))))
}

#[cfg(test)]
mod tests {
    use media::Score;

    use super::*;
    use crate::base::model_catalog::Mode;

    fn read_json(text: &str) -> Result<SessionOptions, String> {
        let header = HeaderValue::from_str(&BASE64_URL_SAFE_NO_PAD.encode(text)).expect("ASCII");
        let server = GateConfig::default();
        let read =
            decoded(Some(&header)).and_then(|it| read(it.as_ref(), &Catalog::default(), server));
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_config_is_read() {
        let wishes = read_json(
            r#"{"prompt":"count","max_output_tokens_per_second":5,"clip_mode":{"target_fps":2},
                "crop":{"x":0.5,"y":0,"width":0.5,"height":1},"output_schema":{"type":"object"},
                "model":"qwen3-vl-8b","index_name":"yard","mode":"efficiency","gate":{"flicker":1}}"#,
        );
        let wishes = wishes.expect("acceptable");
        assert_eq!(
            (wishes.instruction.prompt.as_str(), wishes.tokens_per_second),
            ("count", Some(5))
        );
        let clips = wishes.clips.expect("clips");
        assert_eq!((clips.target_fps, clips.length_ms, clips.delay_ms), (2, 500, 500));
        assert!(wishes.crop.is_some() && wishes.instruction.schema.is_some());
        assert_eq!(wishes.model.as_deref(), Some("qwen3-vl-8b"));
        let (keepalive_ms, flicker) = (Some(10_000), Score::ONE);
        let expected = GateConfig { keepalive_ms, flicker, ..GateConfig::default() };
        assert_eq!((wishes.mode, wishes.gate), (Mode::Efficiency, expected));
        let none = read(None, &Catalog::default(), expected);
        assert!(none.is_ok_and(|wishes| wishes.clips.is_none() && wishes.gate == expected));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let rows = [
            ("nonsense", "is no JSON"),
            ("[]", "object"),
            (r#"{"prompt":""}"#, "prompt"),
            (r#"{"prompt":"a","prompt":"b"}"#, "twice"),
            (r#"{"max_output_tokens_per_second":0}"#, "max_output_tokens_per_second"),
            (r#"{"max_output_tokens_per_second":1.5}"#, "max_output_tokens_per_second"),
            (r#"{"clip_mode":{"target_fps":31}}"#, "clip_mode.target_fps"),
            (r#"{"clip_mode":{"fps":3}}"#, "clip_mode.fps"),
            (r#"{"crop":{"x":0.6,"y":0,"width":0.5,"height":1}}"#, "crop"),
            (r#"{"crop":{"x":0,"y":0,"width":0,"height":1}}"#, "crop"),
            (r#"{"crop":{"x":0,"y":0,"width":1,"height":1,"z":1}}"#, "crop.z is not a known field"),
            (r#"{"output_schema":{"type":"nothing"}}"#, "output_schema"),
            (r#"{"index_name":""}"#, "index_name"),
            (r#"{"mode":"fast"}"#, "mode must be one of balanced, detailed, efficiency, custom"),
            (r#"{"gate":{"scene_cut":2}}"#, "gate.scene_cut"),
            (r#"{"gate":{"cut":0.5}}"#, "gate.cut is not a known field"),
            (r#"{"zones":[{"name":"door","polygon":[[0,0],[1,0]]}]}"#, "zones[0].polygon"),
            (r#"{"activity_zones_only":true}"#, "activity_zones_only"),
            (r#"{"label":"a\u0007"}"#, "label"),
        ];
        for (text, expected) in rows {
            let error = read_json(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = HeaderValue::from_str(&"a".repeat(8193)).expect("ASCII");
        assert!(decoded(Some(&long)).is_err(), "too long");
    }
}
