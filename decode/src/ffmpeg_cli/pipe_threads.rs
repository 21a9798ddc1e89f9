//! Two threads that serve a program's stdin and stdout, so that neither side blocks the other for ever.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use super::{FfmpegPipes, stderr_scan::StderrScanner};
use crate::{
    DemuxLimits,
    demux::check_extent,
    ffi::{AvFrame, NutFrames},
};

/// Coded pictures that may be queued for the program before the sender blocks.
const CODED_MAX: usize = 32;
/// Most coded pictures queued while decoded ones wait: the socket holds hundreds of small ones.
const CODED_LATE_MAX: usize = 1024;
/// Most bytes of coded pictures queued while decoded ones wait.
const CODED_LATE_BYTES_MAX: usize = 32 << 20;
/// Most decoded pictures queued.
const RAW_MAX: usize = 4;

/// Reason for giving up a program that reports damage.
const COMPLAINED: &str = "it reports damage";

pub(super) struct PipeThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    hang_up: Option<Box<dyn FnOnce() -> io::Result<()> + Send>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    coded: VecDeque<Vec<u8>>,
    coded_ended: bool,
    raw: VecDeque<AvFrame>,
    /// Outcome of the program's output; `None` while it runs.
    ended: Option<Result<(), String>>,
    /// True after the owner was dropped.
    given_up: bool,
}

impl PipeThreads {
    /// Starts the threads; `header` is written first.
    pub(super) fn start(
        conversation: FfmpegPipes,
        header: Vec<u8>,
        limits: DemuxLimits,
    ) -> io::Result<PipeThreads> {
        let FfmpegPipes { input, end, output, said, hang_up } = conversation;
        let shared = Arc::new(Shared::default());
        let (threads, hang_up) = (Vec::new(), Some(hang_up));
        let mut talk = PipeThreads { shared: Arc::clone(&shared), threads, hang_up };
        let (to, from) = (Arc::clone(&shared), shared);
        let says = move || tell(&to, input, end, &header);
        talk.threads.push(thread::Builder::new().name("program-in".to_owned()).spawn(says)?);
        let hears = move || hear(&from, output, StderrScanner::new(said), limits);
        talk.threads.push(thread::Builder::new().name("program-out".to_owned()).spawn(hears)?);
        Ok(talk)
    }

    /// Queues a coded picture, once there is room or a decoded picture to be taken first.
    pub(super) fn send(&self, coded: Vec<u8>) {
        let mut state = self.shared.lock();
        while state.coded.len() >= CODED_MAX && state.raw.is_empty() && state.ended.is_none() {
            state = self.shared.wait(state);
        }
        state.coded.push_back(coded);
        if state.is_behind() {
            state.coded.clear();
            state.end(Err("it takes no pictures and gives some".to_owned()));
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Signals that no coded picture follows.
    pub(super) fn send_end(&self) {
        self.shared.lock().coded_ended = true;
        self.shared.changed.notify_all();
    }

    /// Returns the next picture, or the reason that the program failed; `None` if there is none yet, or the
    /// program has ended normally. Blocks only after [`PipeThreads::send_end`].
    pub(super) fn receive(&self) -> Result<Option<AvFrame>, String> {
        let mut state = self.shared.lock();
        loop {
            if let Some(picture) = state.raw.pop_front() {
                self.shared.changed.notify_all();
                return Ok(Some(picture));
            }
            match &state.ended {
                Some(Ok(())) if !state.coded_ended => {
                    return Err("it ended before its input did".to_owned());
                }
                Some(ended) => return ended.clone().map(|()| None),
                None if state.coded_ended => state = self.shared.wait(state),
                None => return Ok(None),
            }
        }
    }
}

/// Ends both threads: closes the program's stdin and stops reading its stdout.
impl Drop for PipeThreads {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.given_up = true;
            state.coded_ended = true;
            state.coded.clear();
        }
        self.shared.changed.notify_all();
        // A program whose output is not read takes no input, so either thread may block.
        if self.hang_up.take().is_some_and(|hang_up| hang_up().is_err()) {
            // Detached threads stay until the program is killed from outside.
            return;
        }
        for thread in self.threads.drain(..) {
            // A thread's panic was already reported.
            thread.join().ok();
        }
    }
}

