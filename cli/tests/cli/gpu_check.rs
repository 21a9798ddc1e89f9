//! `deploy/gpu-check` with stubs as its programs: the rows that it writes, and its exit code.
//!
//! The output of the real programs needs a device.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::script;

/// Stubs of a host with a sound GPU: file name and shell script.
const SOUND: [(&str, &str); 7] = [
    ("path/nvidia-smi", "echo 'NVIDIA X, 580.1, 81559 MiB'"),
    (
        "sightline",
        r#"case "$1" in
        doctor)
            echo 'AREA    CHECK        STATE  DETAIL'
            echo 'worker  sandbox      ok     full (landlock ABI 7)'
            echo 'decode  nvdec h264   ok     nvdec:h264'
            echo 'decode  vaapi        no     no render node'
            echo 'decode  av1          FAIL   nothing decodes it: not built'
            echo 'gate    cuda         ok     cuda:NVIDIA X' ;;
        *) echo '{"rows":[{"frames_per_second": 9999, "wall_frames_per_second": 1.5}]}' ;;
        esac"#,
    ),
    ("cuda_conformance", "echo 'test result: ok. 5 passed; 0 failed'"),
    (
        "wgpu_conformance",
        r#"[ "$SIGHTLINE_VULKAN_ADAPTER" = "NVIDIA X" ] || exit 101
        echo 'test result: ok. 7 passed; 0 failed'"#,
    ),
    ("cuda_cost", "printf 'NVIDIA X\\nNV12 1080p 4000 ns/frame\\n'"),
    ("wgpu_cost", "printf 'NVIDIA X (DiscreteGpu)\\nNV12 1080p 9000 ns/frame\\n'"),
    (
        "ffmpeg",
        r#"while [ $# -gt 1 ]; do
            [ "$1" = -progress ] && echo frame=9000 >"$2"
            shift
        done
        [ "$1" = - ] || : >"$1""#,
    ),
];

/// Stubs of a host without a GPU.
const BARE: [(&str, &str); 3] = [
    ("path/nvidia-smi", "exit 9"),
    ("wgpu_cost", "echo 'no Vulkan adapter of a GPU; found: llvmpipe (Cpu)' >&2; exit 2"),
    ("sightline", "echo 'worker  sandbox  ok  full'; echo 'decode  nvdec  no  no libcuda.so.1'"),
];

/// Runs gpu-check with the stubs of a sound host, replaced by those in `others`.
fn check(others: &[(&str, &str)]) -> (Output, Value) {
    let dir = tempfile::tempdir().expect("a folder");
    for folder in ["path", "clips"] {
        fs::create_dir(dir.path().join(folder)).expect("made");
    }
    fs::write(dir.path().join("clips/h264-1080.mp4"), "a clip").expect("written");
    let checked = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/gpu-check");
    fs::copy(checked, dir.path().join("gpu-check")).expect("copied");
    for (name, text) in SOUND.iter().chain(others) {
        script(&dir.path().join(name), text);
    }
    let output = Command::new(dir.path().join("gpu-check"))
        .args(["--out", "out"])
        .current_dir(dir.path())
        .env("PATH", format!("{}:/usr/bin:/bin", dir.path().join("path").display()))
        .env("SESSIONS", "2")
        .env("SECONDS_EACH", "60")
        .env_remove("SIGHTLINE_MEDIA_DIR")
        .output()
        .expect("it runs");
    let said = fs::read(dir.path().join("out/gpu-check.json")).expect("it writes its rows");
    (output, serde_json::from_slice(&said).expect("JSON"))
}

/// Returns the states of a check's rows, without repetitions.
fn states(found: &Value, area: &str, check: &str) -> Vec<String> {
    let rows = found["rows"].as_array().expect("rows");
    let ours = rows.iter().filter(|row| row["area"] == area && row["check"] == check);
    let mut states: Vec<String> =
        ours.map(|row| row["state"].as_str().expect("a state").to_owned()).collect();
    states.dedup();
    states
}

#[test]
fn a_sound_host_passes_with_a_gpu_and_without() {
    let (output, found) = check(&[]);
    assert!(output.status.success(), "{found:#}");
    assert_eq!(found["healthy"], true);
    let rows = [
        ("decode", "nvdec h264", "ok"),
        ("decode", "vaapi", "missing"),
        ("decode", "av1", "missing"),
        ("cuda", "conformance", "ok"),
        ("cuda", "kernel times", "figure"),
        ("vulkan", "conformance", "ok"),
        ("vulkan", "conformance on real clips", "missing"),
        ("nvdec", "h264-1080 ffmpeg alone x2", "figure"),
        ("nvdec", "h264-1080 with the cuda gate x2", "figure"),
        ("nvdec", "h264-1080 cuda gate of alone x2", "figure"),
    ];
    for (area, check, state) in rows {
        assert_eq!(states(&found, area, check), [state], "{area} {check}: {found:#}");
    }
    let detail = |check: &str| {
        let rows = found["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["check"] == check).expect("a row");
        row["detail"].as_str().expect("text").to_owned()
    };
    assert_eq!(detail("h264-1080 with the cuda gate x2"), "1.5 frames/s", "the wall's clock");
    assert!(detail("h264-1080 cuda gate of alone x2").ends_with("below the goal of 0.95"));

    let (output, found) = check(&BARE);
    assert!(output.status.success(), "{found:#}");
    let rows = [("cuda", "conformance"), ("vulkan", "kernel times"), ("vulkan", "conformance")];
    for (area, check) in rows {
        assert_eq!(states(&found, area, check), ["missing"], "{area} {check}: {found:#}");
    }
}

#[test]
fn a_device_that_does_not_do_what_it_should_is_a_failure() {
    let other_pictures = "echo 'decode  nvdec h264  no  software:h264: nvdec:h264 gives other \
                          pictures: 0x1'";
    let other_integers = "echo 'gate  wgpu  no  adapter X failed the conformance test'";
    let rows = [
        ("sightline", other_pictures, "decode", "nvdec h264"),
        ("sightline", other_integers, "gate", "wgpu"),
        ("sightline", "echo 'decode  h264  FAIL  it crashed'", "decode", "h264"),
        ("sightline", "echo 'no library' >&2; exit 127", "doctor", "sightline"),
        ("cuda_conformance", "echo 'test result: FAILED'; exit 101", "cuda", "conformance"),
        ("cuda_conformance", "echo 'test result: ok. 0 passed'", "cuda", "conformance"),
        ("cuda_cost", "kill -SEGV $$", "cuda", "kernel times"),
        ("wgpu_cost", "echo 'does not measure' >&2; exit 1", "vulkan", "kernel times"),
        ("wgpu_conformance", "exit 101", "vulkan", "conformance"),
        // Timed on one adapter, tested on another.
        ("wgpu_cost", "echo 'Other (DiscreteGpu)'", "vulkan", "conformance"),
        ("ffmpeg", "[ \"$4\" = -y ] || exit 1", "nvdec", "h264-1080 ffmpeg alone x2"),
    ];
    for (name, script, area, check_name) in rows {
        let (output, found) = check(&[(name, script)]);
        let case = format!("{name}: {script}");
        assert_eq!(states(&found, area, check_name), ["FAIL"], "{case}: {found:#}");
        assert_eq!((output.status.code(), &found["healthy"]), (Some(1), &false.into()), "{case}");
    }
}
