//! Summarizes a run's timeline within a bounded length.
//!
//! Lists all findings if they fit; else counts them by spans of time, with a hint on asking for more.

use std::collections::BTreeMap;

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    api::{Api, run_path},
    runs::{RUN, items},
    text::{BRIEF, TEXT, block, clipped, json, picked},
    tools::Told,
};
use crate::{error::CliError, markers::NOTHING};

/// Default length of an answer in characters, and its bounds.
const CHARS: usize = 8000;
const CHARS_MIN: usize = 1000;
const CHARS_MAX: usize = 40_000;
/// Most findings that are read of a run, and most bytes of their texts.
const FINDINGS: usize = 100_000;
const FINDINGS_BYTES: usize = 16 << 20;
/// Most spans of a summary, and approximate characters of one.
const SPANS: usize = 48;
const SPAN_CHARS: usize = 250;
/// Most types that a count lists.
const TYPES: usize = 12;

/// Arguments of `read_timeline`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTimeline {
    /// The run
    run_id: String,
    /// Only what lies at or after this time, in milliseconds of the video
    from_ms: Option<i64>,
    /// Only what lies at or before this time
    to_ms: Option<i64>,
    /// Only markers and descriptions of this type, such as scene_cut
    event_type: Option<String>,
    /// Characters of the answer, about; 1000 to 40000, 8000 when missing
    max_chars: Option<usize>,
}

/// Returns the summary.
pub async fn read(api: &Api, args: ReadTimeline) -> Told {
    let run = api.get(&run_path(&args.run_id, "")?, &[]).await?;
    let signals = run_path(&args.run_id, "/signals")?;
    let signals = api.get(&signals, &[("max_points", "2".to_owned())]).await?;
    let mut told = json!({ "run": picked(&run, RUN), "frames": frames(&signals) });
    let found = Findings::read(api, &args).await?;
    let most = args.max_chars.unwrap_or(CHARS).clamp(CHARS_MIN, CHARS_MAX);
    let room = most.saturating_sub(json(&told).chars().count());
    let Value::Object(summary) = found.told(room) else { unreachable!("an object") };
    told.as_object_mut().expect("an object").extend(summary);
    Ok(vec![block(&told)])
}

/// Counts a run's frames and the kept ones, by reason.
fn frames(signals: &Value) -> Value {
    let buckets = items(&signals["buckets"]);
    let frames = items(&signals["signals"]);
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for (reason, count) in buckets.iter().filter_map(|it| it["reasons"].as_object()).flatten() {
        *reasons.entry(reason.clone()).or_default() += count.as_u64().unwrap_or(0);
    }
    for reason in frames.iter().filter_map(|frame| frame["reason"].as_str()) {
        *reasons.entry(reason.to_owned()).or_default() += 1;
    }
    let kept: u64 = buckets.iter().filter_map(|it| it["kept_frames"].as_u64()).sum();
    let kept = kept + frames.iter().filter(|frame| frame["kept"] == true).count() as u64;
    let first = buckets.first().map(|it| &it["start_pts_ms"]);
    let last = buckets.last().map(|it| &it["end_pts_ms"]);
    json!({
        "analysed": signals["frames"],
        "kept_as_stills": kept,
        "by_reason": reasons,
        "from_ms": first.or(frames.first().map(|it| &it["pts_ms"])),
        "to_ms": last.or(frames.last().map(|it| &it["pts_ms"])),
    })
}

/// A marker or a description.
struct Finding {
    from_ms: i64,
    to_ms: i64,
    event_type: String,
    /// Description by a model; `None` for a marker.
    words: Option<String>,
    /// Further fields.
    more: Value,
}

/// Findings in the requested time range.
struct Findings {
    found: Vec<Finding>,
    bytes: usize,
    /// Time from which findings were not read, if a limit was reached.
    unread_from_ms: Option<i64>,
    /// True if the server cannot read events of the run, so that its lists leave them out.
    is_damaged: bool,
}

impl Findings {
    async fn read(api: &Api, args: &ReadTimeline) -> Result<Findings, CliError> {
        let mut all =
            Findings { found: Vec::new(), bytes: 0, unread_from_ms: None, is_damaged: false };
        all.add(api, args, "markers", 1000, marker).await?;
        all.add(api, args, "interactions", 200, description).await?;
        // A finalized marker repeats two others, and begins where the first of them does.
        all.found.sort_by_key(|finding| (finding.from_ms, finding.words.is_some()));
        Ok(all)
    }

