//! Default data directory, shared by the server and every reader of its data.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Default data directory, in the working directory.
const DEFAULT: &str = ".sightline-data";

/// Returns the default data directory: in the working directory, or in the user's state directory (XDG
/// specification) if the former overlaps one of the source `roots`. `var` returns the value of an environment
/// variable.
pub fn default_data_dir(roots: &[PathBuf], var: impl Fn(&str) -> Option<String>) -> PathBuf {
    let default = PathBuf::from(DEFAULT);
    if overlap(&default, roots).is_none() {
        return default;
    }
    let absolute = |name: &str| var(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map_or(default, |state| state.join("sightline"))
}

/// Returns the root that contains `dir` or lies in it, with a text that says which.
pub fn overlap<'a>(dir: &Path, roots: &'a [PathBuf]) -> Option<(&'a Path, &'static str)> {
    let dir = real(dir).ok()?;
    roots.iter().find_map(|root| {
        let found = real(root).ok()?;
        let which = if dir.starts_with(&found) {
            "which lies in"
        } else if found.starts_with(&dir) {
            "which holds"
        } else {
            return None;
        };
        Some((root.as_path(), which))
    })
}

/// Resolves `path`, as far as it exists.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let Some((part, found)) = found else { return Ok(path) };
    Ok(found.join(path.strip_prefix(part).unwrap_or(Path::new(""))))
}