impl State {
    /// Sets the outcome; the first one counts.
    fn end(&mut self, ended: Result<(), String>) {
        self.ended.get_or_insert(ended);
    }

    fn is_behind(&self) -> bool {
        let count = self.coded.len();
        let bytes = || self.coded.iter().map(Vec::len).sum::<usize>();
        count > CODED_LATE_MAX || (count > CODED_MAX && bytes() > CODED_LATE_BYTES_MAX)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(
    shared: &Shared,
    mut input: Box<dyn Write + Send>,
    end: impl FnOnce() -> io::Result<()>,
    header: &[u8],
) {
    match tell_pictures(shared, input.as_mut(), header).and_then(|()| end()) {
        // If the program is gone, its output gives the reason.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            shared.lock().end(Err(format!("it cannot be written to: {error}")));
            shared.changed.notify_all();
        }
        _ => {}
    }
}

/// Writes coded pictures as they are queued, up to the end.
fn tell_pictures(shared: &Shared, input: &mut dyn Write, header: &[u8]) -> io::Result<()> {
    input.write_all(header)?;
    loop {
        let mut state = shared.lock();
        let coded = loop {
            match state.coded.pop_front() {
                Some(coded) => break coded,
                None if state.coded_ended => return Ok(()),
                None => state = shared.wait(state),
            }
        };
        drop(state);
        shared.changed.notify_all();
        input.write_all(&coded)?;
    }
}

fn hear(
    shared: &Shared,
    output: Box<dyn Read + Send>,
    mut complaints: StderrScanner,
    limits: DemuxLimits,
) {
    let ended = hear_pictures(shared, output, &mut complaints, limits).map_err(|reason| {
        complaints.heard();
        match complaints.last_words() {
            words if words.is_empty() => reason,
            words => format!("{reason}: {words}"),
        }
    });
    shared.lock().end(ended);
    shared.changed.notify_all();
}

fn hear_pictures(
    shared: &Shared,
    output: Box<dyn Read + Send>,
    complaints: &mut StderrScanner,
    limits: DemuxLimits,
) -> Result<(), String> {
    let mut pictures = NutFrames::open(output).map_err(|error| error.to_string())?;
    while let Some(picture) = pictures.next().map_err(|error| error.to_string())? {
        if let Some(extent) = picture.extent() {
            check_extent(extent, limits).map_err(|error| error.to_string())?;
        }
        // libav reports damage before it outputs the picture.
        if complaints.heard() {
            return Err(COMPLAINED.to_owned());
        }
        let mut state = shared.lock();
        while state.raw.len() >= RAW_MAX && !state.given_up {
            state = shared.wait(state);
        }
        if state.given_up {
            return Ok(());
        }
        state.raw.push_back(picture);
        drop(state);
        shared.changed.notify_all();
    }
    if complaints.heard() {
        return Err(COMPLAINED.to_owned());
    }
    if pictures.ended_whole() { Ok(()) } else { Err("it ended early".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Shutdown,
        os::unix::net::UnixStream,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn an_input_that_cannot_be_ended_is_a_failure_and_no_wait() {
        for may_hang_up in [true, false] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let end = ours.try_clone().expect("a descriptor");
            let conversation = FfmpegPipes {
                input: Box::new(io::sink()),
                end: Box::new(|| Err(io::ErrorKind::PermissionDenied.into())),
                output: Box::new(ours),
                said: Box::new(io::empty()),
                hang_up: Box::new(move || match may_hang_up {
                    true => end.shutdown(Shutdown::Both),
                    false => Err(io::ErrorKind::PermissionDenied.into()),
                }),
            };
            let talk = PipeThreads::start(conversation, Vec::new(), DemuxLimits::default())
                .expect("starts");
            talk.send(vec![1]);
            talk.send_end();
            let Err(reason) = talk.receive() else { panic!("it goes on") };
            assert!(reason.starts_with("it cannot be written to: "), "{reason}");
            let asked = Instant::now();
            drop(talk);
            assert!(asked.elapsed() < Duration::from_secs(60), "waits for its output");
            drop(theirs);
        }
    }
}