    async fn add(
        &mut self,
        api: &Api,
        args: &ReadTimeline,
        list: &'static str,
        limit: u32,
        finding: fn(&Value) -> Option<Finding>,
    ) -> Result<(), CliError> {
        let path = run_path(&args.run_id, &format!("/{list}"))?;
        let mut page = api.page(&path, &[("limit", limit.to_string())]).await?;
        let (from, to) = (args.from_ms.unwrap_or(i64::MIN), args.to_ms.unwrap_or(i64::MAX));
        loop {
            self.is_damaged |= page.value.get("damaged_events").is_some();
            let listed = items(&page.value[list]);
            let found = listed.iter().filter_map(finding);
            let wanted =
                |it: &Finding| args.event_type.as_ref().is_none_or(|of| *of == it.event_type);
            for finding in found.filter(wanted).filter(|it| it.to_ms >= from && it.from_ms <= to) {
                self.bytes +=
                    finding.words.as_ref().map_or(0, String::len) + finding.event_type.len();
                if self.found.len() == FINDINGS || self.bytes > FINDINGS_BYTES {
                    let known = self.unread_from_ms.unwrap_or(i64::MAX);
                    self.unread_from_ms = Some(known.min(finding.from_ms));
                    return Ok(());
                }
                self.found.push(finding);
            }
            let Some(next) = page.next.take() else { return Ok(()) };
            page = api.next_page(&path, &next).await?;
        }
    }

    /// Makes the summary, at most `room` characters long.
    fn told(&self, room: usize) -> Value {
        let mut told = json!({ "counts": counts(&self.found) });
        let (listed, between) = self.listed();
        let whole = [TEXT, BRIEF].into_iter().find_map(|most| {
            let entries: Vec<Value> = listed.iter().map(|finding| finding.entry(most)).collect();
            let entries = Value::Array(entries);
            (json(&told).len() + json(&entries).chars().count() <= room).then_some(entries)
        });
        let mut left_out = Vec::new();
        match whole {
            Some(entries) => {
                told["timeline"] = entries;
                if between > 0 {
                    left_out.push(format!(
                        "{between} markers of type {NOTHING}, between the others: ask with that event_type"
                    ));
                }
            }
            None => {
                told["spans"] = self.spans(room);
                left_out.push(format!(
                    "{} markers and descriptions are only counted here: ask again with from_ms and to_ms \
                     of a span, with an event_type, or with more max_chars",
                    self.found.len()
                ));
            }
        }
        if let Some(from_ms) = self.unread_from_ms {
            left_out
                .push(format!("there is more than is read at once: ask with from_ms {from_ms}"));
        }
        if self.is_damaged {
            left_out.push("events that the server cannot read: its log is damaged".to_owned());
        }
        if !left_out.is_empty() {
            told["left_out"] = left_out.join("; ").into();
        }
        told
    }

    /// Returns the findings to list, and the number of markers left out as they have no event.
    fn listed(&self) -> (Vec<&Finding>, usize) {
        let is_nothing = |it: &&Finding| it.words.is_none() && it.event_type == NOTHING;
        let nothing = self.found.iter().filter(is_nothing).count();
        if nothing == self.found.len() {
            return (self.found.iter().collect(), 0);
        }
        (self.found.iter().filter(|it| !is_nothing(it)).collect(), nothing)
    }

    /// Counts all findings in spans of equal length, each with the beginning of its first description.
    fn spans(&self, room: usize) -> Value {
        let from = self.found.first().map_or(0, |finding| finding.from_ms);
        let to = self.found.last().map_or(from, |finding| finding.from_ms);
        let mut count = (room / SPAN_CHARS).clamp(2, SPANS);
        loop {
            let length = to.abs_diff(from) / count as u64 + 1;
            let mut spans: Vec<Vec<&Finding>> = vec![Vec::new(); count];
            for finding in &self.found {
                let at = (finding.from_ms.abs_diff(from) / length) as usize;
                spans[at.min(count - 1)].push(finding);
            }
            let told = spans.iter().enumerate().filter(|(_, found)| !found.is_empty());
            let told = told.map(|(at, found)| {
                let start = from.saturating_add_unsigned(length * at as u64);
                let mut span = json!({
                    "from_ms": start,
                    "to_ms": start.saturating_add_unsigned(length - 1),
                    "counts": counts(found.iter().copied()),
                });
                if let Some(words) = found.iter().find_map(|finding| finding.words.as_deref()) {
                    span["begins_with"] = clipped(words, BRIEF / 2).into();
                }
                span
            });
            let told = Value::Array(told.collect());
            if count == 2 || json(&told).chars().count() <= room {
                return told;
            }
            count = (count / 2).max(2);
        }
    }
}

