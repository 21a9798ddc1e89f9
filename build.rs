//! Lists the files of the built console (`console/dist`) for the server to embed; none where it is not built.

use std::{env, fs, io, path::Path};

#[expect(clippy::disallowed_methods, reason = "OUT_DIR is cargo's own")]
fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dist = root.join("console/dist");
    // A folder that is built later is noticed in the one that it lies in.
    let watched = if dist.is_dir() { "console/dist" } else { "console" };
    println!("cargo::rerun-if-changed={watched}");
    let mut files = Vec::new();
    if dist.is_dir() {
        collect(&dist, &dist, &mut files)?;
    }
    files.sort();
    let rows: String =
        files.iter().map(|(name, path)| format!("({name:?}, include_bytes!({path:?})),")).collect();
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no OUT_DIR"))?;
    fs::write(Path::new(&out).join("console.rs"), format!("&[{rows}]"))
}

/// Adds every file beneath `folder` as its path from `root` and its absolute one.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if let (Ok(name), Some(full)) = (path.strip_prefix(root), path.to_str()) {
            files.push((name.to_string_lossy().into_owned(), full.to_owned()));
        }
    }
    Ok(())
}
