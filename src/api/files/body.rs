//! Response body that reads a file from disk as it is sent.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt};

use crate::{
    api::{prelude::*, send_budget::BufferedBytes},
    base::{
        blocking::blocking,
        stepped_body::{Step, stepped},
    },
};

/// Bytes per read, and the maximum buffered for one client.
const READ: u64 = 128 << 10;

/// Returns the body of the bytes of `file` in `range`, and the memory that it occupies while it is sent.
pub fn file_body(file: File, range: Range<u64>) -> (Body, BufferedBytes) {
    let bytes = range.end - range.start;
    let body = stepped((Arc::new(file), range), Some(bytes), read_on);
    (body, BufferedBytes(READ.min(bytes)))
}

async fn read_on((file, left): (Arc<File>, Range<u64>)) -> Step<(Arc<File>, Range<u64>)> {
    if left.is_empty() {
        return Ok(None);
    }
    let part = left.start..left.end.min(left.start + READ);
    let (rest, source) = (part.end..left.end, Arc::clone(&file));
    let read = move || -> io::Result<Bytes> {
        let mut bytes = vec![0; (part.end - part.start) as usize];
        // A file truncated meanwhile ends the body early; the client notices the missing bytes.
        source.read_exact_at(&mut bytes, part.start)?;
        Ok(bytes.into())
    };
    let bytes = blocking(read).await.map_err(io::Error::other).flatten();
    let bytes =
        bytes.inspect_err(|error| tracing::warn!(%error, "a file could not be sent to its end"))?;
    Ok(Some((bytes, (file, rest))))
}
