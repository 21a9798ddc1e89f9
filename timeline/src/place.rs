//! Default directory of a server's data: the server and every reader of its data agree.

use std::{
    io,
    path::{Path, PathBuf},
};

/// The data directory where none is set, in the working directory.
const DEFAULT: &str = ".sightline-data";

/// The data directory where none is set and sources lie in `roots`: in the working directory, or where
/// that overlaps a root in the user's directory for state, as the XDG specification has it. `var` gives
/// the variables of the environment that are set.
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

/// The root that holds `dir` or lies in it, and which of the two.
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

/// Resolves `path`, as far as it is there.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let Some((part, found)) = found else { return Ok(path) };
    Ok(found.join(path.strip_prefix(part).unwrap_or(Path::new(""))))
}
