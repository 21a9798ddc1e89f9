//! Where the server's own data lie, apart from where sources are read.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{directories, vars::Vars};

const DATA_DIR: &str = "SERVICE_DATA_DIR";
/// The data directory where none is set, in the working directory.
const DATA_DIR_DEFAULT: &str = ".sightline-data";

/// The data directory, absolute, and the ingest roots: neither lies in the other.
pub(super) fn places(vars: &mut Vars) -> (PathBuf, Vec<PathBuf>) {
    let roots = vars.read("SERVICE_INGEST_FILE_ROOTS", "", directories);
    let is_set = vars.raw(DATA_DIR).is_some();
    let mut default = PathBuf::from(DATA_DIR_DEFAULT);
    if !is_set && overlap(&default, &roots).is_some() {
        default = state_dir(vars).unwrap_or(default);
    }
    let default = default.display().to_string();
    let dir: PathBuf = vars.read(DATA_DIR, &default, |text| Ok(text.into()));
    if let Some((root, which)) = overlap(&dir, &roots) {
        let (dir, root) = (dir.display(), root.display());
        let unset = if is_set { "" } else { "is not set, and its default " };
        vars.refuse(
            DATA_DIR,
            format!(
                "{unset}is {dir}, {which} the ingest root {root}: callers name sources beneath a \
                 root and must reach no data of the server's. Set {DATA_DIR} to a directory apart \
                 from every root, such as /var/lib/sightline, or name a narrower root in \
                 SERVICE_INGEST_FILE_ROOTS"
            ),
        );
    }
    (std::path::absolute(&dir).unwrap_or(dir), roots)
}

/// The user's directory for state, as the XDG specification has it.
fn state_dir(vars: &Vars) -> Option<PathBuf> {
    let absolute = |name: &str| vars.raw(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("sightline"))
}

/// The root that holds `dir` or lies in it, and which of the two.
fn overlap<'a>(dir: &Path, roots: &'a [PathBuf]) -> Option<(&'a Path, &'static str)> {
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

/// Where `path` leads, as far as it is there.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let Some((part, found)) = found else { return Ok(path) };
    Ok(found.join(path.strip_prefix(part).unwrap_or(Path::new(""))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(pairs: &[(&str, &Path)]) -> Result<PathBuf, String> {
        let pairs = pairs.iter().map(|(name, path)| (name.to_string(), path.display().to_string()));
        let mut vars = Vars::new(pairs);
        let (dir, _) = places(&mut vars);
        vars.errors.pop().map_or(Ok(dir), |error| Err(error.to_string()))
    }

    #[test]
    fn the_data_lie_apart_from_every_root() {
        let outer = tempfile::tempdir().expect("a directory");
        let outer = outer.path().canonicalize().expect("there");
        let root = outer.join("footage");
        std::fs::create_dir_all(root.join("sub")).expect("made");
        std::os::unix::fs::symlink(root.join("sub"), outer.join("link")).expect("linked");
        let (apart, cwd) = (outer.join("data"), std::env::current_dir().expect("there"));
        let roots = ("SERVICE_INGEST_FILE_ROOTS", root.as_path());
        let set = |dir: &Path| resolve(&[roots, (DATA_DIR, dir)]);
        assert_eq!(set(&apart), Ok(apart.clone()));
        for (dir, which) in [
            (root.clone(), "which lies in"),
            (root.join("a/b"), "which lies in"),
            (outer.join("link/data"), "which lies in"),
            (outer.clone(), "which holds"),
        ] {
            let said = set(&dir).expect_err("refused");
            assert!(said.contains(which) && said.contains("apart from every root"), "{said}");
        }
        assert_eq!(resolve(&[roots]), Ok(cwd.join(DATA_DIR_DEFAULT)), "the working directory");
        let here = ("SERVICE_INGEST_FILE_ROOTS", cwd.as_path());
        let state = ("XDG_STATE_HOME", apart.as_path());
        assert_eq!(resolve(&[here, state]), Ok(apart.join("sightline")));
        let home = ("HOME", apart.as_path());
        assert_eq!(resolve(&[here, home]), Ok(apart.join(".local/state/sightline")));
        let said = resolve(&[here]).expect_err("no place is left");
        assert!(said.starts_with("SERVICE_DATA_DIR is not set, and its default is"), "{said}");
    }
}
