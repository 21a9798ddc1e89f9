//! Fills the slots of `page.html`.
//!
//! Every text passes through [`text`], every JSON block through [`script_safe`].

use std::io::{self, Write};

use base64::{Engine, engine::general_purpose::STANDARD, write::EncoderWriter};
use gate::SelectionReason;
use media::{EventType, Score, Signal, is_hidden};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Report, still_sampler::Tone};
use crate::{
    activity::EpisodeRecord,
    output::{clock, counted, grouped},
    wire::MarkerRecord,
    words,
};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("app.js");

/// Writes the whole page.
pub fn write(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let mut rest = PAGE;
    while let Some((markup, tail)) = rest.split_once("{{") {
        out.write_all(markup.as_bytes())?;
        let (slot, tail) = tail.split_once("}}").expect("every slot of page.html is closed");
        fill(slot, report, out)?;
        rest = tail;
    }
    out.write_all(rest.as_bytes())
}

fn fill(slot: &str, report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    match slot {
        "policy" => policy(out),
        "title" => out.write_all(text(report.title).as_bytes()),
        "style" => out.write_all(STYLE.as_bytes()),
        "facts" => facts(report, out),
        "warning" => warning(report, out),
        "tiles" => tiles(report, out),
        "film" => filmstrip(report, out),
        "curves" => lanes(report, out),
        "gallery" => gallery(report, out),
        "words" => words(out),
        "version" => out.write_all(env!("CARGO_PKG_VERSION").as_bytes()),
        "made_at" => out.write_all(text(&report.made_at).as_bytes()),
        "data" => data(report, out),
        "script" => out.write_all(SCRIPT.as_bytes()),
        unknown => unreachable!("page.html has a slot {unknown}"),
    }
}

