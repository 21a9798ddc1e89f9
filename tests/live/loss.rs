//! Live video over a bad path: what is lost is asked for again and counted, and what reaches the
//! gate is whole. Every frame is kept as a still and compared with those of the file that was sent.

use std::{collections::BTreeSet, path::PathBuf};

use serde_json::{Value, json};

use crate::support::{
    Server, Setup,
    whip::{Publication, clip, sightline},
};

const SECONDS: usize = 5;
const FRAMES: usize = SECONDS * clip::RATE as usize;
/// Stills that may wait for a session's task.
const WAITING: f64 = 32.0;

/// A moving test picture in H.264, with pictures that refer to later ones.
fn moving() -> PathBuf {
    let rate = clip::RATE;
    let line = format!(
        "-f lavfi -i testsrc2=s=320x240:r={rate}:d={SECONDS} -pix_fmt yuv420p \
         -c:v libx264 -preset veryfast -bf 2 -b:v 1M -g {rate}"
    );
    clips::rendered("moving.mp4", &line)
}

/// The stills of a run: their times, and the hashes of their pictures.
fn stills(server: &Server, run: &str) -> Vec<(i64, Value)> {
    let stills = server.payloads(run, "keyframe_stored").into_iter();
    let of =
        |still: Value| (still["pts_ms"].as_i64().expect("a time"), still["image_sha256"].clone());
    stills.map(of).collect()
}

/// Checks that each still is the picture of the clip that its time says, to the bit, but for `jumps` of the publisher to a
/// later picture.
fn check_whole(name: &str, reference: &[Value], stills: &[(i64, Value)], jumps: u64) {
    let frame_ms = 1000 / i64::from(clip::RATE);
    let ahead = stills.iter().map(|(pts_ms, hash)| {
        let frame = reference.iter().position(|sent| sent == hash);
        frame.unwrap_or_else(|| panic!("{name}: broken at {pts_ms} ms")) as i64 * frame_ms - pts_ms
    });
    let mut ahead: Vec<i64> = ahead.collect();
    // Times are of 90 kHz, rounded to milliseconds.
    let is_older = |pair: &[i64]| pair[1] < pair[0] - 1;
    assert!(!ahead.windows(2).any(is_older), "{name}: older than its time: {ahead:?}");
    ahead.dedup_by(|next, before| next.abs_diff(*before) <= 1);
    assert!(ahead.len() as u64 <= 1 + jumps, "{name}: {jumps} jumps, {ahead:?}");
}

fn count(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().unwrap_or_else(|| panic!("no {name}: {figures}"))
}

#[test]
fn a_bad_path_costs_frames_and_breaks_none() {
    let Some(sightline) = sightline() else { return };
    let file = moving();
    let setup = Setup::temporary().root(file.parent().expect("a folder"));
    let server = setup.var("SERVICE_GATE_KEEPALIVE_FRAMES", "1").start();
    let ingested = server.ingested(&json!({"source_uri": file.display().to_string()}));
    let reference = stills(&server, &ingested).into_iter().map(|(_, hash)| hash);
    let reference: Vec<Value> = reference.collect();
    let distinct: BTreeSet<String> = reference.iter().map(Value::to_string).collect();
    assert_eq!((reference.len(), distinct.len()), (FRAMES, FRAMES), "a stale picture would pass");
    let rows: [(&str, &[&str]); 4] = [
        ("a clean path", &[]),
        ("reordering", &["--jitter", "200"]),
        ("loss", &["--loss", "5"]),
        ("loss and reordering", &["--loss", "5", "--jitter", "200"]),
    ];
    let started = rows.map(|(name, options)| {
        (name, Publication::start(&sightline, &server, &file, &json!({}), options))
    });
    let (mut lost, mut asked, mut undecided, mut unkept) = (0, 0, 0, 0);
    for (name, publication) in started {
        let (run, figures) = publication.finish();
        let jumps = count(&figures, "jumps");
        let stills = stills(&server, &run);
        check_whole(name, &reference, &stills, jumps);
        let whole = stills.len();
        let decided = count(&server.payloads(&run, "run_completed")[0], "frames") as usize;
        println!("{name}: {whole} stills, {decided} frames of {FRAMES}; {figures}");
        if name.starts_with("loss") {
            // What is lost is mostly repaired; else it costs the rest of a second.
            assert!(decided >= FRAMES / 2, "{name}: {decided} of {FRAMES}");
        } else {
            undecided += FRAMES - decided;
            assert!(whole > 0, "{name}: no stills");
            unkept += decided.saturating_sub(whole);
            let (late, sent) = (count(&figures, "asked"), count(&figures, "packets"));
            assert!(5 * late < sent, "{name}: {late} of {sent} were only late and asked for");
        }
        lost += count(&figures, "lost");
        asked += count(&figures, "asked");
        assert_eq!(count(&figures, "lost") > 0, name.starts_with("loss"), "{name}: {figures}");
        let repaired = count(&figures, "repeated");
        assert!(repaired > 0 || !name.starts_with("loss"), "{name}: {figures}");
    }
    assert!(asked > 0, "losses are asked for");
    let told = server.metric("service_live_packets_asked_total");
    assert!(told >= asked as f64, "{told} were asked for, {asked} heard of it");
    let never_came = server.metric("service_live_packets_lost_total");
    assert!(never_came < lost as f64 / 2.0, "most of {lost} were repaired, not {never_came}");
    // Without losses every frame comes, however the path reorders them, but for what a busy machine
    // leaves out, and says so.
    let shed = server.metric("service_live_shed_total{what=\"pictures\"}");
    assert!(undecided as f64 <= shed, "{undecided} frames are missing, {shed} were left out");
    // A busy machine keeps fewer stills than it sees frames, and says so of all but those that wait
    // when their session ends.
    let shed = server.metric("service_live_shed_total{what=\"stills\"}") + 2.0 * WAITING;
    assert!(unkept as f64 <= shed, "{unkept} stills are missing, {shed} were left out");
    assert_eq!(server.metric("service_live_pictures_damaged_total"), 0.0);
    let first = |part| server.metric(&format!("service_live_first_decision_seconds_{part}"));
    assert_eq!(first("count"), rows.len() as f64, "each session has a first decision");
    println!("first decision after {:.3} s on average", first("sum") / first("count"));
}
