//! Reading of files of a known size beneath a directory that is held open.
//!
//! The kernel resolves names (`openat2`), so that no link and no race leads elsewhere. A link, FIFO, device
//! or longer file in place of the expected one is an immediate error: a reader neither blocks on it nor reads
//! beyond its limit.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// Reason that a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FileError {
    #[error("not found")]
    NotFound,
    /// A symbolic link in the path, where links are not followed or form a loop.
    #[error("is reached through a symbolic link, which is not followed")]
    Link,
    #[error("leads out of its directory through a symbolic link")]
    LinkOut,
    #[error("is {0}, not a regular file")]
    NotAFile(&'static str),
    #[error("has {found} bytes, and {recorded} were recorded")]
    Size { found: u64, recorded: u64 },
    #[error("has more than {max} bytes, the most that are read")]
    TooLarge { max: u64 },
    #[error("{0}")]
    Io(#[source] io::Error),
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        match error {
            FileError::NotFound => io::ErrorKind::NotFound.into(),
            FileError::Io(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// Symbolic links to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// None.
    Never,
    /// Links that stay beneath the directory.
    Beneath,
}

/// Limit on the bytes read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Exactly the recorded number of bytes.
    Recorded(u64),
    /// At most this number of bytes.
    AtMost(u64),
}

/// Directory that is held open from its first use.
#[derive(Debug)]
pub struct HeldDir {
    path: PathBuf,
    held: OnceLock<OwnedFd>,
}

impl HeldDir {
    /// Returns the directory at `path`, which need not exist yet.
    pub fn new(path: &Path) -> HeldDir {
        HeldDir { path: path.to_owned(), held: OnceLock::new() }
    }

    /// Opens and holds the directory at `path`.
    pub fn open(path: &Path) -> io::Result<HeldDir> {
        let dir = HeldDir::new(path);
        dir.held(OFlags::DIRECTORY)?;
        Ok(dir)
    }

    /// Holds what is at `path`, a directory or a file of which only [`HeldDir::is_there`] tells.
    pub fn of_any(path: &Path) -> io::Result<HeldDir> {
        let any = HeldDir::new(path);
        any.held(OFlags::empty())?;
        Ok(any)
    }

    /// Returns the path given at construction.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if what is held is still at its path.
    pub fn is_there(&self) -> io::Result<bool> {
        is_at(self.held(OFlags::DIRECTORY)?, &self.path)
    }

    /// Returns what is held, opened with `kind` too if it is not yet: only a directory that is asked for as one
    /// is mounted on the way, where the system mounts at first use.
    fn held(&self, kind: OFlags) -> io::Result<&OwnedFd> {
        if let Some(held) = self.held.get() {
            return Ok(held);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC | kind;
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(self.held.get_or_init(|| opened))
    }

    /// Opens the regular file called `name` for reading.
    pub fn file(&self, name: &Path, links: Links) -> Result<File, FileError> {
        self.file_with(name, OFlags::RDONLY, links)
    }

    /// Opens the regular file called `name` for reading and writing, creating it if needed.
    pub fn file_to_write(&self, name: &Path) -> Result<File, FileError> {
        self.file_with(name, OFlags::RDWR | OFlags::CREATE, Links::Never)
    }

    /// Opens the existing regular file called `name` for reading and writing.
    pub fn file_to_change(&self, name: &Path) -> Result<File, FileError> {
        self.file_with(name, OFlags::RDWR, Links::Never)
    }

    fn file_with(&self, name: &Path, flags: OFlags, links: Links) -> Result<File, FileError> {
        // NONBLOCK: opening a FIFO must not block until another process writes to it.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let made = if flags.contains(OFlags::CREATE) { 0o666 } else { 0 };
        let resolve = ResolveFlags::BENEATH
            | match links {
                Links::Never => ResolveFlags::NO_SYMLINKS,
                Links::Beneath => ResolveFlags::NO_MAGICLINKS,
            };
        let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
        let dir = self.held(OFlags::DIRECTORY).map_err(unopened)?;
        let opened = rustix::fs::openat2(dir, name, flags, Mode::from_raw_mode(made), resolve);
        let file = match opened {
            Ok(file) => file,
            Err(Errno::XDEV) => return Err(FileError::LinkOut),
            Err(Errno::LOOP) => return Err(FileError::Link),
            // Errors of opening a socket, or a device without a driver.
            Err(Errno::NXIO | Errno::NODEV) => {
                return Err(FileError::NotAFile("a socket or device"));
            }
            Err(Errno::ISDIR) => return Err(FileError::NotAFile("a directory")),
            Err(error) => return Err(unopened(error.into())),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| FileError::Io(error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            FileType::Directory => Err(FileError::NotAFile("a directory")),
            FileType::Fifo => Err(FileError::NotAFile("a FIFO")),
            _ => Err(FileError::NotAFile("a device")),
        }
    }

    /// Reads the regular file called `name` without following links.
    pub fn read(&self, name: &Path, size: Size) -> Result<Vec<u8>, FileError> {
        read(self.file(name, Links::Never)?, size)
    }
}

/// Returns true if `path` leads to the open file; links are followed.
pub(crate) fn is_at(file: impl AsFd, path: &Path) -> io::Result<bool> {
    let now = match rustix::fs::stat(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        now => now?,
    };
    let held = rustix::fs::fstat(file)?;
    Ok((held.st_dev, held.st_ino) == (now.st_dev, now.st_ino))
}

fn unopened(error: io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileError::NotFound,
        _ => FileError::Io(error),
    }
}

/// Reads a file that an operator names: its directory is held, and links that stay in it are followed, as
/// mounted secrets need.
pub fn read_named(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let name = path.file_name().ok_or(FileError::NotAFile("a directory"))?;
    let dir = HeldDir::new(path.parent().unwrap_or(Path::new("")));
    read(dir.file(Path::new(name), Links::Beneath)?, Size::AtMost(max))
}

/// Checks that `file` has the recorded size.
pub fn check_size(file: &File, recorded: u64) -> Result<(), FileError> {
    let found = file.metadata().map_err(FileError::Io)?.len();
    if found == recorded { Ok(()) } else { Err(FileError::Size { found, recorded }) }
}

fn read(file: File, size: Size) -> Result<Vec<u8>, FileError> {
    let max = match size {
        Size::Recorded(bytes) => check_size(&file, bytes).map(|()| bytes)?,
        Size::AtMost(max) => max,
    };
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(FileError::Io)?;
    let found = bytes.len() as u64;
    match size {
        // The file was written to meanwhile.
        Size::Recorded(recorded) if found != recorded => Err(FileError::Size { found, recorded }),
        Size::AtMost(max) if found > max => Err(FileError::TooLarge { max }),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn told(read: Result<Vec<u8>, FileError>) -> String {
        read.map_or_else(|error| error.to_string(), |bytes| String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn what_took_the_place_of_a_file_is_an_error_at_once() {
        let outer = tempfile::tempdir().expect("a directory");
        let dir = outer.path().join("held");
        fs::create_dir_all(dir.join("sub")).expect("made");
        fs::write(dir.join("file"), "four").expect("written");
        fs::write(dir.join("sub/file"), "four").expect("written");
        fs::write(outer.path().join("secret"), "hush").expect("written");
        symlink("file", dir.join("in")).expect("linked");
        symlink("../secret", dir.join("out")).expect("linked");
        symlink("/dev/zero", dir.join("zero")).expect("linked");
        symlink("/proc/self/fd", dir.join("magic")).expect("linked");
        rustix::fs::mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("s")).expect("a socket");
        let held = HeldDir::open(&dir).expect("opened");
        let moved = outer.path().join("moved");
        fs::rename(&dir, &moved).expect("renamed");
        symlink("/etc", &dir).expect("linked");
        let link = "is reached through a symbolic link, which is not followed";
        let cases = [
            ("file", Size::Recorded(4), "four"),
            ("file", Size::AtMost(4), "four"),
            ("sub/file", Size::Recorded(4), "four"),
            ("file", Size::Recorded(5), "has 4 bytes, and 5 were recorded"),
            ("file", Size::Recorded(3), "has 4 bytes, and 3 were recorded"),
            ("file", Size::AtMost(3), "has more than 3 bytes, the most that are read"),
            ("none", Size::AtMost(4), "not found"),
            ("file/x", Size::AtMost(4), "not found"),
            ("in", Size::AtMost(4), link),
            ("out", Size::AtMost(4), link),
            ("zero", Size::AtMost(4), link),
            ("magic/0", Size::AtMost(4), link),
            ("../secret", Size::AtMost(4), "leads out of its directory through a symbolic link"),
            ("/etc/passwd", Size::AtMost(9), "leads out of its directory through a symbolic link"),
            ("sub", Size::AtMost(4), "is a directory, not a regular file"),
            ("", Size::AtMost(4), "is a directory, not a regular file"),
            ("fifo", Size::AtMost(4), "is a FIFO, not a regular file"),
            ("s", Size::AtMost(4), "is a socket or device, not a regular file"),
        ];
        for (name, size, expected) in cases {
            assert_eq!(told(held.read(Path::new(name), size)), expected, "{name} {size:?}");
        }
        assert!(matches!(held.file_to_write(Path::new("fifo")), Err(FileError::NotAFile(_))));
        assert!(matches!(held.file_to_write(Path::new("zero")), Err(FileError::Link)));
        assert!(held.file_to_write(Path::new("new")).is_ok() && moved.join("new").exists());
        assert!(matches!(held.file_to_change(Path::new("n")), Err(FileError::NotFound)));
    }

    #[test]
    fn a_named_file_may_be_a_link_within_its_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("2026")).expect("made");
        fs::write(at("2026/keys"), "a:b").expect("written");
        symlink("2026", at("..data")).expect("linked");
        symlink("..data/keys", at("keys")).expect("linked");
        symlink("/dev/zero", at("zero")).expect("linked");
        assert_eq!(told(read_named(&at("keys"), 9)), "a:b");
        assert_eq!(told(read_named(&at("none"), 9)), "not found");
        let out = "leads out of its directory through a symbolic link";
        assert_eq!(told(read_named(&at("zero"), 9)), out);
        assert_eq!(
            told(read_named(&at("keys"), 2)),
            "has more than 2 bytes, the most that are read"
        );
        assert_eq!(told(read_named(Path::new("/"), 2)), "is a directory, not a regular file");
    }
}
