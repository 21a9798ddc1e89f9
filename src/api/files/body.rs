//! Response body that reads a file from disk as it is sent.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::super::send_budget::BufferedBytes;
use crate::base::blocking::{TaskPanicked, blocking};

/// Bytes per read, and the maximum buffered for one client.
const READ: u64 = 128 << 10;

pub struct FileBody {
    file: Arc<File>,
    left: Range<u64>,
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = Result<io::Result<Bytes>, TaskPanicked>> + Send>>;

impl FileBody {
    pub fn new(file: File, range: Range<u64>) -> FileBody {
        FileBody { file: Arc::new(file), left: range, reading: None }
    }

    /// Returns the memory that the body occupies while it is sent.
    pub fn holds(&self) -> BufferedBytes {
        BufferedBytes(READ.min(self.left.end - self.left.start))
    }
}

fn read(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    // A file truncated meanwhile ends the body early; the client notices the missing bytes.
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let next = self.left.start..self.left.end.min(self.left.start + READ);
        let file = Arc::clone(&self.file);
        let reading =
            self.reading.get_or_insert_with(|| Box::pin(blocking(move || read(&file, next))));
        let outcome = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let bytes = outcome.map_err(io::Error::other).flatten();
        match &bytes {
            Ok(bytes) => self.left.start += bytes.len() as u64,
            Err(error) => {
                tracing::warn!(%error, "a file could not be sent to its end");
                self.left.start = self.left.end;
            }
        }
        Poll::Ready(Some(bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.end.saturating_sub(self.left.start))
    }
}
