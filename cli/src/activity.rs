//! `sightline activity`: the activity episodes of a run; also the table that `analyze` and `run` print.

use gate::Episode;
use media::Score;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use timeline::RegionRecord;

use crate::{
    client::{ApiClient, ServerArgs, run_path},
    error::{ApiError, CliError},
    output::{self, StdoutWriter, TextTable, clock},
};

#[derive(clap::Args)]
pub struct ActivityArgs {
    /// Run id
    run: String,
    /// Only episodes of this stream
    #[arg(long, value_name = "NAME")]
    stream_id: Option<String>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Episode, as in the response of `GET /v1/runs/{id}/activity`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EpisodeRecord {
    pub stream_id: String,
    pub start_frame: u64,
    /// `None` while the episode lasts.
    pub end_frame: Option<u64>,
    pub start_pts_ms: i64,
    pub end_pts_ms: Option<i64>,
    pub peak_score: f64,
    pub peak_frame: u64,
    #[serde(default)]
    pub region: Option<RegionRecord>,
    #[serde(default)]
    pub zones: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_sha256: Option<String>,
}

impl EpisodeRecord {
    /// Converts an episode that has ended, of a recording with zones of these names.
    pub fn of(episode: &Episode, stream: &str, zones: &[String]) -> EpisodeRecord {
        EpisodeRecord {
            stream_id: stream.to_owned(),
            start_frame: episode.start_frame,
            end_frame: Some(episode.end_frame),
            start_pts_ms: episode.start_pts_ms,
            end_pts_ms: Some(episode.end_pts_ms),
            peak_score: Score::as_f64(episode.peak_score),
            peak_frame: episode.peak_frame,
            region: (!episode.region.is_empty()).then(|| episode.region.into()),
            zones: episode.touched(zones),
            image_sha256: None,
        }
    }

    /// Describes the place of the activity: the part of the picture, and the zones.
    pub fn place(&self) -> String {
        let place = self.region.as_ref().map(|region| place(region).to_owned());
        let zones = (!self.zones.is_empty()).then(|| format!("in {}", self.zones.join(", ")));
        let told: Vec<String> = place.into_iter().chain(zones).collect();
        told.join(", ")
    }

    /// Returns the length in milliseconds; `None` while the episode lasts.
    pub fn length_ms(&self) -> Option<i64> {
        Some(self.end_pts_ms?.saturating_sub(self.start_pts_ms))
    }
}

/// Returns the ninth of the picture that holds the middle of a region.
fn place(region: &RegionRecord) -> &'static str {
    const NINTHS: [[&str; 3]; 3] = [
        ["top left", "top", "top right"],
        ["left", "middle", "right"],
        ["bottom left", "bottom", "bottom right"],
    ];
    if region.width * region.height >= 0.5 {
        return "most of the picture";
    }
    let third = |start: f64, length: f64| ((start + length / 2.0) * 3.0).clamp(0.0, 2.0) as usize;
    NINTHS[third(region.y, region.height)][third(region.x, region.width)]
}

/// Returns the media time and the description of an activity event; `None` for other events.
pub fn words(kind: &str, payload: &Value) -> Option<(i64, String)> {
    let is_over = match kind {
        "activity_started" => false,
        "activity_ended" => true,
        _ => return None,
    };
    let episode = EpisodeRecord::deserialize(payload).ok()?;
    let place = match episode.place() {
        place if place.is_empty() => String::new(),
        place => format!(": {place}"),
    };
    Some(match (is_over, episode.length_ms()) {
        (true, Some(length_ms)) => {
            let seconds = length_ms as f64 / 1000.0;
            let end_ms = episode.start_pts_ms.saturating_add(length_ms);
            (end_ms, format!("at rest again after {seconds:.1} s{place}"))
        }
        _ => (episode.start_pts_ms, format!("something moves{place}")),
    })
}

pub fn run(args: &ActivityArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.server)?;
    let query: Vec<_> = args.stream_id.iter().map(|name| ("stream_id", name.clone())).collect();
    output::print(args.json, &ask(&client, &args.run, &query)?[..], table)
}

fn ask(
    client: &ApiClient,
    run: &str,
    query: &[(&str, String)],
) -> Result<Vec<EpisodeRecord>, CliError> {
    client.pages(&run_path(run, "/activity")?, query, "/episodes")
}

/// Fetches all episodes of a run; returns none if the server is too old to have episodes.
pub fn fetch(client: &ApiClient, run: &str) -> Result<Vec<EpisodeRecord>, CliError> {
    match ask(client, run, &[]) {
        Err(CliError::Api(ApiError { status: 404, .. })) => Ok(Vec::new()),
        answer => answer,
    }
}

/// Prints the table of episodes and an empty line; nothing if there are none.
pub fn print(out: &mut StdoutWriter, episodes: &[EpisodeRecord]) -> Result<(), CliError> {
    if episodes.is_empty() {
        return Ok(());
    }
    out.table(&table(episodes))?;
    out.line("")
}

/// Makes a table with one line per episode.
fn table(episodes: &[EpisodeRecord]) -> TextTable {
    let row = |(number, episode): (u64, &EpisodeRecord)| {
        let length = match episode.length_ms() {
            Some(length_ms) => format!("{:.1} s", length_ms as f64 / 1000.0),
            None => "lasts".to_owned(),
        };
        [
            number.to_string(),
            clock(episode.start_pts_ms),
            length,
            format!("{:.3}", episode.peak_score),
            episode.peak_frame.to_string(),
            episode.place(),
        ]
    };
    let columns = ["ACTIVITY", ">START", ">LENGTH", ">PEAK", ">PEAK FRAME", "WHERE"];
    TextTable::of(columns, (1..).zip(episodes).map(row))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_of_activity_is_told_in_words() {
        let region = |x: f64, y: f64, width: f64, height: f64| json!({ "x": x, "y": y, "width": width, "height": height });
        let payload = |region: Value, end: Value, zones: Value| {
            json!({ "stream_id": "main", "start_frame": 9, "end_frame": end, "start_pts_ms": 360,
                "end_pts_ms": end.as_i64().map(|frame| frame * 40), "peak_score": 0.1, "peak_frame": 9,
                "region": region, "zones": zones })
        };
        let small = region(0.8, 0.0, 0.1, 0.1);
        let rows = [
            (
                "activity_started",
                payload(small.clone(), Value::Null, json!([])),
                Some((360, "something moves: top right")),
            ),
            (
                "activity_started",
                payload(region(0.0, 0.0, 1.0, 0.9), Value::Null, json!(["door", "yard"])),
                Some((360, "something moves: most of the picture, in door, yard")),
            ),
            (
                "activity_ended",
                payload(region(0.4, 0.4, 0.2, 0.2), json!(84), json!(["door"])),
                Some((3360, "at rest again after 3.0 s: middle, in door")),
            ),
            (
                "activity_ended",
                payload(Value::Null, json!(84), json!([])),
                Some((3360, "at rest again after 3.0 s")),
            ),
            ("activity_started", json!({}), None),
            ("scene_cut", payload(small, Value::Null, json!([])), None),
        ];
        for (kind, payload, expected) in rows {
            let told = words(kind, &payload);
            let told = told.as_ref().map(|(at, words)| (*at, words.as_str()));
            assert_eq!(told, expected, "{kind} {payload}");
        }
    }
}
