//! The page's markup. Every piece of text passes through [`text`], every JSON block through [`json`].

use std::io::{self, Write};

use base64::{Engine, engine::general_purpose::STANDARD, write::EncoderWriter};
use gate::Reason;
use media::{EventType, Score, Signal};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{Report, shelf::Tone};
use crate::{
    output::{clock, grouped, is_hidden},
    wire::MarkerRecord,
};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("app.js");
const LOGO: &str = "<svg viewBox=\"0 0 24 24\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" \
    aria-hidden=\"true\"><path d=\"M2 12s3.6-6.5 10-6.5S22 12 22 12s-3.6 6.5-10 6.5S2 12 2 12z\"/>\
    <circle cx=\"12\" cy=\"12\" r=\"2.6\" fill=\"currentColor\"/></svg>";

/// Writes the whole page.
pub fn write(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    head(report, out)?;
    header(report, out)?;
    out.write_all(b"<main>")?;
    tiles(report, out)?;
    timeline(report, out)?;
    markers(out)?;
    gallery(report, out)?;
    out.write_all(b"</main>")?;
    footer(report, out)?;
    data(report, out)?;
    write!(out, "<script>{SCRIPT}</script></body></html>\n")
}

/// `raw` as HTML text or attribute value, without characters that only deceive.
pub fn text(raw: &str) -> String {
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

/// A value as JSON that cannot end the script block it stands in.
fn json(value: &impl Serialize) -> io::Result<String> {
    let raw = serde_json::to_string(value)?;
    Ok(raw.replace(is_hidden, "\u{fffd}").replace('<', "\\u003c"))
}

fn source_hash(source: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(source)))
}

fn head(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; \
         style-src {}; script-src {}; base-uri 'none'; form-action 'none'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"referrer\" content=\"no-referrer\"><meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"data:,\"><title>{} · Sightline</title><style>{STYLE}</style></head><body>\n",
        source_hash(STYLE),
        source_hash(SCRIPT),
        text(report.title),
    )
}

fn header(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "<header class=\"page\"><div class=\"brand\">{LOGO}<b>Sightline</b><span>analysis report</span>\
         <span class=\"space\"></span><button class=\"tool\" id=\"theme\" type=\"button\" \
         aria-label=\"Switch between light and dark\">◐</button></div><h1>{}</h1><dl class=\"facts\">",
        text(report.title)
    )?;
    for (name, value) in &report.facts {
        write!(out, "<div><dt>{}</dt><dd class=\"num\">{}</dd></div>", text(name), text(value))?;
    }
    out.write_all(b"</dl>")?;
    if let Some(warning) = &report.warning {
        write!(out, "<p class=\"note\" role=\"note\">{}</p>", text(warning))?;
    }
    out.write_all(b"</header>\n")
}

