//! The page as text: content that it must have, and content that it must never have.

use media::Score;
use serde_json::json;

use super::*;

fn signals(count: u64) -> Vec<Signal> {
    (0..count)
        .map(|index| Signal {
            source_frame_index: Some(index),
            perceptual_hash: index,
            luma_mean: Score::from_millionths(500_000),
            scene_score: Some(Score::ZERO),
            ..Signal::plain(index, index as i64 * 40)
        })
        .collect()
}

fn marker(event_type: &str) -> MarkerRecord {
    let marker = json!({ "marker_id": "mk-0011223344556677", "run_id": "run", "stream_id": "video",
        "event_type": event_type, "status": "exact", "start_frame": 0, "end_frame": 3,
        "start_pts_ms": 0, "end_pts_ms": 120, "confidence": 1.0 });
    serde_json::from_value(marker).expect("a marker")
}

fn episode(zone: &str) -> EpisodeRecord {
    let episode = json!({ "stream_id": "main", "start_frame": 1, "end_frame": 3,
        "start_pts_ms": 40, "end_pts_ms": 120, "peak_score": 0.25, "peak_frame": 2, "zones": [zone] });
    serde_json::from_value(episode).expect("an episode")
}

fn render(title: &str, markers: &[MarkerRecord], frames: u64, shelf: &StillSampler) -> String {
    let signals = signals(frames);
    let report = Report {
        title,
        facts: vec![("Codec", "h264".to_owned()), ("File", title.to_owned())],
        warning: Some(title.to_owned()),
        signals: &signals,
        episodes: &[episode(title)],
        markers,
        stills: shelf,
        gate: GateConfig::default(),
        made_at: "2026-01-01T00:00:00Z".to_owned(),
    };
    let mut page = Vec::new();
    page::write(&report, &mut page).expect("a vector takes every byte");
    String::from_utf8(page).expect("pages are UTF-8")
}

#[test]
fn names_from_outside_are_text_and_never_markup() {
    let hostile =
        "</script><script>alert(1)</script>\"><img src=x onerror='alert(2)'>\u{202e}&\x1b";
    let mut shelf = StillSampler::default();
    shelf.push(ReportStill {
        frame_index: 0,
        pts_ms: 0,
        reason: hostile.to_owned(),
        extent: None,
        jpeg: vec![0xff, 0xd8],
    });
    let page = render(hostile, &[marker(hostile)], 4, &shelf);
    for markup in ["<script>alert", "</script><script>alert", "<img src=x", "\u{202e}", "\x1b"] {
        let at = page.find(markup);
        let around = at.map(|at| &page[at.saturating_sub(60)..(at + 40).min(page.len())]);
        assert_eq!(around, None, "{markup:?}");
    }
    // Inside the JSON block the name is data, with the bracket that could close the block escaped.
    assert!(page.contains("\\u003c/script>"));
}

#[test]
fn the_policy_names_exactly_the_one_style_and_the_one_script() {
    let page = render("clip.mp4", &[], 2, &StillSampler::default());
    let policy = page.split("content=\"").nth(1).and_then(|rest| rest.split('"').next());
    let policy = policy.expect("a policy comes first");
    assert_eq!(policy.matches("'sha256-").count(), 2);
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.matches("<style>").count(), 1);
    assert_eq!(page.matches("<script>").count(), 1);
    for attribute in
        [" style=\"", " onclick=", " onload=", "http://", "https://", "@import", "url("]
    {
        let outside_of_names = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside_of_names.contains(attribute), "{attribute}");
    }
}

#[test]
fn episodes_are_drawn_over_the_curve_of_activity() {
    let page = render("clip.mp4", &[], 4, &StillSampler::default());
    let facts = page.split("id=\"facts\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let facts: serde_json::Value =
        serde_json::from_str(facts.expect("a block")).expect("the block is JSON");
    let expected = json!([{ "start_pts_ms": 40, "end_pts_ms": 120, "start_frame": 1,
        "end_frame": 3, "peak_score": 0.25, "place": "in clip.mp4" }]);
    assert_eq!(facts["episodes"], expected);
    for part in ["id=\"lane-activity\"", "id=\"column-activity\"", ">Activity</p>"] {
        assert_eq!(page.matches(part).count(), 1, "{part}");
    }
}

#[test]
fn a_page_without_frames_is_still_a_page() {
    let page = render("empty.mp4", &[], 0, &StillSampler::default());
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
}

#[test]
fn half_a_million_frames_stay_small() {
    let page = render("long.mp4", &[], 500_000, &StillSampler::default());
    assert!(page.len() < 16 << 20, "{} bytes", page.len());
}
