//! A driver of NVIDIA's that is not there: `kernels/shim`.

use std::path::{Path, PathBuf};

use crate::driver_shim::Shim;

/// The folder below `tmp` of a driver of NVIDIA's, with the function `lacking` under another name; an
/// error says why it cannot be compiled.
pub fn shim(root: &Path, tmp: &Path, lacking: Option<&str>) -> Result<PathBuf, String> {
    let driver = Shim {
        sources: &["kernels/shim/libcuda.cpp", "kernels/shim/libnvcuvid.cpp"],
        included: &[
            "kernels/shim/driver.hpp",
            "kernels/shim/settings.hpp",
            "kernels/shim/pictures.hpp",
            "kernels/shim/cuda_on_cpu.hpp",
            "kernels/cuda/cell_sums.cu",
        ],
        names: &["libcuda.so", "libcuda.so.1", "libnvcuvid.so.1"],
    };
    // The kernel's stacks are switched by long jumps, which hardened ones take for an attack.
    let unhardened = Some("-U_FORTIFY_SOURCE".to_owned());
    let renamed = lacking.map(|name| format!("-D{name}=something_else"));
    let flags: Vec<String> = unhardened.into_iter().chain(renamed).collect();
    driver.compile(root, tmp, &flags)
}
