//! A shim before the disk of a process: `disk_shim.c`, compiled for a test that asks for it.
//!
//! It is loaded when a process starts, so what has it is a process of its own. Needs `cc`; whoever asks says loudly
//! when that is missing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The library below `tmp` to name in `LD_PRELOAD`; an error says why it cannot be compiled.
pub fn shim(root: &Path, tmp: &Path) -> Result<PathBuf, String> {
    compiled(&root.join("tests/support/disk_shim.c"), tmp)
}

/// The library of any such `source`.
pub fn compiled(source: &Path, tmp: &Path) -> Result<PathBuf, String> {
    let dir = tmp.join(format!("shim-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("our own directory");
    let name = source.file_stem().expect("a file");
    let made = dir.join(name).with_extension("so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    let output = compiler.arg(&made).arg(source).arg("-ldl").output();
    let output = output.map_err(|error| format!("no cc: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(made).ok_or(format!("cc fails: {told}"))
}
