//! An object that is read as a file: each wait has a bound, and an early end is an error.

use std::io;

use bytes::{Buf, Bytes};
use futures_util::{StreamExt, stream::BoxStream};
use object_store::GetResult;
use timeline::{RemoteError, RemoteFault};
use tokio::{runtime::Handle, time::timeout};

use crate::{ANSWER_TIME, failure::told};

/// Reads an object from its start to its end; blocks.
pub(crate) struct Reader {
    runtime: Handle,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    /// Bytes that arrived and were not read.
    piece: Bytes,
    /// Bytes that did not arrive.
    left: u64,
}

impl Reader {
    pub fn new(opened: GetResult, runtime: Handle) -> Reader {
        let left = opened.meta.size;
        Reader { runtime, stream: opened.into_stream(), piece: Bytes::new(), left }
    }

    /// Waits for bytes; there are none at the end.
    fn fill(&mut self) -> io::Result<()> {
        while self.piece.is_empty() && self.left > 0 {
            let next =
                self.runtime.block_on(async { timeout(ANSWER_TIME, self.stream.next()).await });
            self.piece = match next {
                Ok(Some(Ok(piece))) => piece,
                Ok(Some(Err(error))) => return Err(broken(told(&error))),
                Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            };
            self.left = self.left.saturating_sub(self.piece.len() as u64);
        }
        Ok(())
    }
}

impl io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.fill()?;
        let read = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..read]);
        Ok(read)
    }
}

fn broken(error: RemoteError) -> io::Error {
    let kind = match error.fault {
        RemoteFault::Slow => io::ErrorKind::TimedOut,
        RemoteFault::Unreachable => io::ErrorKind::ConnectionAborted,
        RemoteFault::Denied => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
