//! Opens a `source_uri`: a file beneath an ingest root, or a URL.
//!
//! The kernel resolves paths (`openat2` with `RESOLVE_BENEATH`), so that no link and no race leads out of a
//! root. Promises a regular file of at least one byte, or an error that names what was found.

pub mod remote;

use std::{
    fs::File,
    io,
    path::{Component, Path, PathBuf},
};

use media::ErrorKind;
use timeline::held::{FileError, HeldDir, Links};
use transport::egress::EgressError;

use crate::base::percent;
use remote::RemoteSource;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("no ingest root is configured")]
    NoRoots,
    #[error("is not a path or file URL: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Remote(EgressError),
    #[error("must not contain \"..\"")]
    ParentComponent,
    #[error("is outside the ingest roots")]
    OutsideRoots,
    #[error(
        "leads out of its ingest root through a symbolic link, which must be relative and stay within"
    )]
    LinkOut,
    #[error("not found")]
    NotFound,
    #[error("is not readable by the server")]
    Denied,
    #[error("is {0}, not a regular file")]
    NotAFile(&'static str),
    #[error("is empty")]
    Empty,
    #[error("is not the file that was uploaded: it {0}")]
    Replaced(#[source] FileError),
    #[error("cannot be opened: {0}")]
    Io(#[source] io::Error),
}

impl SourceError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            SourceError::Io(_) => ErrorKind::Internal,
            SourceError::Replaced(_) => ErrorKind::DataLoss,
            _ => ErrorKind::InvalidInput,
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, SourceError::NoRoots | SourceError::OutsideRoots | SourceError::NotFound)
    }
}

#[derive(Debug)]
pub enum IngestSource {
    File(File),
    Remote(RemoteSource),
}

impl IngestSource {
    pub fn is_remote(&self) -> bool {
        matches!(self, IngestSource::Remote(_))
    }
}

/// Directories beneath which sources may be opened.
#[derive(Debug)]
pub struct IngestRoots(Vec<Root>);

#[derive(Debug)]
struct Root {
    /// Path in the settings, and the path it resolves to: callers may use either.
    names: [PathBuf; 2],
    directory: HeldDir,
}

impl Root {
    fn open(path: &Path) -> io::Result<Root> {
        let directory = HeldDir::open(path)?;
        Ok(Root { names: [path.to_owned(), path.canonicalize()?], directory })
    }

    /// Returns `path` relative to the root; `None` if it lies elsewhere.
    fn beneath<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        if path.is_relative() {
            return Some(path);
        }
        self.names.iter().find_map(|name| path.strip_prefix(name).ok())
    }
}

impl IngestRoots {
    /// Opens `paths` and holds them open, so that a root replaced later has no effect.
    pub fn open(paths: &[PathBuf]) -> io::Result<IngestRoots> {
        paths.iter().map(|path| Root::open(path)).collect::<io::Result<_>>().map(IngestRoots)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Number of roots that cannot be read, or whose path leads to another directory by this time.
    pub fn lost(&self) -> usize {
        let is_lost = |root: &&Root| {
            let is_there = root.directory.is_there().is_ok_and(|is_there| is_there);
            !is_there || std::fs::read_dir(root.directory.path()).is_err()
        };
        self.0.iter().filter(is_lost).count()
    }

    /// Opens the file that `uri` names: an absolute path, a path relative to a root, or a file URL.
    pub fn open_source(&self, uri: &str) -> Result<File, SourceError> {
        self.open_with(uri, Links::Beneath)
    }

    /// Opens a file to send its bytes: follows no link, and finds no hidden file.
    pub fn open_served(&self, uri: &str) -> Result<File, SourceError> {
        self.open_with(uri, Links::Never)
    }

    fn open_with(&self, uri: &str, links: Links) -> Result<File, SourceError> {
        let path = path_of(uri)?;
        if self.0.is_empty() {
            return Err(SourceError::NoRoots);
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(SourceError::ParentComponent);
        }
        let mut refused = SourceError::OutsideRoots;
        for root in &self.0 {
            let Some(beneath) = root.beneath(&path) else { continue };
            if links == Links::Never && is_hidden(beneath) {
                return Err(SourceError::NotFound);
            }
            match open_beneath(&root.directory, beneath, links) {
                Err(error @ SourceError::Io(_)) => return Err(error),
                // Another root may have the file; if none has, the first thing found is told.
                Err(error) => {
                    if matches!(refused, SourceError::OutsideRoots | SourceError::NotFound) {
                        refused = error;
                    }
                }
                opened => return opened,
            }
        }
        Err(refused)
    }
}

/// Returns the path that `uri` names: a path itself, or a file URL.
pub fn path_of(uri: &str) -> Result<PathBuf, SourceError> {
    let path = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
            let start = rest.find('/').ok_or(SourceError::Malformed("the URL has no path"))?;
            if !matches!(&rest[..start], "" | "localhost") {
                return Err(SourceError::Malformed("a file URL names no other host"));
            }
            percent::decode(&rest.as_bytes()[start..])
                .ok_or(SourceError::Malformed("its percent-encoding is broken or not UTF-8"))?
        }
        _ => uri.to_owned(),
    };
    if path.is_empty() || path.contains('\0') {
        return Err(SourceError::Malformed("the path is empty or has a NUL byte"));
    }
    Ok(path.into())
}

