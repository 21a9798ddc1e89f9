//! `sightline analyze` on real and on hostile files.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use clips::pick_one;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{command, rendered, sightline, text};

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().expect("a UTF-8 path").to_owned()
}

fn json(args: &[&str]) -> Value {
    let outcome = sightline(args);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    outcome.json()
}

#[test]
fn a_real_clip_gives_table_json_report_and_stills() {
    let clip = text(pick_one("motion.mp4", "nature_flower.mp4"));
    let dir = TempDir::new().expect("a folder");
    let (report, stills) = (path(&dir, "report.html"), path(&dir, "stills"));
    let document = json(&[
        "analyze",
        &clip,
        "--json",
        "--report",
        &report,
        "--stills",
        &stills,
        "--keepalive-frames",
        "30",
    ]);

    assert_eq!(document["source"]["codec"], "h264");
    assert_eq!(document["source"]["width"], 960);
    assert_eq!(document["decoder"], "software:h264");
    assert_eq!(document["frames"]["analysed"], 150);
    assert_eq!(document["frames"]["truncated"], false);
    let signals = document["signals"].as_array().expect("a list");
    assert_eq!(signals.len(), 150);
    assert_eq!(signals[0]["reason"], "initial_frame");
    assert_eq!(signals[30]["reason"], "periodic_keepalive");

    let selected = signals.iter().filter(|signal| signal["selected"] == true);
    let selected: Vec<&Value> = selected.map(|signal| &signal["frame_index"]).collect();
    let listed = document["stills"].as_array().expect("a list");
    assert_eq!(listed.iter().map(|still| &still["frame_index"]).collect::<Vec<_>>(), selected);
    for still in listed {
        let jpeg = std::fs::read(still["path"].as_str().expect("a path")).expect("a still");
        assert_eq!(still["bytes"], jpeg.len());
        assert_eq!(&jpeg[..3], [0xff, 0xd8, 0xff], "{still}");
    }
    let page = std::fs::read_to_string(&report).expect("a report");
    assert_eq!(page.matches("<figure").count(), listed.len());

    let markers = document["markers"].as_array().expect("a list");
    let says_nothing = |marker: &&Value| marker["event_type"] == "context_observation";
    let nothing = markers.iter().filter(says_nothing).count();
    assert!(0 < nothing && nothing < markers.len(), "{markers:?}");
    for (all, rows) in [(false, markers.len() - nothing), (true, markers.len())] {
        let mut args = vec!["analyze", &clip, "--keepalive-frames", "30"];
        args.extend(all.then_some("--all"));
        let outcome = sightline(&args);
        let markers = outcome.stdout.lines().skip_while(|line| !line.starts_with("TYPE"));
        assert_eq!(markers.count(), 1 + rows, "{}", outcome.stdout);
        assert_eq!(outcome.stderr.contains("left out (--all)"), !all, "{}", outcome.stderr);
    }
}

/// The clip has a box that crosses the left half of the picture, and later the right half.
#[test]
fn episodes_come_first_with_their_places_zones_and_frames() {
    let clip = text(clips::passing());
    let zones = ["--zone", "left side=0,0;0.5,0;0.5,1;0,1", "--zone", "right=0.5,0;1,0;1,1;0.5,1"];
    let found = json(&[&["analyze", &clip, "--json", "--no-signals"], &zones[..]].concat());
    assert!(found.get("signals").is_none());
    let episodes = found["episodes"].as_array().expect("a list");
    let kept = found["kept"].as_array().expect("a list");
    assert_eq!(kept[0]["reason"], "initial_frame");
    let expected = [(2000, 4000, "left side"), (7000, 9000, "right")];
    assert_eq!(episodes.len(), expected.len(), "{episodes:?}");
    for (episode, (start, end, zone)) in episodes.iter().zip(expected) {
        let at = |name: &str| episode[name].as_i64().expect("a number");
        assert!((start - 100..start + 300).contains(&at("start_pts_ms")), "{episode}");
        assert!((end - 300..end + 900).contains(&at("end_pts_ms")), "{episode}");
        assert_eq!(episode["zones"], serde_json::json!([zone]), "{episode}");
        let is_start = |it: &&Value| {
            it["frame_index"] == episode["start_frame"] && it["reason"] == "activity_started"
        };
        assert_eq!(kept.iter().filter(is_start).count(), 1, "{episode} {kept:?}");
        assert!(kept.iter().any(|it| it["frame_index"] == episode["peak_frame"]), "{episode}");
    }

    let table = sightline(&[&["analyze", &clip], &zones[..]].concat()).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ACTIVITY"), "{table}");
    assert!(lines[1].contains("left, in left side"), "{table}");
    assert!(lines[2].contains("right, in right"), "{table}");
    assert!(lines[3].is_empty() && lines[4].starts_with("TYPE"), "{table}");

    let only = [&["analyze", &clip, "--json", "--zones-only"], &zones[2..]].concat();
    assert_eq!(json(&only)["episodes"].as_array().map(Vec::len), Some(1));
    for refused in [
        &["--zones-only"][..],
        &["--zone", "a=0,0;1,1"],
        &["--zone", "a=0,0;1,0;1,1", "--zone", "a=0,0;1,0;1,1"],
    ] {
        let outcome = sightline(&[&["analyze", &clip], refused].concat());
        assert_eq!(outcome.code, 2, "{refused:?}: {}", outcome.stderr);
    }
}

