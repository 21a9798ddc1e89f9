//! Settings of the data directory and of the ingest roots, which must not overlap.

use timeline::{default_data_dir, overlap};

use super::*;

const DATA_DIR: &str = "SERVICE_DATA_DIR";

/// Returns the data directory, made absolute, and the ingest roots; refuses them if they overlap.
pub(super) fn places(vars: &mut EnvReader) -> (PathBuf, Vec<PathBuf>) {
    let roots = vars.read("SERVICE_INGEST_FILE_ROOTS", "", directories);
    let is_set = vars.raw(DATA_DIR).is_some();
    let default = default_data_dir(&roots, |name| vars.raw(name).map(str::to_owned));
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

fn directories(text: &str) -> Result<Vec<PathBuf>, ValueError> {
    parts(text).map(|path| directory(Path::new(path))).collect()
}

/// Returns an existing directory as an absolute path, symbolic links unresolved.
fn directory(path: &Path) -> Result<PathBuf, ValueError> {
    let named = |error| format!("names {}: {error}", path.display());
    if !path.metadata().map_err(named)?.is_dir() {
        return Err(format!("names {}, which is not a directory", path.display()).into());
    }
    std::path::absolute(path).map_err(|error| named(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(pairs: &[(&str, &Path)]) -> Result<PathBuf, String> {
        let pairs = pairs.iter().map(|(name, path)| (name.to_string(), path.display().to_string()));
        let mut vars = EnvReader::new(pairs);
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
        assert_eq!(resolve(&[roots]), Ok(cwd.join(".sightline-data")), "the working directory");
        let here = ("SERVICE_INGEST_FILE_ROOTS", cwd.as_path());
        let state = ("XDG_STATE_HOME", apart.as_path());
        assert_eq!(resolve(&[here, state]), Ok(apart.join("sightline")));
        let home = ("HOME", apart.as_path());
        assert_eq!(resolve(&[here, home]), Ok(apart.join(".local/state/sightline")));
        let said = resolve(&[here]).expect_err("no place is left");
        assert!(said.starts_with("SERVICE_DATA_DIR is not set, and its default is"), "{said}");
    }
}
