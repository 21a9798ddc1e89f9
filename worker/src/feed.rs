//! A job's input as its supervisor hands it out: a descriptor at the start, or one for each
//! resource that the worker asks for.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    net::sockopt::{Timeout, set_socket_timeout},
};

use crate::{
    JobInput, JobOptions, Refusal, Remote, Resource, Resources, Rtsp, WorkerError,
    process::Process,
    protocol::{Credentials, Request, Source},
    wire::ProtocolError,
};

/// Longest URL that a worker may ask for: what servers accept at most.
const URL_BYTES_MAX: usize = 8 << 10;
/// Longest silence of an RTSP server: more than the ten seconds after which whoever relays it
/// gives up and knows why.
const SILENCE_MAX: Duration = Duration::from_secs(15);

pub(crate) struct Feed {
    source: Source,
    descriptor: Option<OwnedFd>,
    resources: Option<Box<dyn Resources>>,
}

impl Feed {
    pub fn new(input: JobInput) -> Result<Feed, WorkerError> {
        match input {
            JobInput::File(file) => {
                let metadata = file.metadata().map_err(WorkerError::Spawn)?;
                if !metadata.is_file() {
                    return Err(WorkerError::NotAFile);
                }
                let source = Source::File { len: metadata.len() };
                Ok(Feed { source, descriptor: Some(file.into()), resources: None })
            }
            JobInput::Remote(Remote { url, resources, playlists }) => {
                let source = Source::Remote { url, playlists };
                Ok(Feed { source, descriptor: None, resources: Some(resources) })
            }
            JobInput::Rtsp(Rtsp { socket, url, credentials }) => {
                prepare_connection(&socket).map_err(|error| WorkerError::Io(error.into()))?;
                let credentials =
                    credentials.map(|(user, password)| Credentials { user, password });
                let source = Source::Rtsp { url, credentials };
                Ok(Feed { source, descriptor: Some(socket), resources: None })
            }
        }
    }

    /// Gives the worker its job.
    pub fn start(&mut self, process: &mut Process, options: JobOptions) -> Result<(), WorkerError> {
        let request = Request::Job { source: self.source.clone(), options };
        match self.descriptor.take() {
            Some(descriptor) => process.send_with(&request, descriptor.as_fd()),
            None => Ok(process.backlog().push(&request)?),
        }
    }

    /// Opens what the worker asks for; a refusal ends the job.
    pub fn open(&mut self, process: &mut Process, url: &str, from: u64) -> Result<(), WorkerError> {
        let Some(resources) = &mut self.resources else {
            return Err(ProtocolError::Unexpected("open").into());
        };
        if url.len() > URL_BYTES_MAX {
            let told = format!("too large: a URL of {} bytes", url.len());
            return Err(WorkerError::Refused(Refusal(told)));
        }
        let Resource { bytes, url, size, seekable } =
            resources.open(url, from).map_err(WorkerError::Refused)?;
        make_waiting(bytes.as_fd())?;
        process.send_with(&Request::Resource { url, size, seekable }, bytes.as_fd())
    }
}

/// A worker waits for its server, and not for ever.
fn prepare_connection(socket: &OwnedFd) -> rustix::io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(SILENCE_MAX))?;
    set_socket_timeout(socket, Timeout::Send, Some(SILENCE_MAX))?;
    fcntl_setfl(socket, fcntl_getfl(socket)? - OFlags::NONBLOCK)
}

/// Workers wait in `read`.
fn make_waiting(descriptor: BorrowedFd<'_>) -> Result<(), WorkerError> {
    fcntl_getfl(descriptor)
        .and_then(|flags| fcntl_setfl(descriptor, flags - OFlags::NONBLOCK))
        .map_err(|error| WorkerError::Io(error.into()))
}
