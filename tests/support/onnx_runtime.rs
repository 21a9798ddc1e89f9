//! ONNX Runtime's library, from PyPI. Tests of several crates use this file.

use std::path::{Path, PathBuf};

use super::{python, skip};

/// The library of the pinned wheel; `None` where `test` is passed over.
pub fn runtime(test: &str) -> Option<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let requirements = crates
        .map(|folder| folder.join("embed/model/requirements.txt"))
        .find(|file| file.is_file());
    let bin = python::installed(test, &requirements.expect("in the repository"))?;
    library(&bin).map_err(|why| skip::skip(test, why)).ok()
}

fn library(bin: &Path) -> Result<PathBuf, String> {
    let wheel = bin.join("../lib");
    let folders = std::fs::read_dir(&wheel).map_err(|error| error.to_string())?;
    let capi = folders
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/onnxruntime/capi")))
        .find(|folder| folder.is_dir())
        .ok_or("no onnxruntime in the environment")?;
    let files = std::fs::read_dir(&capi).map_err(|error| error.to_string())?;
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"))
    };
    files
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(named)
        .ok_or_else(|| format!("no library in {}", capi.display()))
}