/// Returns true if a component of the path begins with a dot.
fn is_hidden(path: &Path) -> bool {
    path.components().any(
        |part| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b".")),
    )
}

/// Opens the regular file at `path`, which must not lead out of `root` and must have at least one byte.
fn open_beneath(root: &HeldDir, path: &Path, links: Links) -> Result<File, SourceError> {
    let file = root.file(path, links).map_err(|error| match error {
        FileError::LinkOut => SourceError::LinkOut,
        FileError::Link => SourceError::Malformed("symbolic links go in circles"),
        FileError::NotFound => SourceError::NotFound,
        FileError::NotAFile(found) => SourceError::NotAFile(found),
        FileError::Io(error) => match error.kind() {
            io::ErrorKind::InvalidFilename => SourceError::Malformed("the path is too long"),
            io::ErrorKind::PermissionDenied => SourceError::Denied,
            _ => SourceError::Io(error),
        },
        error => SourceError::Io(error.into()),
    })?;
    match file.metadata() {
        Ok(stat) if stat.len() == 0 => Err(SourceError::Empty),
        Ok(_) => Ok(file),
        Err(error) => Err(SourceError::Io(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_with_bytes_beneath_a_root_are_opened() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("there");
        let (root, other) = (dir.join("root"), dir.join("other"));
        std::fs::create_dir_all(root.join("sub")).expect("made");
        std::fs::create_dir(&other).expect("made");
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).expect("written");
        write(root.join("a b.mp4"), "x");
        write(root.join("empty.mp4"), "");
        write(dir.join("secret.mp4"), "x");
        write(other.join("sub"), "x");
        write(other.join("empty.mp4"), "x");
        symlink(dir.join("secret.mp4"), root.join("out.mp4")).expect("linked");
        symlink("../secret.mp4", root.join("up.mp4")).expect("linked");
        symlink("a b.mp4", root.join("in.mp4")).expect("linked");
        symlink("loop.mp4", root.join("loop.mp4")).expect("linked");
        let fifo = root.join("fifo.mp4");
        let cwd = rustix::fs::CWD;
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(cwd, &fifo, kind, mode, 0).expect("a FIFO");
        let _socket = std::os::unix::net::UnixListener::bind(root.join("s.mp4")).expect("a socket");
        let at = |name: &str| root.join(name).display().to_string();
        let out = "leads out of its ingest root through a symbolic link, which must be relative and stay within";
        let encoding = "is not a path or file URL: its percent-encoding is broken or not UTF-8";
        let cases = [
            (at("a b.mp4"), "opened"),
            (format!("file://{}", at("a%20b.mp4")), "opened"),
            (format!("FILE://localhost{}", at("a%20b.mp4")), "opened"),
            ("a b.mp4".into(), "opened"),
            (at("in.mp4"), "opened"),
            (at("nothing.mp4"), "not found"),
            (at("a b.mp4/x"), "not found"),
            (at("empty.mp4"), "is empty"),
            (at("sub"), "is a directory, not a regular file"),
            ("sub".into(), "opened"),
            ("empty.mp4".into(), "opened"),
            ("fifo.mp4".into(), "is a FIFO, not a regular file"),
            (at(""), "is a directory, not a regular file"),
            (at("fifo.mp4"), "is a FIFO, not a regular file"),
            (at("s.mp4"), "is a socket or device, not a regular file"),
            (at("out.mp4"), out),
            (at("up.mp4"), out),
            (at("loop.mp4"), "is not a path or file URL: symbolic links go in circles"),
            (at("../secret.mp4"), "must not contain \"..\""),
            ("../secret.mp4".into(), "must not contain \"..\""),
            (dir.join("secret.mp4").display().to_string(), "is outside the ingest roots"),
            ("/dev/null".into(), "is outside the ingest roots"),
            ("".into(), "is not a path or file URL: the path is empty or has a NUL byte"),
            ("a\0b".into(), "is not a path or file URL: the path is empty or has a NUL byte"),
            ("file:///%zz".into(), encoding),
            ("file:///%ff".into(), encoding),
            ("file://host/x".into(), "is not a path or file URL: a file URL names no other host"),
            ("file://host".into(), "is not a path or file URL: the URL has no path"),
        ];
        let roots = IngestRoots::open(&[root, other]).expect("opened");
        for (uri, expected) in cases {
            let found = match roots.open_source(&uri) {
                Ok(_) => "opened".to_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected, "{uri}");
        }
        write(roots.0[0].directory.path().join(".hidden.mp4"), "x");
        for (uri, is_served) in [
            ("a b.mp4", true),
            ("./a b.mp4", true),
            ("in.mp4", false),
            ("out.mp4", false),
            ("fifo.mp4", false),
            (".hidden.mp4", false),
            (".sub/a.mp4", false),
        ] {
            assert_eq!(roots.open_served(uri).is_ok(), is_served, "{uri}");
        }
        assert!(roots.open_source(".hidden.mp4").is_ok(), "an ingest may read it");
        let none = IngestRoots::open(&[]).expect("nothing to open");
        let refused = none.open_source("a b.mp4").err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some("no ingest root is configured"), "the CLI reads it");
    }

    #[test]
    fn no_race_of_links_and_folders_leads_out() {
        use std::{
            io::Read,
            sync::atomic::{AtomicBool, Ordering},
        };
        let dir = tempfile::tempdir().expect("a directory");
        let (root, out) = (dir.path().join("root"), dir.path().join("out"));
        for (folder, text) in [(&root.join("sub"), "inside"), (&out, "outside")] {
            std::fs::create_dir_all(folder).expect("made");
            std::fs::write(folder.join("a.mp4"), text).expect("written");
        }
        std::fs::write(root.join("b.mp4"), "inside").expect("written");
        symlink(&out, root.join("sub-link")).expect("linked");
        symlink("../out/a.mp4", root.join("b-link.mp4")).expect("linked");
        let roots = IngestRoots::open(std::slice::from_ref(&root)).expect("opened");
        let is_over = AtomicBool::new(false);
        let swap = |from: &str, to: &str| {
            while !is_over.load(Ordering::Relaxed) {
                let (from, to, cwd) = (root.join(from), root.join(to), rustix::fs::CWD);
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(cwd, from, cwd, to, exchange).expect("exchanged");
            }
        };
        let (mut opened, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            for (from, to) in [("sub", "sub-link"), ("b.mp4", "b-link.mp4")] {
                let builder = std::thread::Builder::new().name("swap".to_owned());
                builder.spawn_scoped(scope, move || swap(from, to)).expect("a thread");
            }
            for round in 0..100_000 {
                let uri = ["sub/a.mp4", "b.mp4"][round % 2];
                let found = match round / 2 % 2 {
                    0 => roots.open_source(uri),
                    _ => roots.open_served(uri),
                };
                match found {
                    Ok(mut file) => {
                        let mut text = String::new();
                        file.read_to_string(&mut text).expect("readable");
                        assert_eq!(text, "inside", "round {round}: {uri}");
                        opened += 1;
                    }
                    Err(
                        SourceError::LinkOut | SourceError::Malformed(_) | SourceError::NotFound,
                    ) => refused += 1,
                    Err(error) => panic!("round {round}: {uri} {error}"),
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(opened > 100 && refused > 100, "a race: {opened} opened, {refused} refused");
    }

    #[test]
    fn a_root_named_by_a_link_opens_under_both_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("there");
        let (real, link) = (dir.join("real"), dir.join("link"));
        std::fs::create_dir(&real).expect("made");
        std::fs::write(real.join("a.mp4"), "x").expect("written");
        symlink(&real, &link).expect("linked");
        let roots = IngestRoots::open(std::slice::from_ref(&link)).expect("opened");
        for path in [link.join("a.mp4"), real.join("a.mp4"), "a.mp4".into()] {
            let opened = roots.open_source(path.to_str().expect("UTF-8"));
            assert!(opened.is_ok(), "{}: {opened:?}", path.display());
        }
        let elsewhere = roots.open_source("/etc/passwd");
        assert!(matches!(elsewhere, Err(SourceError::OutsideRoots)), "{elsewhere:?}");
    }
}
