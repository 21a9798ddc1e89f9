//! A driver of NVIDIA's that is not there: `kernels/shim`, compiled for a test that asks for it.
//!
//! The library's search path is read when a process starts, so what is to find the driver is a process of
//! its own. Needs `g++` and the driver's headers as FFmpeg has them; whoever asks says loudly when they
//! are missing.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

/// Of one file: a process that loads all of them has one driver.
pub const NAMES: [&str; 3] = ["libcuda.so", "libcuda.so.1", "libnvcuvid.so.1"];

/// The folder below `tmp` of a driver that is the shim, with the function `lacking` under another name;
/// an error says why it cannot be compiled.
pub fn shim(root: &Path, tmp: &Path, lacking: Option<&str>) -> Result<PathBuf, String> {
    let sources = root.join("kernels/shim");
    let mut hasher = DefaultHasher::new();
    lacking.hash(&mut hasher);
    let files = ["libcuda.cpp", "libnvcuvid.cpp", "driver.hpp", "cuda_on_cpu.hpp"];
    let kernel = root.join("kernels/cuda/cell_sums.cu");
    for source in files.map(|name| sources.join(name)).iter().chain([&kernel]) {
        fs::read(source).expect("in the repository").hash(&mut hasher);
    }
    let folder = tmp.join(format!("shim-{}", hasher.finish()));
    fs::create_dir_all(&folder).expect("our own directory");
    // Tests are processes that start together: one compiles, the others wait for it.
    let lock = fs::File::create(folder.join("lock")).expect("our own directory");
    lock.lock().map_err(|error| format!("{}: {error}", folder.display()))?;
    if NAMES.iter().all(|name| folder.join(name).exists()) {
        return Ok(folder);
    }
    let made = folder.join("unfinished.so");
    // The kernel's stacks are switched by long jumps, which hardened ones take for an attack.
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE"]);
    compiler.args(["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]);
    compiler.args(lacking.map(|name| format!("-D{name}=something_else")));
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&made);
    compiler.args(["libcuda.cpp", "libnvcuvid.cpp"].map(|name| sources.join(name)));
    let output = compiler.output().map_err(|error| format!("g++ does not run: {error}"))?;
    if !output.status.success() {
        return Err(format!("g++ fails: {}", String::from_utf8_lossy(&output.stderr)));
    }
    for name in NAMES {
        fs::hard_link(&made, folder.join(name)).expect("our own directory");
    }
    fs::remove_file(made).expect("our own directory");
    Ok(folder)
}
