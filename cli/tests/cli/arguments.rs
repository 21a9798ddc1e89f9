//! Exit codes, help and what needs neither media nor a server.

use std::net::TcpListener;

use serde_json::Value;

use crate::support::{command, finish, sightline};

#[test]
fn wrong_arguments_end_with_two_and_say_what_is_wrong() {
    let run = "run-000102030405060708090a0b0c0d0eff";
    let cases: [(&[&str], &str); 8] = [
        (&[], "Usage"),
        (&["nonsense"], "nonsense"),
        (&["analyze"], "FILE"),
        (&["analyze", "x.mp4", "--fps", "0.1"], "0.2 to 120"),
        (&["analyze", "x.mp4", "--max-frames", "0"], "--max-frames"),
        (&["runs", "show", "../../etc/passwd"], "run id"),
        (&["markers", run, "--server", "https://example.org"], "http://"),
        (&["markers", run, "--key", "a\nb"], "API key"),
    ];
    for (args, words) in cases {
        let outcome = sightline(args);
        assert_eq!(outcome.code, 2, "{args:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{args:?}: {}", outcome.stderr);
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
fn a_server_that_is_not_there_is_four() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("bound").port()
    };
    let server = format!("http://127.0.0.1:{port}");
    let outcome = sightline(&["runs", "list", "--server", &server]);
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&server), "{}", outcome.stderr);
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
fn doctor_tries_every_codec_in_a_worker() {
    let outcome = sightline(&["doctor", "--json"]);
    let findings: Value = serde_json::from_str(&outcome.stdout).expect("doctor prints JSON");
    let checks = findings["checks"].as_array().expect("a list");
    for codec in ["h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg"] {
        let check = checks.iter().find(|c| c["area"] == "decode" && c["name"] == codec);
        let check = check.unwrap_or_else(|| panic!("no check of {codec}"));
        assert_eq!(check["state"], "ok", "{check}");
    }
    let states = checks.iter().filter(|check| check["state"] == "fail").count();
    assert_eq!(findings["healthy"], states == 0);
    assert_eq!(outcome.code, i32::from(states > 0), "{}", outcome.stderr);
}

#[test]
fn doctor_names_what_is_missing() {
    let below_a_file = concat!(env!("CARGO_BIN_EXE_sightline"), "/data");
    let mut command = command(&["doctor", "--data-dir", below_a_file]);
    command.env("SERVICE_FFMPEG_PATH", "/nowhere/ffmpeg");
    let outcome = finish(command);
    let line = |name: &str| {
        let found = outcome.stdout.lines().find(|line| line.contains(name));
        found.unwrap_or_else(|| panic!("no line about {name}: {}", outcome.stdout)).to_owned()
    };
    assert!(line("ffmpeg").contains("warn"), "{}", line("ffmpeg"));
    assert!(line("ffmpeg").contains("SERVICE_FFMPEG_PATH"));
    assert!(line("directory").contains("FAIL"), "{}", line("directory"));
    assert_eq!(outcome.code, 1);
}
