//! A worker's end of the control socket: receives requests, sends replies and questions.
//!
//! No thread waits for requests while a job runs, so any of its threads may ask the server for the bytes of a
//! URL and read the answer: one thread at a time, under the lock of `incoming`.

use std::{
    fs::File,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    slice,
    sync::{Mutex, MutexGuard, PoisonError},
};

use media::Codec;

use crate::{
    Resource,
    channel::{KEPT_BYTES, ReceiveBuffer, send_all},
    protocol::{WorkerReply, WorkerRequest},
    wire::{WireError, encode},
};

pub(crate) struct ControlSocket {
    socket: BorrowedFd<'static>,
    incoming: Mutex<ReceiveBuffer>,
    outgoing: Mutex<Vec<u8>>,
}

impl ControlSocket {
    pub fn new(socket: BorrowedFd<'static>) -> ControlSocket {
        ControlSocket { socket, incoming: Mutex::default(), outgoing: Mutex::default() }
    }

    pub fn send(&self, reply: &WorkerReply) -> io::Result<()> {
        self.send_all(slice::from_ref(reply))
    }

    /// Sends replies that no other thread's reply comes between; blocks while the server does not read.
    pub fn send_all(&self, replies: &[WorkerReply]) -> io::Result<()> {
        let mut bytes = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.clear();
        for reply in replies {
            encode(reply, &mut bytes).map_err(io::Error::other)?;
        }
        let sent = send_all(self.socket, &bytes);
        if bytes.capacity() > KEPT_BYTES {
            *bytes = Vec::new();
        }
        sent
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
            if incoming.wait(self.socket)? == 0 {
                return Ok(None);
            }
        }
    }
}
