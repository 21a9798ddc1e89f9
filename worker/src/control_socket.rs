//! A worker's end of the control socket: requests come in, replies and questions go out.
//!
//! While a job runs nobody waits for requests, so that any of its threads may ask the server for
//! the bytes of a URL and take the answer: one at a time, in the order in which they ask.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use media::Codec;

use crate::{
    channel::{MessageSender, ReceiveBuffer},
    protocol::{WorkerReply, WorkerRequest},
    wire::{Message, WireError},
};

pub(crate) struct ControlSocket<S> {
    socket: S,
    incoming: Mutex<ReceiveBuffer>,
    outbox: MessageSender<S>,
}

/// The bytes of a resource from one of its bytes on, as the server opened it.
pub(crate) struct OpenedResource {
    /// Ends with the resource, or early.
    pub bytes: File,
    /// URL that they came from, after redirects.
    pub url: String,
    /// Bytes of the whole resource, where they are known.
    pub size: Option<u64>,
    /// Its server can begin at any byte.
    pub seekable: bool,
}

impl<S: AsFd> ControlSocket<S> {
    /// Both are one socket.
    pub fn new(socket: S, same: S) -> ControlSocket<S> {
        ControlSocket { socket, incoming: Mutex::default(), outbox: MessageSender::new(same) }
    }

    pub fn send(&self, message: &impl Message) -> io::Result<()> {
        self.outbox.send(message)
    }

    /// Sends messages one after the other, at once.
    pub fn send_all(&self, messages: &[impl Message]) -> io::Result<()> {
        self.outbox.send_all(messages)
    }

    /// The next request; `None` when the server has closed its end.
    pub fn next(&self) -> io::Result<Option<WorkerRequest>> {
        self.wait(&mut self.incoming())
    }

    /// The descriptor that came with the last request.
    pub fn descriptor(&self) -> io::Result<File> {
        Ok(File::from(self.incoming().descriptor().map_err(io::Error::other)?))
    }

    /// Has the server open `url` from byte `from` on. A refusal is never answered: it ends the job.
    pub fn open(&self, url: &str, from: u64) -> io::Result<OpenedResource> {
        let mut incoming = self.incoming();
        self.send(&WorkerReply::Open { url: url.to_owned(), from })?;
        match self.wait(&mut incoming)? {
            Some(WorkerRequest::Resource { url, size, seekable }) => {
                let bytes = File::from(incoming.descriptor().map_err(io::Error::other)?);
                Ok(OpenedResource { bytes, url, size, seekable })
            }
            Some(_) => Err(io::Error::other(WireError::Unexpected("request"))),
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Has the server start a program that decodes `codec`: the socket that is its input and output,
    /// and the pipe of what it says.
    pub fn program(&self, codec: Codec) -> io::Result<(OwnedFd, OwnedFd)> {
        let mut incoming = self.incoming();
        self.send(&WorkerReply::Program { codec })?;
        let mut end = || match self.wait(&mut incoming)? {
            Some(WorkerRequest::Program) => incoming.descriptor().map_err(io::Error::other),
            Some(_) => Err(io::Error::other(WireError::Unexpected("request"))),
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        Ok((end()?, end()?))
    }

    fn incoming(&self) -> MutexGuard<'_, ReceiveBuffer> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, incoming: &mut ReceiveBuffer) -> io::Result<Option<WorkerRequest>> {
        loop {
            if let Some(request) = incoming.next().map_err(io::Error::other)? {
                return Ok(Some(request));
            }
            if incoming.wait(self.socket.as_fd())? == 0 {
                return Ok(None);
            }
        }
    }
}
