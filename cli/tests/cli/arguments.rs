//! Exit codes, help, and commands that need neither media nor a server.

use std::net::TcpListener;

use serde_json::Value;

use crate::support::{command, doctor, finish, sightline};

#[test]
fn wrong_arguments_end_with_two_and_say_what_is_wrong() {
    let run = "run-000102030405060708090a0b0c0d0eff";
    let cases: [(&[&str], &str); 13] = [
        (&[], "Usage"),
        (&["nonsense"], "nonsense"),
        (&["analyze"], "FILE"),
        (&["analyze", "x.mp4", "--fps", "0.1"], "0.2 to 120"),
        (&["analyze", "x.mp4", "--fps", "nan"], "0.2 to 120"),
        (&["run", "x.mp4", "--fps", "nan"], "0.2 to 120"),
        (&["run", "x.mp4", "--fps", "inf"], "0.2 to 120"),
        (&["runs", "ingest", run, "x.mp4", "--fps", "nan"], "0.2 to 120"),
        (&["runs", "reason", run, "x.mp4", "--prompt", "?", "--fps", "inf"], "0.2 to 120"),
        (&["analyze", "x.mp4", "--max-frames", "0"], "--max-frames"),
        (&["runs", "show", "../../etc/passwd"], "run id"),
        (&["markers", run, "--server", "ftp://example.org"], "https://"),
        (&["markers", run, "--key", "a\nb"], "API key"),
    ];
    for (args, words) in cases {
        let outcome = sightline(args);
        outcome.says(2, words);
        assert_eq!(outcome.stdout, "", "{args:?}");
    }
}

#[test]
fn help_documents_every_exit_code() {
    let help = sightline(&["--help"]).stdout;
    for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "130 "] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(code)), "exit code {code}");
    }
}

#[test]
fn a_heading_of_the_help_has_only_its_own_options_below_it() {
    let rows: [(&[&str], &str); 2] =
        [(&["analyze", "-h"], "--threads"), (&["runs", "reason", "-h"], "--model")];
    for (command, option) in rows {
        let help = sightline(command).stdout;
        let at = |words: &str| help.find(words).unwrap_or_else(|| panic!("no {words}: {help}"));
        assert!(at(option) < at("\nThresholds:"), "{help}");
    }
}

#[test]
fn a_server_that_is_not_there_is_four() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("bound").port()
    };
    let server = format!("http://127.0.0.1:{port}");
    let with_secret = format!("http://me:verysecret@127.0.0.1:{port}");
    for address in [&server, &with_secret] {
        let outcome = sightline(&["runs", "list", "--server", address]);
        outcome.says(4, &server);
        assert!(!outcome.stderr.contains("verysecret"), "{}", outcome.stderr);
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let run = "run-000102030405060708090a0b0c0d0eff";
    let dir = tempfile::tempdir().expect("a directory");
    let cases: [(&[&str], i32, &str); 2] = [
        (&["verify", run], 3, "no log of a server"),
        (&["runs", "list", "--server", "http://127.0.0.1:1"], 4, "no answer"),
    ];
    for (args, code, words) in cases {
        let mut command = command(args);
        for name in [
            "SERVICE_DATA_DIR",
            "SERVICE_DECODE_BACKEND",
            "SERVICE_GATE_BACKEND",
            "SERVICE_GATE_KEEPALIVE_FRAMES",
            "SERVICE_GATE_SCENE_CUT",
            "SIGHTLINE_CA",
            "SIGHTLINE_SERVER",
        ] {
            command.env(name, "");
        }
        command.current_dir(dir.path());
        finish(command).says(code, words);
    }
}

#[test]
fn the_key_of_the_environment_is_not_in_the_help() {
    let mut command = command(&["runs", "list", "--help"]);
    command.env("SIGHTLINE_API_KEY", "verysecret");
    let outcome = finish(command);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("SIGHTLINE_API_KEY"));
    assert!(!outcome.stdout.contains("verysecret"));
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = sightline(&["completions", shell]);
        assert_eq!(outcome.code, 0, "{shell}");
        assert!(outcome.stdout.contains("analyze"), "{shell}");
        assert!(!outcome.stdout.contains("media-worker"), "{shell} offers the hidden argument");
    }
}

