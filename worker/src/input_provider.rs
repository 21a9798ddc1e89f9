//! Supplies a job's input to its worker: a descriptor at the start, or one for each resource that the worker
//! asks for.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    net::sockopt::{Timeout, set_socket_timeout},
};

use crate::{
    JobInput, JobOptions, RemoteMedia, Resource, ResourceError, ResourceOpener, RtspMedia,
    WorkerError,
    process::WorkerProcess,
    protocol::{InputSource, RtspCredentials, WorkerRequest},
    wire::WireError,
};

/// Longest URL that a worker may ask for: the longest that servers accept.
const URL_BYTES_MAX: usize = 8 << 10;
/// Longest silence of an RTSP server: more than the ten seconds after which a relay in front of it gives up
/// and reports the cause.
const SILENCE_MAX: Duration = Duration::from_secs(15);

pub(crate) struct InputProvider {
    source: InputSource,
    descriptor: Option<OwnedFd>,
    /// Handle to a camera's connection, to detect its end.
    camera: Option<OwnedFd>,
    resources: Option<Box<dyn ResourceOpener>>,
    is_endless: bool,
}

impl InputProvider {
    pub fn new(input: JobInput) -> Result<InputProvider, WorkerError> {
        let plain = |source, descriptor| InputProvider {
            source,
            descriptor,
            camera: None,
            resources: None,
            is_endless: false,
        };
        match input {
            JobInput::File(file) => {
                Ok(plain(InputSource::File { len: file_len(&file)? }, Some(file.into())))
            }
            JobInput::Remote(RemoteMedia { url, resources, playlists, is_endless }) => {
                let plain = plain(InputSource::Remote { url, playlists }, None);
                Ok(InputProvider { resources: Some(resources), is_endless, ..plain })
            }
            JobInput::Rtsp(RtspMedia { socket, url, credentials }) => {
                prepare_connection(&socket).map_err(|error| WorkerError::Io(error.into()))?;
                let credentials =
                    credentials.map(|(user, password)| RtspCredentials { user, password });
                let source = InputSource::Rtsp { url, credentials };
                let camera = Some(socket.try_clone().map_err(WorkerError::Io)?);
                Ok(InputProvider { camera, is_endless: true, ..plain(source, Some(socket)) })
            }
        }
    }

    /// Returns true if the source has no end of its own.
    pub fn is_endless(&self) -> bool {
        self.is_endless
    }

    /// Returns true if the camera's end of the connection has been closed for sending.
    pub fn has_ended(&self) -> bool {
        let Some(camera) = &self.camera else { return false };
        let mut end = [PollFd::new(camera, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted poll counts as open; the next call follows soon.
        poll(&mut end, Some(&at_once)).is_ok() && !end[0].revents().is_empty()
    }

    pub fn start(
        &mut self,
        process: &mut WorkerProcess,
        options: JobOptions,
    ) -> Result<(), WorkerError> {
        let request = WorkerRequest::Job { source: self.source.clone(), options };
        match self.descriptor.take() {
            Some(descriptor) => process.send_with(&request, descriptor.as_fd()),
            None => Ok(process.backlog().push(&request)?),
        }
    }

    /// Opens a resource that the worker asks for; a refusal ends the job.
    pub fn open(
        &mut self,
        process: &mut WorkerProcess,
        url: &str,
        from: u64,
    ) -> Result<(), WorkerError> {
        let Some(resources) = &mut self.resources else {
            return Err(WireError::Unexpected("open").into());
        };
        if url.len() > URL_BYTES_MAX {
            let told = format!("too large: a URL of {} bytes", url.len());
            return Err(WorkerError::Refused(ResourceError(told)));
        }
        let Resource { bytes, url, size, seekable } =
            resources.open(url, from).map_err(WorkerError::Refused)?;
        make_waiting(&bytes).map_err(|error| WorkerError::Io(error.into()))?;
        process.send_with(&WorkerRequest::Resource { url, size, seekable }, bytes.as_fd())
    }
}

pub(crate) fn file_len(file: &File) -> Result<u64, WorkerError> {
    let metadata = file.metadata().map_err(WorkerError::Spawn)?;
    if metadata.is_file() { Ok(metadata.len()) } else { Err(WorkerError::NotAFile) }
}

/// Makes a worker's reads and writes block, for [`SILENCE_MAX`] at most.
fn prepare_connection(socket: &OwnedFd) -> rustix::io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(SILENCE_MAX))?;
    set_socket_timeout(socket, Timeout::Send, Some(SILENCE_MAX))?;
    make_waiting(socket)
}

/// Makes reads and writes of the descriptor block, as workers expect.
fn make_waiting(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    fcntl_setfl(descriptor, fcntl_getfl(descriptor)? - OFlags::NONBLOCK)
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::Shutdown, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn a_camera_has_ended_when_it_sends_no_more_whatever_waits_to_be_read() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (socket, url) = (theirs.into(), String::new());
        let feed = InputProvider::new(JobInput::Rtsp(RtspMedia { socket, url, credentials: None }));
        let feed = feed.expect("a socket");
        (&ours).write_all(b"packet").expect("room");
        assert!(feed.is_endless() && !feed.has_ended());
        ours.shutdown(Shutdown::Write).expect("open");
        assert!(feed.has_ended());
    }
}
