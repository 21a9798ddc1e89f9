//! `sightline backup`: copies a data directory while a server writes to it; a server can start on the copy.
//!
//! Promises every event acknowledged before the start, with its rows and still, unless deleted meanwhile. The
//! order ensures that: first the ledger, which may lag behind the log but never lead; then the log, again
//! while it changes, until it opens; last the files that events name, which are written before the events.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use timeline::{RecoveryReport, Timeline, TimelineError};

use crate::{
    error::CliError,
    log::locate,
    output::{StdoutWriter, counted},
};

#[derive(clap::Args)]
pub struct BackupArgs {
    /// Data directory of the server, which may run
    dir: PathBuf,
    /// Directory to make, in which the server can be started
    to: PathBuf,
}

/// Most copies of a file that changes meanwhile.
const TRIES: usize = 1000;
/// Bytes of the ledger's header, which every commit changes; a commit's pages stay until the next one.
const LEDGER_HEADER: u64 = 512;
/// Folder of recordings in progress.
const OPEN_COLUMNS: &str = "open-columns";
/// Folders that a server rebuilds.
const DERIVED: [&str; 2] = ["search-cache", "export"];

pub fn run(args: &BackupArgs) -> Result<(), CliError> {
    let BackupArgs { dir, to } = args;
    // Without a slash at its end, which would make the partial copy a file in a folder that is not there.
    let to = &to.components().collect::<PathBuf>();
    if locate(dir)? != dir.join("log") {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "is a log, not a data directory");
        return Err(CliError::Read { path: dir.clone(), source });
    }
    check_apart(to, dir)?;
    // The copy gets its final name once complete; a partial copy could be taken for a backup.
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    for path in [to, &part] {
        if path.exists() {
            let source = io::Error::new(io::ErrorKind::AlreadyExists, "exists: remove it first");
            return Err(CliError::Write { path: path.clone(), source });
        }
    }
    let mut backup = Backup { from: dir, to: &part, files: 0, bytes: 0 };
    backup.folder(Path::new(""))?;
    let copied = backup.all().and_then(|log| {
        let named = fs::rename(&part, to).and_then(|()| File::open(to.join(".."))?.sync_all());
        named.map_err(|source| CliError::Write { path: to.clone(), source })?;
        Ok(log)
    });
    let log = copied.inspect_err(|_| {
        // The first failure is reported; a remaining partial copy makes the next backup fail by its name.
        fs::remove_dir_all(&part).ok();
    })?;
    let mut out = StdoutWriter::stdout();
    let (events, files) = (counted(log.events, "event"), counted(backup.files, "file"));
    out.line(format_args!("{events}, {files}, {}", counted(backup.bytes, "byte")))?;
    out.finish()
}

/// Fails if `to`, which need not exist, lies within `dir`: the copy would have no end.
fn check_apart(to: &Path, dir: &Path) -> Result<(), CliError> {
    let there = std::path::absolute(to)
        .ok()
        .and_then(|path| path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok()));
    if !matches!((there, dir.canonicalize()), (Some(there), Ok(dir)) if there.starts_with(&dir)) {
        return Ok(());
    }
    let problem = format!("is within {}, which is copied: name one beside it", dir.display());
    let source = io::Error::new(io::ErrorKind::InvalidInput, problem);
    Err(CliError::Write { path: to.to_owned(), source })
}

/// Copies the ledger of the data directory `from`, which a server may have open, into the directory `to`.
pub fn copy_ledger(from: &Path, to: &Path) -> Result<(), CliError> {
    Backup { from, to, files: 0, bytes: 0 }.ledger()
}

struct Backup<'a> {
    from: &'a Path,
    to: &'a Path,
    files: u64,
    bytes: u64,
}