/// Escapes `raw` for HTML text or attributes, and replaces hidden characters.
fn text(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if is_hidden(c) => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Serializes a value as JSON that cannot end its script block.
fn script_safe(value: &Value) -> String {
    value.to_string().replace(is_hidden, "\u{fffd}").replace('<', "\\u003c")
}

/// Writes the content security policy: nothing is loaded, and only this style and script apply.
fn policy(out: &mut impl Write) -> io::Result<()> {
    let hash = |source: &str| STANDARD.encode(Sha256::digest(source));
    write!(
        out,
        "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'; \
         base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(SCRIPT),
    )
}

fn facts(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    for (name, value) in &report.facts {
        let (name, value) = (text(name), text(value));
        write!(out, r#"<div><dt>{name}</dt><dd class="num">{value}</dd></div>"#)?;
    }
    Ok(())
}

fn warning(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    match &report.warning {
        Some(warning) => write!(out, r#"<p class="note" role="note">{}</p>"#, text(warning)),
        None => Ok(()),
    }
}

fn tiles(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let frames = report.signals.len() as u64;
    let span_ms = match report.signals {
        [first, .., last] => last.pts_ms.saturating_sub(first.pts_ms),
        _ => 0,
    };
    let cuts = report.markers_of(EventType::SceneCut).count() as u64;
    let shots = if frames == 0 { 0 } else { cuts + 1 };
    let (artifacts, artifact_frames) = report
        .markers_of(EventType::ArtifactSuspected)
        .map(|marker| marker.end_frame.saturating_sub(marker.start_frame) + 1)
        .fold((0, 0), |(count, sum), frames| (count + 1, sum + frames));
    let share = 100.0 * artifact_frames as f64 / frames.max(1) as f64;
    let moving_ms: i64 = report.episodes.iter().filter_map(EpisodeRecord::length_ms).sum();
    let (kept, seen) = (report.stills.kept().len() as u64, report.stills.seen());
    let shown = match kept == seen {
        true => "one for each selected frame".to_owned(),
        false => format!("{} of {} shown", grouped(kept), grouped(seen)),
    };
    let of_status = |status| report.markers.iter().filter(|m| m.status == status).count() as u64;
    let statuses = [("exact", of_status("exact")), ("provisional", of_status("provisional"))]
        .map(|(status, count)| format!("{} {status}", grouped(count)))
        .join(", ");

    let mut tile = |class: &str, label: &str, value: &str, hint: &str| {
        write!(
            out,
            r#"<div class="tile {class}"><p class="label">{label}</p><p class="value num">{value}</p><p class="hint">{hint}</p></div>"#
        )
    };
    let tone = |class, count| if count > 0 { class } else { "" };
    tile("", "Analysed", &clock(span_ms), &counted(frames, "frame"))?;
    let hint = format!("{:.1} s in all", moving_ms as f64 / 1000.0);
    tile("", "Activity", &grouped(report.episodes.len() as u64), &hint)?;
    let hint = counted(shots, "shot");
    tile(tone("cut", cuts), "Scene cuts", &grouped(cuts), &hint)?;
    let hint = format!("{share:.1} % of all frames");
    tile(tone("artifact", artifacts), "Artifacts suspected", &grouped(artifacts), &hint)?;
    tile("", "Stills", &grouped(seen), &shown)?;
    tile("", "Markers", &grouped(report.markers.len() as u64), &statuses)
}

fn filmstrip(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    if report.stills.kept().len() == 0 {
        return Ok(());
    }
    out.write_all(
        br#"<div class="lane plain"><div class="name">Stills</div><div class="track film" id="film"></div></div>"#,
    )
}

/// Signal drawn as a curve.
struct Curve {
    id: &'static str,
    label: &'static str,
    limit: Option<Score>,
    value: fn(&Signal) -> Score,
}

fn curves(report: &Report<'_>) -> [Curve; 6] {
    let curve = |id, label, limit, value| Curve { id, label, limit, value };
    let gate = &report.gate;
    [
        curve("activity", "Activity", Some(gate.activity_on), |s| {
            s.activity.unwrap_or_default().score
        }),
        curve("scene", "Scene", Some(gate.scene_cut), |s| s.scene_score.unwrap_or_default()),
        curve("luma", "Luma", None, |s| s.luma_mean),
        curve("flicker", "Flicker", Some(gate.flicker), |s| s.flicker_score),
        curve("ghosting", "Ghosting", Some(gate.ghosting), |s| s.ghosting_score),
        curve("noise", "Noise", Some(gate.noise), |s| s.noise_variance_score),
    ]
}

fn lanes(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    for Curve { id, label, limit, .. } in curves(report) {
        let hint = limit.map_or_else(String::new, |limit| format!("limit {}", limit.as_f64()));
        writeln!(
            out,
            r#"<div class="lane curve {id}" id="lane-{id}" data-label="{label}"><div class="name">{label} <span class="now">–</span><small>{hint}</small></div><div class="track curve"></div></div>"#
        )?;
    }
    Ok(())
}

/// Writes the explanations of the terms on the page.
fn words(out: &mut impl Write) -> io::Result<()> {
    let rows = words::table("event_type").into_iter().chain(words::table("status"));
    let confidence = ("confidence".to_owned(), words::confidence());
    for (word, means) in rows.chain([confidence]) {
        write!(out, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", text(&word), text(&means))?;
    }
    Ok(())
}

fn gallery(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    if report.stills.kept().len() == 0 {
        return Ok(());
    }
    out.write_all(
        br#"<section class="card" aria-labelledby="stills-title"><div class="head"><h2 id="stills-title">Stills</h2><span class="muted">frames that the gate selected</span></div><div class="gallery">"#,
    )?;
    for still in report.stills.kept() {
        let (frame, pts_ms, at) = (still.frame_index, still.pts_ms, clock(still.pts_ms));
        let (tone, reason) = (Tone::of(&still.reason).as_str(), text(&still.reason));
        let words = reason.replace('_', " ");
        write!(
            out,
            r#"<figure data-frame="{frame}" data-pts="{pts_ms}" data-reason="{reason}" data-tone="{tone}"><button type="button" aria-label="Enlarge the still at {at}"><img alt="Frame {frame} at {at}, selected as {words}" src="data:image/jpeg;base64,"#
        )?;
        let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
        encoder.write_all(&still.jpeg)?;
        encoder.finish()?;
        drop(encoder);
        writeln!(
            out,
            r#""></button><figcaption><span class="num">{at}</span><span class="reason {tone}">{words}</span></figcaption></figure>"#
        )?;
    }
    out.write_all(b"</div></section>")
}

/// Returns the data for the script, besides the columns.
fn facts_json(report: &Report<'_>, curves: &[Curve]) -> Value {
    let extent = report.stills.kept().find_map(|still| still.extent);
    let limit = |it: &Curve| (it.id.to_owned(), Value::from(it.limit.map(Score::as_f64)));
    let limits: Map<String, Value> = curves.iter().map(limit).collect();
    let episode = |it: &EpisodeRecord| {
        json!({
            "start_frame": it.start_frame,
            "end_frame": it.end_frame,
            "start_pts_ms": it.start_pts_ms,
            "end_pts_ms": it.end_pts_ms,
            "peak_score": it.peak_score,
            "place": it.place(),
        })
    };
    // Without ids, which would double the size of a page with many markers.
    let marker = |it: &MarkerRecord| {
        json!({
            "event_type": it.event_type,
            "status": it.status,
            "start_frame": it.start_frame,
            "end_frame": it.end_frame,
            "start_pts_ms": it.start_pts_ms,
            "end_pts_ms": it.end_pts_ms,
            "confidence": it.confidence,
        })
    };
    json!({
        "first_frame": report.signals.first().map_or(0, |signal| signal.frame_index),
        // Width divided by height of the stills, used until they are loaded.
        "ratio": extent.map_or(16.0 / 9.0, |(w, h)| f64::from(w) / f64::from(h.max(1))),
        "reasons": SelectionReason::ALL.map(SelectionReason::as_str),
        "limits": limits,
        "episodes": report.episodes.iter().map(episode).collect::<Value>(),
        "markers": report.markers.iter().map(marker).collect::<Value>(),
    })
}

fn data(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let curves = curves(report);
    let facts = facts_json(report, &curves);
    writeln!(
        out,
        r#"<script type="application/json" id="facts">{}</script>"#,
        script_safe(&facts)
    )?;
    column(out, "pts", report.signals.iter().map(|signal| (signal.pts_ms as f64).to_le_bytes()))?;
    let code =
        |reason| SelectionReason::ALL.iter().position(|known| *known == reason).unwrap_or(0) as u8;
    column(out, "reason", report.reasons().map(|reason| [code(reason)]))?;
    for Curve { id, value, .. } in curves {
        let of_65535 = |signal| {
            let millionths = u64::from(value(signal).millionths());
            ((millionths * 65_535 + 500_000) / u64::from(Score::SCALE)) as u16
        };
        column(out, id, report.signals.iter().map(|signal| of_65535(signal).to_le_bytes()))?;
    }
    Ok(())
}

/// Writes one value per frame as base64 of little-endian numbers: a tenth of the size of JSON.
fn column<const N: usize>(
    out: &mut impl Write,
    id: &str,
    values: impl Iterator<Item = [u8; N]>,
) -> io::Result<()> {
    write!(out, r#"<script type="application/octet-stream" id="column-{id}">"#)?;
    let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
    for value in values {
        encoder.write_all(&value)?;
    }
    encoder.finish()?;
    drop(encoder);
    out.write_all(b"</script>\n")
}
