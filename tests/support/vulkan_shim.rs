//! A driver of Vulkan that imports dma-bufs: `shaders/shim`, which is lavapipe and what it lacks for that.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::driver_shim::Shim;

const VULKAN: Shim = Shim {
    sources: &["shaders/shim/vulkan_icd.cpp"],
    included: &["kernels/shim/settings.hpp"],
    names: &[LIBRARY],
};

/// What the loader of libraries is to find.
pub const LIBRARY: &str = "libvulkan_shim.so";
/// What the loader of Vulkan is to read.
pub const MANIFEST: &str = "icd.json";

/// The folder below `tmp` where both are; an error says why it cannot be compiled.
pub fn compiled(root: &Path, tmp: &Path) -> Result<PathBuf, String> {
    let folder = VULKAN.compile(root, tmp, &[])?;
    let said = format!(
        r#"{{"file_format_version": "1.0.0", "ICD": {{"api_version": "1.3.0", "library_path": "{LIBRARY}"}}}}"#
    );
    // Tests are processes that start together: all write the same, and none sees half of it.
    let own = folder.join(format!("icd-{}", std::process::id()));
    let written = fs::write(&own, said).and_then(|()| fs::rename(own, folder.join(MANIFEST)));
    written.expect("our own directory");
    Ok(folder)
}