impl Finding {
    fn entry(&self, most: usize) -> Value {
        let mut entry = json!({ "from_ms": self.from_ms, "to_ms": self.to_ms });
        let what = if self.words.is_some() { "description_type" } else { "marker" };
        entry[what] = clipped(&self.event_type, BRIEF).into();
        if let Value::Object(more) = &self.more {
            entry.as_object_mut().expect("an object").extend(more.clone());
        }
        if let Some(words) = &self.words {
            entry["description"] = clipped(words, most).into();
        }
        entry
    }
}

/// Counts descriptions, and markers by type; lists only the most frequent types.
fn counts<'a>(found: impl IntoIterator<Item = &'a Finding>) -> Value {
    let mut descriptions = 0_u64;
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    for finding in found {
        match finding.words {
            Some(_) => descriptions += 1,
            None => *types.entry(&finding.event_type).or_default() += 1,
        }
    }
    let mut types: Vec<(&str, u64)> = types.into_iter().collect();
    types.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others: u64 = types.iter().skip(TYPES).map(|(_, count)| count).sum();
    let told = types.iter().take(TYPES);
    let mut markers: Map<String, Value> =
        told.map(|(name, count)| (clipped(name, BRIEF / 4), (*count).into())).collect();
    if others > 0 {
        markers.insert("of other types".to_owned(), others.into());
    }
    json!({ "descriptions": descriptions, "markers": markers })
}

fn marker(record: &Value) -> Option<Finding> {
    let more = ["start_frame", "end_frame", "confidence", "status", "origin"];
    Some(Finding {
        from_ms: record["start_pts_ms"].as_i64()?,
        to_ms: record["end_pts_ms"].as_i64()?,
        event_type: record["event_type"].as_str()?.to_owned(),
        words: None,
        more: picked(record, &more),
    })
}

fn description(record: &Value) -> Option<Finding> {
    let from_ms = record["start_pts_ms"].as_i64().unwrap_or(0);
    let text = |name: &str| record[name].as_str().filter(|text| !text.is_empty());
    let words = text("description").or(text("summary"))?;
    Some(Finding {
        from_ms,
        to_ms: record["end_pts_ms"].as_i64().unwrap_or(from_ms),
        event_type: record["event_type"].as_str().unwrap_or_default().to_owned(),
        // Clipped to the longest text shown, with the number of omitted characters.
        words: Some(clipped(words, TEXT)),
        more: picked(record, &["object_label", "confidence"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(count: i64, event_type: impl Fn(i64) -> String, words: Option<&str>) -> Findings {
        let found = (0..count).map(|at| Finding {
            from_ms: at * 100,
            to_ms: at * 100 + 99,
            event_type: event_type(at),
            words: words.map(str::to_owned),
            more: json!({}),
        });
        Findings { found: found.collect(), bytes: 0, unread_from_ms: None, is_damaged: false }
    }

    #[test]
    fn a_summary_fits_its_room_and_says_what_is_missing() {
        let long = "x".repeat(TEXT);
        let (one, each) = (|_| "scene_cut".to_owned(), |at| format!("type {at}"));
        for (case, found, listed, counted) in [
            ("nothing", findings(0, one, None), Some(0), 0),
            ("few", findings(20, one, None), Some(20), 0),
            ("few with much to say", findings(12, one, Some(&long)), Some(12), 0),
            ("many", findings(50_000, one, None), None, 50_000),
            ("many with much to say", findings(1000, one, Some(&long)), None, 1000),
            ("all of other types", findings(50_000, each, None), None, 50_000),
            ("nothing of note", findings(10, |_| NOTHING.to_owned(), None), Some(10), 0),
        ] {
            let room = 8000;
            let told = found.told(room);
            assert!(json(&told).len() < room + 1000, "{case}: {}", json(&told).len());
            assert_eq!(told["timeline"].as_array().map(Vec::len), listed, "{case}");
            let left_out = told["left_out"].as_str().unwrap_or_default();
            assert_eq!(left_out.contains(&counted.to_string()), counted > 0, "{case}: {left_out}");
            let spans = items(&told["spans"]);
            let total = |counts: &Value| {
                let markers = counts["markers"].as_object().expect("an object");
                let markers: u64 = markers.values().filter_map(Value::as_u64).sum();
                markers + counts["descriptions"].as_u64().expect("a number")
            };
            let summed: u64 = spans.iter().map(|span| total(&span["counts"])).sum();
            assert_eq!(summed, counted, "{case}: no finding is in no span");
            let damaged = Findings { is_damaged: true, ..found }.told(room);
            let left_out = damaged["left_out"].as_str().unwrap_or_default();
            assert!(left_out.contains("cannot read"), "{case}: {left_out}");
        }
    }
}