#[test]
fn the_same_file_gives_the_same_bytes_whatever_the_threads() {
    let clip = rendered();
    let run = |threads| sightline(&["analyze", &clip, "--json", "--threads", threads]).stdout;
    let one = run("1");
    assert!(one.len() > 1000);
    for threads in ["3", "64"] {
        assert_eq!(one, run(threads), "{threads} threads");
    }
}

#[test]
fn sampling_and_the_frame_limit_hold() {
    let clip = text(pick_one("motion.mp4", "nature_flower.mp4"));
    let sampled = json(&["analyze", &clip, "--json", "--fps", "2"]);
    let times: Vec<i64> = sampled["signals"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|signal| signal["pts_ms"].as_i64().expect("an integer"))
        .collect();
    assert_eq!(times.len(), 10);
    for (k, pts_ms) in times.iter().enumerate() {
        let wanted = 500 * k as i64;
        assert!((wanted..wanted + 40).contains(pts_ms), "sample {k} at {pts_ms}");
    }
    assert_eq!(sampled["sampling"]["policy"], "fixed");
    let limited = json(&["analyze", &clip, "--json", "--max-frames", "7"]);
    assert_eq!(
        (&limited["frames"]["analysed"], &limited["frames"]["more"]),
        (&Value::from(7), &Value::from(true))
    );
}

#[test]
fn what_is_no_video_is_refused_with_the_reason() {
    let dir = TempDir::new().expect("a folder");
    std::fs::write(path(&dir, "empty.mp4"), b"").expect("written");
    std::fs::write(path(&dir, "text.mp4"), "no media at all\n".repeat(100)).expect("written");
    let playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n/etc/passwd\n#EXT-X-ENDLIST\n";
    std::fs::write(path(&dir, "playlist.mp4"), playlist).expect("written");
    let made = Command::new("mkfifo").arg(path(&dir, "fifo.mp4")).status().expect("coreutils");
    assert!(made.success());
    let cases = [
        ("missing.mp4", 3, "No such file"),
        ("", 5, "not a regular file"),
        ("fifo.mp4", 5, "not a regular file"),
        ("empty.mp4", 5, "empty"),
        ("text.mp4", 5, "; MP4, MOV, Matroska"),
        ("playlist.mp4", 5, "refused"),
    ];
    for (name, code, words) in cases {
        let outcome = sightline(&["analyze", &path(&dir, name)]);
        outcome.says(code, words);
        assert_eq!(outcome.stdout, "", "{name}");
    }
    let audio = text(pick_one("audio.mp4", "x_bbb-audio.mp4"));
    sightline(&["analyze", &audio]).says(5, "no video stream");
    // No command waits for a writer.
    let fifo = path(&dir, "fifo.mp4");
    let fifo = fifo.as_str();
    let nobody = "http://127.0.0.1:1/";
    let commands: [&[&str]; 4] = [
        &["upload", fifo, "--server", nobody],
        &[
            "runs",
            "ingest",
            "run-000102030405060708090a0b0c0d0eff",
            fifo,
            "--upload",
            "--server",
            nobody,
        ],
        &["whip", "publish", fifo, nobody],
        &["bench", "capacity", fifo],
    ];
    for command in commands {
        sightline(command).says(5, "fifo.mp4: the input is not a regular file");
    }
    sightline(&["bench", "capacity", &path(&dir, "missing.mp4")]).says(3, "missing.mp4");
    sightline(&["whip", "publish", &path(&dir, "text.mp4"), nobody])
        .says(5, "text.mp4: unsupported");
}

