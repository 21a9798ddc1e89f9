//! Destination of exported files: a directory or an object store, in which files appear complete.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use objects::Objects;
use tempfile::NamedTempFile;

use crate::base::blocking::blocking;

/// Timeout of one upload to an object store.
const PUT_WITHIN: Duration = Duration::from_secs(600);

/// Destination that files are written to.
#[derive(Clone, Debug)]
pub enum Place {
    /// Directory, created by the claim if missing.
    Directory(PathBuf),
    Store(Objects),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(path) => write!(f, "file://{}", path.display()),
            Place::Store(objects) => objects.place().fmt(f),
        }
    }
}

impl Place {
    /// Copies the file `from` to `name`, replacing an existing one; durable on return. Fails in a directory
    /// without the file `claimed`: it was moved away or is not mounted, and must not be made anew.
    pub(super) async fn put(&self, claimed: &str, name: &str, from: &Path) -> io::Result<()> {
        match self {
            Place::Directory(dir) => {
                let (claimed, to, from) = (dir.join(claimed), dir.join(name), from.to_owned());
                let work = move || require(&claimed).and_then(|()| copy(&from, &to));
                blocking(work).await.map_err(io::Error::other)?
            }
            Place::Store(objects) => {
                objects.put_file(name, from, PUT_WITHIN).await.map_err(io::Error::other)
            }
        }
    }

    /// Writes `owner` to `name` unless it exists; returns the content of `name` after that.
    pub(super) async fn claim(&self, name: &str, owner: &str) -> io::Result<String> {
        match self {
            Place::Directory(dir) => {
                let (path, owner) = (dir.join(name), owner.to_owned());
                blocking(move || claim(&path, &owner)).await.map_err(io::Error::other)?
            }
            Place::Store(objects) => objects.claim(name, owner).await.map_err(io::Error::other),
        }
    }

    /// Lists the names directly below `folder`; none if it does not exist.
    pub(super) async fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        match self {
            Place::Directory(dir) => {
                let path = dir.join(folder);
                blocking(move || names(&path)).await.map_err(io::Error::other)?
            }
            Place::Store(objects) => objects.names(folder).await.map_err(io::Error::other),
        }
    }
}

fn require(claimed: &Path) -> io::Result<()> {
    fs::metadata(claimed).map(drop).map_err(|error| {
        let text =
            format!("{}, this server's mark there, cannot be found: {error}", claimed.display());
        io::Error::new(error.kind(), text)
    })
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (folder, name) = (folder(to), to.file_name().unwrap_or_default().display());
    fs::create_dir_all(folder)?;
    // Readers ignore hidden files, and a repeated write overwrites this one.
    let aside = folder.join(format!(".{name}.part"));
    let mut out = File::create(&aside)?;
    io::copy(&mut File::open(from)?, &mut out)?;
    out.sync_all()?;
    fs::rename(&aside, to)?;
    sync(to)
}

fn claim(path: &Path, owner: &str) -> io::Result<String> {
    fs::create_dir_all(folder(path))?;
    let mut aside = NamedTempFile::new_in(folder(path))?;
    aside.write_all(owner.as_bytes())?;
    aside.as_file().sync_all()?;
    match aside.persist_noclobber(path) {
        Ok(_) => sync(path)?,
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.error),
    }
    fs::read_to_string(path)
}

fn folder(of: &Path) -> &Path {
    of.parent().unwrap_or(Path::new("/"))
}

/// Makes the name of a file durable, and those of parent directories that may be new.
fn sync(path: &Path) -> io::Result<()> {
    path.ancestors().skip(1).take(4).try_for_each(|folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_that_is_away_is_not_made_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let [export, away, from] = ["export", "away", "from"].map(|name| dir.path().join(name));
        let (place, mark, name) =
            (Place::Directory(export.clone()), "nodes/ab12", "events/1-2.parquet");
        fs::write(&from, "a").expect("written");
        place.claim(mark, "first").await.expect("claimed");
        fs::rename(&export, &away).expect("moved");
        let refused = place.put(mark, name, &from).await.expect_err("away");
        assert_eq!(refused.kind(), io::ErrorKind::NotFound, "{refused}");
        assert!(!export.exists());
        // The directory that a mount covered.
        fs::create_dir(&export).expect("made");
        place.put(mark, name, &from).await.expect_err("without a mark");
        assert_eq!(fs::read_dir(&export).expect("there").count(), 0);
        fs::remove_dir(&export).expect("removed");
        fs::rename(&away, &export).expect("moved");
        place.put(mark, name, &from).await.expect("back");
        assert!(export.join(name).exists());
    }
}
