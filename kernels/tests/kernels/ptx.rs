//! The checked-in PTX matches the source: always by its hash, and by its bytes if NVRTC is available.

use std::{path::Path, process::Command};

use sha2::{Digest, Sha256};

use crate::python::{installed, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SOURCE: &[u8] = include_bytes!("../../cuda/cell_sums.cu");

/// Returns the output of `ptx.py` with NVRTC from PyPI; skips the test without it.
fn compiled(test: &str, arguments: &[&str]) -> Option<String> {
    let root = Path::new(ROOT);
    let bin = installed(test, &root.join("requirements.txt"))?;
    let mut script = Command::new(bin.join("python"));
    let output = run(script.arg(root.join("ptx.py")).args(arguments)).expect("compiles");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn the_ptx_names_the_hash_of_its_source() {
    let hash: String = Sha256::digest(SOURCE).iter().map(|byte| format!("{byte:02x}")).collect();
    let first = kernels::PTX.lines().next();
    let expected = format!("// cell_sums.cu sha256 {hash}");
    assert_eq!(first, Some(&*expected), "run kernels/ptx.py");
}

#[test]
fn compiling_again_gives_the_same_bytes() {
    let Some(ptx) = compiled("the PTX of the source", &[]) else { return };
    assert!(ptx == kernels::PTX, "run kernels/ptx.py");
    // Under NVRTC 12.0 the intrinsic of that name would be a call of a missing function.
    assert!(ptx.contains("dp4a.u32.u32"));
    assert!(!ptx.contains(".extern"));
}

#[test]
fn the_source_assembles_for_devices() {
    let Some(printed) = compiled("the machine code of the source", &["sass"]) else { return };
    let devices: Vec<&str> = printed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(devices, ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"]);
}
