//! Live video over a bad path: what is lost is asked for again and counted, and what reaches the
//! gate is whole. Every frame is kept as a still and compared with the clip that was sent.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::support::{
    Server, Setup,
    python::run,
    whip::{Publication, clip, picture::Picture, sightline},
};

const SECONDS: usize = 5;
const FRAMES: usize = SECONDS * clip::RATE as usize;
const SIZE: (usize, usize) = (320, 240);
/// Cells of a picture in which it is compared, along each side.
const CELLS: (usize, usize) = (40, 30);
/// Most that a cell's mean differs by after a JPEG; a picture that is five frames old differs by more.
const DIFFERS_MAX: u8 = 24;

/// Stills that may wait for a session's task.
const WAITING: f64 = 32.0;

/// Mean of the green samples of each cell.
type Cells = Vec<u8>;

/// A moving test picture in H.264, with pictures that refer to later ones.
fn moving() -> PathBuf {
    let ((width, height), rate) = (SIZE, clip::RATE);
    let line = format!(
        "-f lavfi -i testsrc2=s={width}x{height}:r={rate}:d={SECONDS} -pix_fmt yuv420p \
         -c:v libx264 -preset veryfast -bf 2 -b:v 1M -g {rate}"
    );
    clips::rendered("moving.mp4", &line)
}

/// The pictures of a file as the reference decoder sees them.
fn reference(file: &Path) -> Vec<Cells> {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-nostdin", "-i"]).arg(file);
    ffmpeg.args(["-pix_fmt", "rgb24", "-f", "rawvideo", "-"]);
    let decoded = run(&mut ffmpeg).unwrap_or_else(|error| panic!("{error}"));
    let pictures = decoded.stdout.chunks_exact(SIZE.0 * SIZE.1 * 3);
    pictures.map(|rgb| cells(|x, y| rgb[(y * SIZE.0 + x) * 3 + 1])).collect()
}

fn cells(green: impl Fn(usize, usize) -> u8) -> Cells {
    let (width, height) = (SIZE.0 / CELLS.0, SIZE.1 / CELLS.1);
    let all = (0..CELLS.1).flat_map(|row| (0..CELLS.0).map(move |column| (row, column)));
    let mean = |(row, column): (usize, usize)| {
        let pixels = (0..width * height)
            .map(|pixel| green(column * width + pixel % width, row * height + pixel / width));
        (pixels.map(usize::from).sum::<usize>() / (width * height)) as u8
    };
    all.map(mean).collect()
}

/// By how much the cell differs that differs most.
fn difference(one: &Cells, other: &Cells) -> u8 {
    let differences = one.iter().zip(other).map(|(one, other)| one.abs_diff(*other));
    differences.max().unwrap_or_default()
}

/// The stills of a run with their times.
fn stills(server: &Server, run: &str) -> Vec<(i64, Cells)> {
    let stills = server.payloads(run, "keyframe_stored").into_iter().map(|still| {
        let reply = server.get(still["image_ref"].as_str().expect("a path"));
        let picture = Picture::of(&reply.bytes);
        assert_eq!((picture.width, picture.height), SIZE);
        let green = |x: usize, y: usize| {
            let at = |pixel: usize, pixels: usize| (pixel as f64 + 0.5) / pixels as f64;
            picture.at(at(x, SIZE.0), at(y, SIZE.1))[1]
        };
        (still["pts_ms"].as_i64().expect("a time"), cells(green))
    });
    stills.collect()
}

/// Checks that each still is the picture of the clip that its time says, but for `jumps` of the
/// publisher to a later picture; returns how many there are.
fn check_whole(name: &str, reference: &[Cells], stills: &[(i64, Cells)], jumps: u64) -> usize {
    let frame_ms = 1000 / i64::from(clip::RATE);
    let mut ahead: Vec<i64> = stills
        .iter()
        .map(|(pts_ms, cells)| {
            let likeness = reference.iter().map(|sent| difference(sent, cells));
            let (nearest, differs) =
                likeness.enumerate().min_by_key(|(_, differs)| *differs).expect("pictures");
            assert!(differs <= DIFFERS_MAX, "{name}: broken at {pts_ms} ms: {differs} ({nearest})");
            nearest as i64 * frame_ms - pts_ms
        })
        .collect();
    // Times are of 90 kHz, rounded to milliseconds.
    let is_older = |pair: &[i64]| pair[1] < pair[0] - 1;
    assert!(!ahead.windows(2).any(is_older), "{name}: older than its time: {ahead:?}");
    ahead.dedup_by(|next, before| next.abs_diff(*before) <= 1);
    assert!(ahead.len() as u64 <= 1 + jumps, "{name}: {jumps} jumps, {ahead:?}");
    stills.len()
}

fn count(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().unwrap_or_else(|| panic!("no {name}: {figures}"))
}

#[test]
fn a_bad_path_costs_frames_and_breaks_none() {
    let Some(sightline) = sightline() else { return };
    let file = moving();
    let reference = reference(&file);
    assert_eq!(reference.len(), FRAMES);
    for (old, new) in reference.iter().zip(&reference[5..]) {
        assert!(difference(old, new) > DIFFERS_MAX, "a stale picture would pass");
    }
    let server = Setup::temporary().var("SERVICE_GATE_KEEPALIVE_FRAMES", "1").start();
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
        let whole = check_whole(name, &reference, &stills(&server, &run), jumps);
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
