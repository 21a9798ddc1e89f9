//! A worker's end of the control socket: receives requests, sends replies and questions.
//!
//! No thread waits for requests while a job runs, so any of its threads may ask the server for the bytes of a
//! URL and read the answer: one thread at a time, under the lock of `incoming`.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use media::Codec;

use crate::{
    Resource,
    channel::{MessageSender, ReceiveBuffer},
    protocol::{WorkerReply, WorkerRequest},
    wire::{Message, WireError},
};

pub(crate) struct ControlSocket<S> {
    socket: S,
    incoming: Mutex<ReceiveBuffer>,
    outbox: MessageSender<S>,
}

impl<S: AsFd> ControlSocket<S> {
    /// Creates the end from two handles of one socket.
    pub fn new(socket: S, same: S) -> ControlSocket<S> {
        ControlSocket { socket, incoming: Mutex::default(), outbox: MessageSender::new(same) }
    }

    pub fn send(&self, message: &impl Message) -> io::Result<()> {
        self.outbox.send(message)
    }

    /// Sends messages that no other thread's message comes between.
    pub fn send_all(&self, messages: &[impl Message]) -> io::Result<()> {
        self.outbox.send_all(messages)
    }

    /// Waits for the next request; `None` once the server has closed its end.
    pub fn next(&self) -> io::Result<Option<WorkerRequest>> {
        self.wait(&mut self.incoming())
    }

    /// Returns the descriptor that came with the last request.
    pub fn descriptor(&self) -> io::Result<File> {
        Ok(File::from(self.incoming().descriptor().map_err(io::Error::other)?))
    }

    /// Has the server open `url` from byte `from` on. A refusal is not answered: the server ends the job.
    pub fn open(&self, url: &str, from: u64) -> io::Result<Resource<File>> {
        let mut incoming = self.incoming();
        self.send(&WorkerReply::Open { url: url.to_owned(), from })?;
        match self.wait(&mut incoming)? {
            Some(WorkerRequest::Resource { url, size, seekable }) => {
                let bytes = File::from(incoming.descriptor().map_err(io::Error::other)?);
                Ok(Resource { bytes, url, size, seekable })
            }
            Some(_) => Err(io::Error::other(WireError::Unexpected("request"))),
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Has the server start a program that decodes `codec`. Returns the socket that is its stdin and stdout,
    /// and the pipe of its stderr.
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
