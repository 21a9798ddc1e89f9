//! Place of exported files: a directory, whose files appear whole under their names.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::base::blocking::blocking;

/// Place that files are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory, made where there is none.
    Directory(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(path) => write!(f, "file://{}", path.display()),
        }
    }
}

impl Place {
    /// Puts the bytes of the file `from` under `name`, in place of what was there; durable on return.
    pub(super) async fn put(&self, name: &str, from: &Path) -> io::Result<()> {
        match self {
            Place::Directory(dir) => {
                let (to, from) = (dir.join(name), from.to_owned());
                blocking(move || copy(&from, &to)).await.map_err(io::Error::other)?
            }
        }
    }

    /// Writes `owner` under `name` unless something is there; returns what is there then.
    pub(super) async fn claim(&self, name: &str, owner: &str) -> io::Result<String> {
        match self {
            Place::Directory(dir) => {
                let (path, owner) = (dir.join(name), owner.to_owned());
                blocking(move || claim(&path, &owner)).await.map_err(io::Error::other)?
            }
        }
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (folder, name) = (folder(to), to.file_name().unwrap_or_default().display());
    fs::create_dir_all(folder)?;
    // No reader takes a hidden file for one of ours, and a repeat writes over it.
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

/// Makes the name of a file durable, and those of the folders that may have been made for it.
fn sync(path: &Path) -> io::Result<()> {
    path.ancestors().skip(1).take(4).try_for_each(|folder| File::open(folder)?.sync_all())
}
