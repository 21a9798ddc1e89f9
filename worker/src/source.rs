//! Sources of a worker's media: a file's descriptor, or URLs that the server opens.
//!
//! Promises that a fault of a source, as opposed to the network, ends the job with an error that names it.
//! Opens no connection itself; the server reports faults of the network.

mod encrypted;
mod error;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hls;
mod playlist;
mod remote;
mod rtsp;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use decode::{DemuxLimits, Demuxer};
use error::RemoteSourceError;
pub use hls::{PLAYLIST_BYTES_MAX, PLAYLISTS_MAX};
pub use playlist::SEGMENTS_MAX;

use crate::{JobFault, Resume, control_socket::ControlSocket, protocol::InputSource};

/// A worker's control socket, by which the server opens URLs for it.
type Line = Arc<ControlSocket>;

/// Faults of a source found while libav was reading it, which would take them for the end of the media.
#[derive(Clone, Default)]
pub(crate) struct SourceErrorCell(Arc<Mutex<Found>>);

#[derive(Default)]
struct Found {
    certain: Option<JobFault>,
    suspected: Option<JobFault>,
}

impl SourceErrorCell {
    /// Keeps the first fault, which ends the job; returns the error for libav.
    fn note(&self, error: impl Into<JobFault>) -> io::Error {
        let fault = error.into();
        let answer = io::Error::other(fault.to_string());
        self.found().certain.get_or_insert(fault);
        answer
    }

    /// Like `note`, but the fault ends the job only if libav fails: the media before it may do as a result.
    fn suspect(&self, error: impl Into<JobFault>) -> io::Error {
        let fault = error.into();
        let answer = io::Error::other(fault.to_string());
        self.found().suspected.get_or_insert(fault);
        answer
    }

    /// Replaces the outcome of a job by the fault of its source, if one is known.
    pub fn explain<T>(&self, outcome: Result<T, JobFault>) -> Result<T, JobFault> {
        let Found { certain, suspected } = std::mem::take(&mut *self.found());
        match (certain, outcome) {
            (Some(fault), _) => Err(fault),
            (None, Err(fault)) => Err(suspected.unwrap_or(fault)),
            (None, Ok(result)) => Ok(result),
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Position in a playlist, shared by clones; reported when it changes.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Number of the segment to continue with, from an earlier job.
    begin: Option<u64>,
    next: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
    /// Number of the segment to continue with if this job fails: that at `begin` cannot be read.
    passed: Arc<AtomicU64>,
}

impl Place {
    /// No position is known.
    const NOWHERE: u64 = u64::MAX;

    /// Starts at the position that an earlier job reached.
    pub fn of(resume: Option<&Resume>) -> Place {
        let begin = resume.and_then(|resume| resume.segment);
        let [next, told, passed] = [(); 3].map(|()| Arc::new(AtomicU64::new(Place::NOWHERE)));
        Place { begin, next, told, passed }
    }

    /// Notes that the segment before `next` is being read.
    fn is_before(&self, next: u64) {
        self.next.store(next, Relaxed);
    }

    /// Notes that the job that follows continues with `next`.
    fn passes_to(&self, next: u64) {
        self.passed.store(next, Relaxed);
    }

    /// Returns the segment with which the job that follows continues, if segments are passed over.
    pub fn passed(&self) -> Option<u64> {
        Some(self.passed.load(Relaxed)).filter(|next| *next != Place::NOWHERE)
    }

    /// Returns the number of the next segment if it has changed since the last call.
    pub fn news(&self) -> Option<u64> {
        let next = self.next.load(Relaxed);
        (self.told.swap(next, Relaxed) != next).then_some(next)
    }
}

/// Opens the container in `source`; its descriptor, if it has one, is the next on the line.
pub(crate) fn open(
    source: InputSource,
    line: &Line,
    trouble: &SourceErrorCell,
    place: &Place,
) -> Result<Demuxer, JobFault> {
    let limits = DemuxLimits::default();
    match source {
        InputSource::File { len } => {
            let file = line.descriptor().map_err(RemoteSourceError::Asking)?;
            Ok(Demuxer::open(Box::new(file::FileInput::new(file, len)), limits)?)
        }
        InputSource::Remote { url, playlists } => {
            let mut input = remote::RemoteInput::open(Arc::clone(line), &url, trouble.clone())?;
            if playlists && input.is_playlist()? {
                let (line, trouble) = (Arc::clone(line), trouble.clone());
                let media = hls::HlsReader::open(line, input, trouble, place.clone())?;
                let demuxer = if media.is_live() {
                    Demuxer::open_live(Box::new(media), limits)?.endless()
                } else {
                    Demuxer::open(Box::new(media), limits)?
                };
                return Ok(demuxer.joined());
            }
            if place.begin.is_some() {
                return Err(RemoteSourceError::Gone.into());
            }
            if input.is_endless() {
                return Ok(Demuxer::open_live(Box::new(input), limits)?);
            }
            Ok(Demuxer::open(Box::new(input), limits)?)
        }
        InputSource::Rtsp { url, credentials } => {
            let socket = line.descriptor().map_err(RemoteSourceError::Asking)?;
            rtsp::open(socket.into(), url, credentials, trouble)
        }
    }
}