fn tiles(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let frames = report.signals.len() as u64;
    let span = match report.signals {
        [first, .., last] => last.pts_ms - first.pts_ms,
        _ => 0,
    };
    let cuts = report.markers_of(EventType::SceneCut).count() as u64;
    let artifacts = report.markers_of(EventType::ArtifactSuspected);
    let (count, artifact_frames) = artifacts.fold((0, 0), |(count, sum), m| {
        (count + 1, sum + m.end_frame.saturating_sub(m.start_frame) + 1)
    });
    let shots = if frames == 0 { 0 } else { cuts + 1 };
    let embedded = report.stills.kept().len() as u64;
    let selected = match report.stills.seen() {
        seen if seen == embedded => "one for each selected frame".to_owned(),
        seen => format!("{} of {} shown", grouped(embedded), grouped(seen)),
    };
    let share =
        |part: u64| format!("{:.1} % of all frames", 100.0 * part as f64 / frames.max(1) as f64);
    let tone = |class, count| if count > 0 { class } else { "" };
    let tiles = [
        ("", "Analysed", clock(span), format!("{} frames", grouped(frames))),
        (
            tone("cut", cuts),
            "Scene cuts",
            grouped(cuts),
            format!("{} {}", grouped(shots), plural(shots, "shot")),
        ),
        (tone("artifact", count), "Artifacts suspected", grouped(count), share(artifact_frames)),
        ("", "Stills", grouped(report.stills.seen()), selected),
        ("", "Markers", grouped(report.markers.len() as u64), statuses(report.markers)),
    ];
    out.write_all(b"<section class=\"tiles\" aria-label=\"Summary\">")?;
    for (class, label, value, hint) in tiles {
        write!(
            out,
            "<div class=\"tile {class}\"><p class=\"label\">{label}</p><p class=\"value num\">{value}</p>\
             <p class=\"hint\">{hint}</p></div>"
        )?;
    }
    out.write_all(b"</section>\n")
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

fn statuses(markers: &[MarkerRecord]) -> String {
    let count = |status| markers.iter().filter(|marker| marker.status == status).count();
    format!(
        "{} exact, {} provisional",
        grouped(count("exact") as u64),
        grouped(count("provisional") as u64)
    )
}

/// The curves in order: element id, name, threshold, value of a signal.
fn curves(
    report: &Report<'_>,
) -> [(&'static str, &'static str, Option<Score>, fn(&Signal) -> Score); 5] {
    let gate = &report.gate;
    [
        ("scene", "Scene", Some(gate.scene_cut), |s| s.scene_score.unwrap_or(Score::ZERO)),
        ("luma", "Luma", None, |s| s.luma_mean),
        ("flicker", "Flicker", Some(gate.flicker), |s| s.flicker_score),
        ("ghosting", "Ghosting", Some(gate.ghosting), |s| s.ghosting_score),
        ("noise", "Noise", Some(gate.noise), |s| s.noise_variance_score),
    ]
}

fn timeline(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    out.write_all(
        b"<section class=\"card\" aria-labelledby=\"timeline-title\"><div class=\"head\">\
          <h2 id=\"timeline-title\">Timeline</h2><span class=\"legend\" id=\"legend\">",
    )?;
    for (status, label) in
        [("exact", "exact"), ("provisional", "provisional"), ("finalized", "finalized")]
    {
        write!(
            out,
            "<span class=\"context_observation\"><svg viewBox=\"0 0 18 10\" aria-hidden=\"true\"><rect x=\"1\" y=\"1\" \
             width=\"16\" height=\"8\" rx=\"2\" class=\"mark {status}\"/></svg>{label}</span>"
        )?;
    }
    out.write_all(
        b"<span><svg viewBox=\"0 0 18 10\" aria-hidden=\"true\"><line x1=\"0\" x2=\"18\" y1=\"5\" y2=\"5\" \
          class=\"limit\"/></svg>threshold</span></span><span class=\"space\"></span>\
          <span class=\"muted num\" id=\"zoom-range\"></span>\
          <span role=\"group\" aria-label=\"Zoom\"><button class=\"tool\" id=\"zoom-out\" type=\"button\" \
          aria-label=\"Zoom out\">\xe2\x88\x92</button> <button class=\"tool\" id=\"zoom-in\" type=\"button\" \
          aria-label=\"Zoom in\">+</button> <button class=\"tool\" id=\"zoom-reset\" type=\"button\">All</button></span></div>\
          <div id=\"readout\"></div><noscript><p class=\"empty\">The curves need JavaScript; the stills below do not.</p></noscript>\
          <div id=\"plot\" tabindex=\"0\" role=\"slider\" aria-label=\"Timeline cursor\" aria-describedby=\"keys\">",
    )?;
    if report.stills.kept().len() > 0 {
        out.write_all(
            b"<div class=\"lane plain\"><div class=\"name\">Stills</div><div class=\"track film\" id=\"film\"></div></div>",
        )?;
    }
    out.write_all(
        b"<div class=\"lane plain\"><div class=\"name rows\" id=\"marker-types\"></div>\
          <div class=\"track\" id=\"markers-track\"></div></div>\
          <div class=\"lane plain\"><div class=\"name\"></div><div class=\"track axis\" id=\"axis\"></div></div>",
    )?;
    for (id, label, limit, _) in curves(report) {
        let hint = limit.map_or_else(String::new, |limit| format!("limit {:.2}", limit.as_f64()));
        write!(
            out,
            "<div class=\"lane curve {id}\" id=\"lane-{id}\" data-label=\"{label}\"><div class=\"name\">{label}\
             <span class=\"now\">–</span><small>{hint}</small></div><div class=\"track curve\"></div></div>"
        )?;
    }
    out.write_all(
        b"<div id=\"range\" hidden></div><div id=\"cursor\" hidden></div></div></section>\n",
    )
}

fn markers(out: &mut impl Write) -> io::Result<()> {
    out.write_all(
        b"<section class=\"card\" aria-labelledby=\"markers-title\"><div class=\"head\">\
          <h2 id=\"markers-title\">Markers</h2><span class=\"muted num\" id=\"marker-count\" aria-live=\"polite\"></span>\
          <span class=\"space\"></span><div class=\"filters\" role=\"group\" aria-label=\"Filter markers\">\
          <span class=\"filters\" id=\"chips\"></span><label>Status <select id=\"status\"><option value=\"\">any</option>\
          <option>exact</option><option>provisional</option><option>finalized</option></select></label>\
          <label><input type=\"checkbox\" id=\"in-view\"> only in view</label></div></div>\
          <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Marker table\"><table><thead><tr><th scope=\"col\">Type</th>\
          <th scope=\"col\">Status</th><th scope=\"col\" class=\"r\">Start</th><th scope=\"col\" class=\"r\">End</th>\
          <th scope=\"col\" class=\"r\">Length</th><th scope=\"col\" class=\"r\">Frames</th>\
          <th scope=\"col\" class=\"r\">Confidence</th></tr></thead><tbody id=\"marker-rows\"></tbody></table>\
          <p class=\"empty\" id=\"no-markers\" hidden>No marker matches the filter.</p>\
          <button class=\"more\" id=\"more\" type=\"button\" hidden></button></div></section>\n",
    )
}

fn gallery(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    if report.stills.kept().len() == 0 {
        return Ok(());
    }
    write!(
        out,
        "<section class=\"card\" aria-labelledby=\"stills-title\"><div class=\"head\"><h2 id=\"stills-title\">Stills</h2>\
         <span class=\"muted\">frames that the gate selected</span></div><div class=\"gallery\">"
    )?;
    for still in report.stills.kept() {
        let (tone, reason) = (Tone::of(&still.reason).as_str(), text(&still.reason));
        let (words, at) = (text(&still.reason.replace('_', " ")), clock(still.pts_ms));
        write!(
            out,
            "<figure data-frame=\"{}\" data-pts=\"{}\" data-reason=\"{reason}\" data-tone=\"{tone}\">\
             <button type=\"button\" aria-label=\"Enlarge the still at {at}\">\
             <img alt=\"Frame {} at {at}, selected as {words}\" src=\"data:image/jpeg;base64,",
            still.frame_index, still.pts_ms, still.frame_index,
        )?;
        let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
        encoder.write_all(&still.jpeg)?;
        encoder.finish()?;
        drop(encoder);
        write!(
            out,
            "\"></button><figcaption><span class=\"num\">{at}</span><span class=\"reason {tone}\">{words}</span>\
             </figcaption></figure>\n"
        )?;
    }
    out.write_all(
        b"</div></section><dialog id=\"still\" aria-label=\"Still\"><img id=\"still-image\" alt=\"\"><div class=\"bar\">\
          <p class=\"num\" id=\"still-text\" aria-live=\"polite\"></p>\
          <button class=\"tool\" id=\"still-previous\" type=\"button\" aria-label=\"Previous still\">\xe2\x86\x90</button>\
          <button class=\"tool\" id=\"still-next\" type=\"button\" aria-label=\"Next still\">\xe2\x86\x92</button>\
          <button class=\"tool\" id=\"still-close\" type=\"button\">Close</button></div></dialog>\n",
    )
}

fn footer(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "<footer><span>Made by Sightline {} at {}</span><span class=\"keys\" id=\"keys\"><kbd>←</kbd> <kbd>→</kbd> frame \
         <kbd>n</kbd> <kbd>p</kbd> marker <kbd>+</kbd> <kbd>−</kbd> <kbd>0</kbd> zoom <kbd>Enter</kbd> still \
         · drag to zoom, double-click for all</span></footer>\n",
        env!("CARGO_PKG_VERSION"),
        text(&report.made_at),
    )
}

