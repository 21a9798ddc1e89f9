//! Has the server embed the built console (`console/dist`; nothing where it is not built) and the OpenAPI document, and be linked small.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};

#[expect(clippy::disallowed_methods, reason = "OUT_DIR is cargo's own")]
fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no OUT_DIR"))?;
    let out = Path::new(&out);
    link_small();
    embed_console(root, out)?;
    embed_document(root, out)
}

/// Compresses the OpenAPI document.
fn embed_document(root: &Path, out: &Path) -> io::Result<()> {
    let document = root.join("schemas/openapi.json");
    println!("cargo::rerun-if-changed={}", document.display());
    let packed = File::create(out.join("openapi.json.gz"))?;
    let mut packed = GzEncoder::new(packed, Compression::best());
    packed.write_all(&fs::read(document)?)?;
    packed.finish().map(drop)
}

/// Lists the console's files: of what is there compressed too, that alone.
fn embed_console(root: &Path, out: &Path) -> io::Result<()> {
    let dist = root.join("console/dist");
    // A folder that is built later is noticed in the one that it lies in.
    let watched = if dist.is_dir() { "console/dist" } else { "console" };
    println!("cargo::rerun-if-changed={watched}");
    let mut files = Vec::new();
    if dist.is_dir() {
        collect(&dist, &dist, &mut files)?;
    }
    files.sort();
    let is_packed = |name: &str| files.iter().any(|(other, _)| *other == format!("{name}.gz"));
    let rows = files.iter().filter(|(name, _)| !is_packed(name));
    let rows = rows.map(|(name, path)| format!("({name:?}, include_bytes!({path:?})),"));
    fs::write(out.join("console.rs"), format!("&[{}]", rows.collect::<String>()))
}

/// Has the relocations of a release packed (RELR, which glibc 2.36 reads): a megabyte less. Of x86-64 alone, which rustc links with lld.
#[expect(clippy::disallowed_methods, reason = "cargo says by them what is built")]
fn link_small() {
    let is = |name: &str, value: &str| env::var_os(name).is_some_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_ARCH", "x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
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
