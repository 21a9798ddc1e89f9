//! The unchanged CUDA source and the whole gate backend on a CPU, with a shim as the driver.
//!
//! The library search path is read when a process starts, so each test runs one of `device` or `failing` in a
//! separate process. Needs `g++`; reports its absence.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::{cuda_shim, skip::skip};

/// Runs the ignored test `name` with the shim as its driver; returns its status and output.
fn with_shim(name: &str, settings: &[(&str, &str)], lacking: Option<&str>) -> Option<Output> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = cuda_shim::shim(root, Path::new(env!("CARGO_TARGET_TMPDIR")), lacking);
    let folder = folder.map_err(|why| skip(name, why)).ok()?;
    Some(with_folder(name, settings, &folder))
}

/// Runs the ignored test `name`, with the loader searching `folder` first.
fn with_folder(name: &str, settings: &[(&str, &str)], folder: &Path) -> Output {
    let program = std::env::current_exe().expect("this test");
    let mut test = Command::new(program);
    test.args(["--exact", name, "--ignored", "--nocapture"]);
    test.env("LD_LIBRARY_PATH", folder).envs(settings.iter().copied());
    test.output().expect("this test starts")
}

fn passes(name: &str, settings: &[(&str, &str)]) {
    let Some(output) = with_shim(name, settings, None) else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    println!("{said}");
}

#[test]
fn the_source_measures_the_whole_table_as_the_reference_does() {
    passes("device::the_whole_table_is_measured_as_the_reference_does", &[]);
}

#[test]
fn the_source_measures_any_batch_as_the_reference_does() {
    passes("device::any_batch_is_measured_as_the_reference_does", &[]);
}

#[test]
fn the_source_measures_real_clips_alike() {
    passes("device::frames_of_real_clips_are_measured_alike", &[]);
}

#[test]
fn the_source_measures_pictures_in_device_memory() {
    passes("device::pictures_in_device_memory_are_measured_where_they_are", &[]);
}

#[test]
fn a_picture_that_is_too_large_is_refused_before_the_device() {
    passes("device::a_picture_that_is_too_large_leaves_the_measurer_sound", &[]);
}

#[test]
fn a_lost_device_is_replaced_by_the_cpu() {
    let name =
        "failing::a_device_that_is_lost_is_an_error_and_the_cpu_goes_on_with_the_same_integers";
    // The conformance check at opening, and two batches.
    passes(name, &[("SHIM_LAUNCHES", "3")]);
}

#[test]
fn a_device_that_does_not_answer_is_lost() {
    let name = "failing::a_device_that_does_not_answer_is_an_error_within_seconds";
    passes(name, &[("SHIM_ANSWERED", "2")]);
}

#[test]
fn a_device_without_room_is_not_lost() {
    let name = "failing::a_device_without_room_is_an_error_and_smaller_pictures_are_measured";
    passes(name, &[("SHIM_MEMORY", "24000000")]);
}

#[test]
fn what_is_missing_is_named() {
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[], "opened shim"),
        (&[("SHIM_VERSION", "11080")], "Unsupported: the NVIDIA driver speaks CUDA 11.8, and 12.0"),
        (&[("SHIM_DEVICES", "0")], "Unavailable: the NVIDIA driver finds no device"),
        (&[("SHIM_CAPABILITY", "70")], "has compute capability 7.0, and 7.5 is needed"),
        (&[("SHIM_LAUNCHES", "0")], "lost its device"),
        (&[("SHIM_MEMORY", "1000")], "taking memory"),
    ];
    for (settings, expected) in cases {
        let Some(output) = with_shim("device::opening", settings, None) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(expected), "{settings:?}: {said}");
    }
}

#[test]
fn a_function_that_the_driver_lacks_is_an_error() {
    let lacking = Some("cuStreamCreate");
    let Some(output) = with_shim("device::opening", &[], lacking) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "Unavailable: the NVIDIA driver failed at loading";
    let named = said.contains(expected) && said.contains("cuStreamCreate");
    assert!(output.status.success() && named, "{said}");
}

#[test]
fn a_file_that_is_no_library_is_told_from_one_that_is_not_there() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-library");
    fs::create_dir_all(&folder).expect("our own directory");
    let text = "no library\n";
    for (case, text, expected) in [
        ("empty", String::new(), "file too short"),
        ("a line", text.to_owned(), "file too short"),
        ("longer than a library's head", text.repeat(100), "invalid ELF header"),
    ] {
        // A machine with a driver has a file of the first name too.
        for name in ["libcuda.so", "libcuda.so.1"] {
            fs::write(folder.join(name), &text).expect("our own directory");
        }
        let output = with_folder("device::opening", &[], &folder);
        let said = String::from_utf8_lossy(&output.stdout);
        let file = folder.join("libcuda.so.1");
        let expected = format!("Unavailable: no NVIDIA driver: {}: {expected}", file.display());
        assert!(output.status.success() && said.contains(&expected), "{case}: {said}");
    }
}

#[test]
fn a_machine_without_a_driver_is_told_so() {
    let output = with_folder("device::opening", &[], Path::new("/nonexistent"));
    let said = String::from_utf8_lossy(&output.stdout);
    let missing = "Unavailable: no NVIDIA driver: libcuda.so.1: cannot open shared object file";
    let expected = [missing, "Unavailable: the NVIDIA driver", "opened "];
    let known = expected.iter().any(|expected| said.contains(expected));
    assert!(output.status.success() && known, "{said}");
}