#[test]
fn a_report_that_cannot_be_written_costs_no_findings() {
    let clip = rendered();
    let full = sightline(&["analyze", &clip, "--report", "/dev/full"]);
    full.says(1, "cannot write /dev/full");
    assert_eq!(full.stdout, sightline(&["analyze", &clip]).stdout);
    let lost = sightline(&["analyze", &clip, "--report", "/nowhere/report.html"]);
    lost.says(1, "cannot write /nowhere/report.html");
    assert!(!lost.stderr.contains("analysed"), "the work is not begun: {}", lost.stderr);
}

#[test]
fn a_hostile_file_name_stays_text_in_the_report() {
    let clip = rendered();
    let dir = TempDir::new().expect("a folder");
    let name = "<img src=x onerror=alert(1)>\u{202e}'\"&.mp4";
    std::fs::copy(clip, dir.path().join(name)).expect("copied");
    let report = path(&dir, "report.html");
    let outcome =
        sightline(&["analyze", &path(&dir, name), "--max-frames", "5", "--report", &report]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let page = std::fs::read_to_string(&report).expect("a report");
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;\u{fffd}&#39;&quot;&amp;.mp4"));
    assert!(!page.contains("<img src=x") && !page.contains('\u{202e}'));
}

#[test]
fn a_reader_that_goes_away_costs_nothing() {
    let clip = rendered();
    let dir = TempDir::new().expect("a folder");
    for closed in ["stdout", "both"] {
        let report = path(&dir, closed);
        let mut child = command(&["analyze", &clip, "--json", "--report", &report])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // Closed before the first byte, as by `| true`.
        drop(child.stdout.take());
        drop(child.stderr.take_if(|_| closed == "both"));
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{closed}: {stderr}");
        assert!(!stderr.contains("panic") && !stderr.contains("Broken pipe"), "{stderr}");
        assert!(Path::new(&report).is_file());
    }
}

#[test]
fn an_interrupt_ends_the_worker_too() {
    let clip = rendered();
    let mut child = command(&["analyze", &clip]).stderr(Stdio::piped()).spawn().expect("starts");
    let pid = child.id();
    let worker = wait_for(|| children(pid).first().copied());
    let killed = Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill");
    assert!(killed.success());
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    while stderr.read_line(&mut said).expect("readable") > 0 {}
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(!Path::new(&format!("/proc/{worker}")).exists(), "worker {worker} outlives its job");
}

fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "nothing within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_report_never_overwrites_its_video() {
    let clip = rendered();
    let dir = TempDir::new().expect("a folder");
    let (video, link) = (path(&dir, "video.mp4"), path(&dir, "report.html"));
    std::fs::copy(&clip, &video).expect("a copy");
    std::os::unix::fs::symlink(&video, &link).expect("a link");
    for report in [&video, &link] {
        sightline(&["analyze", &video, "--report", report]).says(2, "would overwrite the video");
        assert_eq!(std::fs::read(&video).ok(), std::fs::read(&clip).ok(), "{report}");
    }
}

#[test]
fn a_named_backend_decodes_or_says_why_it_cannot() {
    let clip = rendered();
    let analyze = |more: &[&str]| {
        sightline(&[&["analyze", &clip, "--json", "--max-frames", "20"], more].concat())
    };
    let (default, named) =
        (analyze(&[]), analyze(&["--backend", "software", "--gate-backend", "cpu"]));
    assert_eq!((named.code, named.stdout), (0, default.stdout), "{}", named.stderr);
    analyze(&["--backend", "vaapi", "--device", "/dev/dri/none"])
        .says(1, "render node cannot be opened");
}