impl Backup<'_> {
    /// Copies everything into the new directory; durable on return.
    fn all(&mut self) -> Result<RecoveryReport, CliError> {
        self.ledger()?;
        let mut open = self.open_columns()?;
        let log = self.log()?;
        open.extend(self.open_columns()?);
        self.rest(Path::new(""))?;
        open.into_iter().try_for_each(|(name, file)| self.copy(file, &name))?;
        let synced = File::open(self.to).and_then(|made| Ok(rustix::fs::syncfs(made)?));
        synced.map_err(|source| CliError::Write { path: self.to.to_owned(), source })?;
        Ok(log)
    }

    fn folder(&self, name: &Path) -> Result<(), CliError> {
        let path = self.to.join(name);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| CliError::Write { path, source })
    }

    /// Opens the recordings in progress; open files stay readable after the server removes them.
    fn open_columns(&self) -> Result<BTreeMap<PathBuf, File>, CliError> {
        let folder = Path::new(OPEN_COLUMNS);
        if !self.from.join(folder).is_dir() {
            return Ok(BTreeMap::new());
        }
        let paths = names(&self.from.join(folder))?.into_iter().map(|name| folder.join(name));
        paths
            .filter_map(|path| Some(self.open(&path).transpose()?.map(|file| (path, file))))
            .collect()
    }

    /// Opens a file; `None` if it has been removed.
    fn open(&self, name: &Path) -> Result<Option<File>, CliError> {
        let path = self.from.join(name);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|source| CliError::Read { path, source }),
        }
    }

    /// Copies a file; returns false if it has been removed.
    fn file(&mut self, name: &Path) -> Result<bool, CliError> {
        match self.open(name)? {
            Some(from) => self.copy(from, name).map(|()| true),
            None => Ok(false),
        }
    }

    fn copy(&mut self, mut from: File, name: &Path) -> Result<(), CliError> {
        let path = self.to.join(name);
        let copied = from.metadata().and_then(|found| {
            let mut to = File::create(&path)?;
            to.set_permissions(found.permissions())?;
            io::copy(&mut from, &mut to)
        });
        self.bytes += copied.map_err(|source| CliError::Write { path, source })?;
        self.files += 1;
        Ok(())
    }

    /// Copies the ledger between two of its commits, retrying while it changes.
    fn ledger(&mut self) -> Result<(), CliError> {
        let (name, path) = (Path::new("ledger"), self.from.join("ledger"));
        let header = || {
            let mut header = Vec::new();
            let read = File::open(&path)
                .and_then(|file| file.take(LEDGER_HEADER).read_to_end(&mut header));
            read.map(|_| header).map_err(|source| CliError::Read { path: path.clone(), source })
        };
        for _ in 0..TRIES {
            let before = header()?;
            self.file(name)?;
            if header()? == before {
                return Ok(());
            }
        }
        Err(changes_too_fast(path))
    }

    /// Copies the log, and files of it that change again, until the copy opens.
    fn log(&mut self) -> Result<RecoveryReport, CliError> {
        ["log", "log/journal"].iter().try_for_each(|name| self.folder(Path::new(name)))?;
        let mut known = HashMap::new();
        for _ in 0..TRIES {
            let is_changed = self.journal(&mut known)?;
            match Timeline::open_read_only(&self.to.join("log")) {
                Ok((_, found)) => return Ok(found),
                Err(TimelineError::Damaged { .. }) if is_changed => {}
                Err(mut source) => {
                    // Names the original: the copy is removed.
                    if let TimelineError::Damaged { file, .. }
                    | TimelineError::UnknownFormat { file, .. } = &mut source
                        && let Ok(name) = file.strip_prefix(self.to)
                    {
                        *file = self.from.join(name);
                    }
                    return Err(CliError::Log { dir: self.from.to_owned(), source });
                }
            }
        }
        Err(changes_too_fast(self.from.join("log")))
    }

    /// Updates the copy of the journal; returns false if nothing had changed.
    fn journal(&mut self, known: &mut HashMap<OsString, State>) -> Result<bool, CliError> {
        let folder = Path::new("log/journal");
        let (names, mut is_changed) = (names(&self.from.join(folder))?, false);
        for name in &names {
            let file = folder.join(name);
            let Ok(state) = fs::metadata(self.from.join(&file)).map(|found| State::of(&found))
            else {
                continue;
            };
            if known.get(name) != Some(&state) && self.file(&file)? {
                known.insert(name.clone(), state);
                is_changed = true;
            }
        }
        let is_gone = |name: &&OsString| names.binary_search(name).is_err();
        let gone: Vec<OsString> = known.keys().filter(is_gone).cloned().collect();
        for name in gone {
            known.remove(&name);
            let path = self.to.join(folder).join(name);
            fs::remove_file(&path).map_err(|source| CliError::Write { path, source })?;
            is_changed = true;
        }
        Ok(is_changed)
    }

    /// Returns what is at `path` in `folder`; `None` if it has been removed. Links in the data directory and its log
    /// are followed, as the server follows them: they lead to other disks.
    fn found(&self, folder: &Path, path: &Path) -> Result<Option<fs::Metadata>, CliError> {
        let path = self.from.join(path);
        let Ok(found) = fs::symlink_metadata(&path) else { return Ok(None) };
        let is_followed = folder == Path::new("") || folder == Path::new("log");
        if !(found.is_symlink() && is_followed) {
            return Ok(Some(found));
        }
        check_apart(self.to, &path)?;
        fs::metadata(&path).map(Some).map_err(|source| CliError::Read { path, source })
    }

    /// Copies all other files and folders.
    fn rest(&mut self, folder: &Path) -> Result<(), CliError> {
        for name in names(&self.from.join(folder))? {
            let path = folder.join(&name);
            if folder == Path::new("") && DERIVED.iter().any(|it| name == OsStr::new(it)) {
                continue;
            }
            let Some(found) = self.found(folder, &path)? else { continue };
            if found.is_dir() && path != Path::new("log/journal") {
                if !self.to.join(&path).is_dir() {
                    self.folder(&path)?;
                }
                self.rest(&path)?;
            } else if found.is_file()
                && path != Path::new("ledger")
                && folder != Path::new(OPEN_COLUMNS)
            {
                self.file(&path)?;
            }
        }
        Ok(())
    }
}

fn changes_too_fast(path: PathBuf) -> CliError {
    let source = io::Error::new(io::ErrorKind::ResourceBusy, "changes faster than it is copied");
    CliError::Read { path, source }
}

/// Identity and size of a file, to detect changes.
#[derive(PartialEq, Eq)]
struct State {
    file: u64,
    bytes: u64,
    at: (i64, i64),
}

impl State {
    fn of(found: &fs::Metadata) -> State {
        State { file: found.ino(), bytes: found.len(), at: (found.mtime(), found.mtime_nsec()) }
    }
}

/// Returns the names in a folder, sorted.
fn names(dir: &Path) -> Result<Vec<OsString>, CliError> {
    let listed = fs::read_dir(dir).and_then(|entries| {
        entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()
    });
    let mut names = listed.map_err(|source| CliError::Read { path: dir.to_owned(), source })?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
