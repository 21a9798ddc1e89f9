//! Drivers that are not there, compiled for the test that asks.
//!
//! The library's search path is read when a process starts, so what is to find a driver is a process of
//! its own. Needs `g++` and the headers of the driver; whoever asks says loudly when they are missing.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

/// How a driver is compiled; paths are from the repository's root.
pub struct Shim {
    /// What the compiler is given.
    pub sources: &'static [&'static str],
    /// What they include.
    pub included: &'static [&'static str],
    /// Of one library: a process that loads all of them has one driver.
    pub names: &'static [&'static str],
}

impl Shim {
    /// The folder below `tmp` where it lies compiled; an error says why it cannot be.
    pub fn compile(&self, root: &Path, tmp: &Path, flags: &[String]) -> Result<PathBuf, String> {
        let mut hasher = DefaultHasher::new();
        flags.hash(&mut hasher);
        for source in self.sources.iter().chain(self.included) {
            fs::read(root.join(source)).expect("in the repository").hash(&mut hasher);
        }
        let folder = tmp.join(format!("shim-{}", hasher.finish()));
        fs::create_dir_all(&folder).expect("our own directory");
        // Tests are processes that start together: one compiles, the others wait for it.
        let lock = fs::File::create(folder.join("lock")).expect("our own directory");
        lock.lock().map_err(|error| format!("{}: {error}", folder.display()))?;
        if self.names.iter().all(|name| folder.join(name).exists()) {
            return Ok(folder);
        }
        let made = folder.join("unfinished.so");
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"]);
        compiler.args(["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]);
        compiler.args(flags);
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&made);
        compiler.args(self.sources.iter().map(|source| root.join(source)));
        let output = compiler.output().map_err(|error| format!("g++ does not run: {error}"))?;
        if !output.status.success() {
            return Err(format!("g++ fails: {}", String::from_utf8_lossy(&output.stderr)));
        }
        for name in self.names {
            fs::hard_link(&made, folder.join(name)).expect("our own directory");
        }
        fs::remove_file(made).expect("our own directory");
        Ok(folder)
    }
}