#[derive(Serialize)]
struct Facts<'a> {
    first_frame: u64,
    ratio: f64,
    reasons: Vec<&'static str>,
    limits: serde_json::Map<String, serde_json::Value>,
    markers: &'a [MarkerRecord],
}

fn data(report: &Report<'_>, out: &mut impl Write) -> io::Result<()> {
    let ratio = report.stills.kept().find_map(|still| still.extent);
    let facts = Facts {
        first_frame: report.signals.first().map_or(0, |signal| signal.frame_index),
        ratio: ratio.map_or(16.0 / 9.0, |(w, h)| f64::from(w) / f64::from(h.max(1))),
        reasons: Reason::ALL.iter().map(|reason| reason.as_str()).collect(),
        limits: curves(report)
            .iter()
            .map(|(id, _, limit, _)| ((*id).to_owned(), limit.map(Score::as_f64).into()))
            .collect(),
        markers: report.markers,
    };
    write!(out, "<script type=\"application/json\" id=\"facts\">{}</script>\n", json(&facts)?)?;
    column(out, "pts", report.signals.iter().map(|signal| (signal.pts_ms as f64).to_le_bytes()))?;
    let position = |reason: &Reason| Reason::ALL.iter().position(|known| known == reason);
    column(
        out,
        "reason",
        report.reasons().iter().map(|reason| [position(reason).unwrap_or_default() as u8]),
    )?;
    for (id, _, _, value) in curves(report) {
        let scaled = |signal| {
            let millionths = u64::from(value(signal).millionths());
            ((millionths * 65_535 + 500_000) / u64::from(Score::SCALE)) as u16
        };
        column(out, id, report.signals.iter().map(|signal| scaled(signal).to_le_bytes()))?;
    }
    Ok(())
}

/// One value a frame as base64 of little-endian numbers: a tenth of the size of JSON.
fn column<const N: usize>(
    out: &mut impl Write,
    id: &str,
    values: impl Iterator<Item = [u8; N]>,
) -> io::Result<()> {
    write!(out, "<script type=\"application/octet-stream\" id=\"column-{id}\">")?;
    let mut encoder = EncoderWriter::new(&mut *out, &STANDARD);
    for value in values {
        encoder.write_all(&value)?;
    }
    encoder.finish()?;
    drop(encoder);
    out.write_all(b"</script>\n")
}
