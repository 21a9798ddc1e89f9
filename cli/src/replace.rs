//! Files that are replaced whole: where a disk is full, the earlier one stays.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufWriter, IntoInnerError, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use crate::error::CliError;

/// Writes a file beside `path` and renames it once complete; writes to a device or a pipe as it is. Without `mode` an
/// earlier file's stays.
pub fn replace(
    path: &Path,
    mode: Option<u32>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CliError> {
    write(path, mode, content).map_err(|source| CliError::Write { path: path.to_owned(), source })
}

fn write(
    path: &Path,
    mode: Option<u32>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let found = path.metadata().ok();
    // The file that a link leads to is replaced, not the link; one without a name, as behind /dev/stdout, is not.
    let real = path.canonicalize().ok().filter(|path| path.is_file());
    if found.is_some() && real.is_none() {
        let mut out = BufWriter::new(File::create(path)?);
        content(&mut out)?;
        return out.flush();
    }
    let path = real.as_deref().unwrap_or(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mode = mode.or_else(|| Some(found?.permissions().mode())).unwrap_or(0o666);
    let aside = tempfile::Builder::new()
        .prefix(".sightline.")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    let mut out = BufWriter::new(aside);
    content(&mut out)?;
    let aside = out.into_inner().map_err(IntoInnerError::into_error)?;
    fs::rename(aside.path(), path)?;
    aside.keep().map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_by_a_whole_one_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        let put = |path: &Path, text: &str, end: io::Result<()>| {
            replace(path, None, |out| out.write_all(text.as_bytes()).and(end))
        };
        put(&file, "first", Ok(())).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
        let full = put(&file, "half of the se", Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(full, Err(CliError::Write { path, .. }) if path == file));
        assert_eq!(fs::read(&file).expect("there"), b"first");
        put(&link, "second", Ok(())).expect("written");
        assert_eq!(fs::read(&file).expect("there"), b"second");
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 2, "nothing else is left");
        let device = put(Path::new("/dev/full"), "text", Ok(())).expect_err("no room");
        assert!(device.to_string().starts_with("cannot write /dev/full: "), "{device}");
    }
}