#[test]
fn doctor_tries_every_codec_and_what_is_forbidden_in_a_worker() {
    let outcome = sightline(&["doctor", "--json"]);
    for codec in ["h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg"] {
        let check = outcome.check("decode", codec);
        assert_eq!(check["state"], "ok", "{check}");
    }
    let refusals = outcome.check("worker", "refusals");
    let (refused, of) =
        refusals["detail"].as_str().expect("text").split_once(" of ").expect("N of N");
    assert!(refused.parse::<u32>().expect("a number") >= 12, "{refusals}");
    assert_eq!(of, format!("{refused} forbidden actions refused"));
    let findings = outcome.json();
    let checks = findings["checks"].as_array().expect("a list");
    let states = checks.iter().filter(|check| check["state"] == "fail").count();
    assert_eq!(findings["healthy"], states == 0);
    assert_eq!(outcome.code, i32::from(states > 0), "{}", outcome.stderr);
}

#[test]
fn doctor_says_what_a_device_lacks() {
    // No machine has these, so the checks fail even with a device.
    let rows = [("nvdec", "4000", "libcuda.so.1"), ("vaapi", "/dev/dri/none", "/dev/dri/none")];
    for (backend, device, missing) in rows {
        for (asked, state) in [("auto", "absent"), (backend, "fail")] {
            let args = ["--json", "--backend", asked, "--device", device];
            let outcome = finish(doctor(&args));
            let check = outcome.check("decode", backend);
            assert_eq!(check["state"], state, "{check}");
            let detail = check["detail"].as_str().expect("text");
            assert!(detail.contains(missing) || detail.contains(device), "{detail}");
            assert!(state == "absent" || outcome.code == 1, "{}", outcome.stderr);
        }
    }
}

#[test]
fn doctor_tells_a_driver_from_a_file_of_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("libcuda.so.1"), "no library").expect("written");
    let mut command = doctor(&["--backend", "nvdec"]);
    command.env("LD_LIBRARY_PATH", dir.path());
    let outcome = finish(command);
    let line = outcome.stdout.lines().find(|line| line.contains("nvdec")).expect("a line");
    assert!(line.contains("FAIL") && line.contains("libcuda.so.1 cannot be loaded"), "{line}");
    assert!(line.contains("file too short") || line.contains("ELF"), "{line}");
}

#[test]
fn a_fleet_without_cameras_or_files_has_only_the_lines_of_the_other() {
    for (none, about) in [("--cameras", "files"), ("--hours", "cameras")] {
        let plan = sightline(&["capacity", none, "0", "--json"]).json();
        let lines = plan["lines"].as_array().expect("a list");
        let is_sound = |line: &Value| line["about"] == about && line["value"].is_number();
        assert!(!lines.is_empty() && lines.iter().all(is_sound), "{none}: {plan}");
    }
}

#[test]
fn capacity_is_measured_on_a_file_and_adds_up() {
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../decode/src/probe/clips/gops.mp4");
    let outcome = sightline(&["bench", "capacity", clip, "--json", "--backend", "software"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let found = outcome.json();
    let row = &found["rows"][0];
    assert_eq!((&row["codec"], &row["width"]), (&"h264".into(), &256.into()));
    assert_eq!(row["decoder"], "software:h264");
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(number(&row["frames"]) >= 96.0 * number(&found["cores"]), "{row}");
    let a_second = number(&row["frames_per_second"]);
    let on_the_wall = number(&row["wall_frames_per_second"]);
    assert!(on_the_wall > 0.0 && on_the_wall <= 1.01 * a_second, "starting takes time: {row}");
    assert_eq!(number(&row["streams"]), (a_second / number(&found["fps"])).floor(), "{row}");
    assert!(number(&row["gate_ms_per_frame"]) <= number(&row["ms_per_frame"]), "{row}");
}

#[test]
fn doctor_names_what_is_missing() {
    let below_a_file = concat!(env!("CARGO_BIN_EXE_sightline"), "/data");
    let outcome = finish(doctor(&["--data-dir", below_a_file]));
    let line = |name: &str| {
        let is_about = |line: &&str| line.split_whitespace().nth(1) == Some(name);
        let found = outcome.stdout.lines().find(is_about);
        found.unwrap_or_else(|| panic!("no line about {name}: {}", outcome.stdout)).to_owned()
    };
    assert!(line("ffmpeg").contains("warn"), "{}", line("ffmpeg"));
    assert!(line("ffmpeg").contains("SERVICE_FFMPEG_PATH"));
    assert!(line("directory").contains("FAIL"), "{}", line("directory"));
    assert_eq!(outcome.code, 1);
}
