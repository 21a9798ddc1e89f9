//! Cuts a span out of a file, in a worker of its own: demuxes the file and muxes another one there.
//!
//! The bytes are sent as messages; the worker blocks while the server does not read them, so neither side
//! holds more than a few.

use std::{
    fs::File,
    io::{self, Write},
    mem,
    ops::{ControlFlow, Range},
    os::fd::AsFd,
    sync::Arc,
    time::Instant,
};

use decode::ExcerptStart;

use crate::{
    CancelToken, Supervisor, WorkerError, WorkerLimits,
    control_socket::ControlSocket,
    input_provider::file_len,
    process::{WorkerLifetime, WorkerProcess},
    protocol::{InputSource, WorkerReply, WorkerRequest},
    source::{self, Place, SourceErrorCell},
    watchdog::Watchdog,
    wire::WireError,
};

/// Span of a file to cut out.
#[derive(Debug)]
pub struct ExcerptSpec {
    /// The file, which must be a regular one.
    pub file: File,
    /// Span in milliseconds of media time.
    pub span: Range<i64>,
    /// Limits of the worker's resources.
    pub limits: WorkerLimits,
}

/// Events of an excerpt, in the order of the variants.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ExcerptEvent {
    /// Description of the excerpt.
    Begins(ExcerptStart),
    /// The next bytes, a bounded number.
    Bytes(#[serde(with = "crate::wire::bytes")] Vec<u8>),
    /// The excerpt is complete.
    Ended,
}

/// Cuts a span out of the file whose descriptor comes next on `line`; runs in the worker.
pub(crate) fn cut(len: u64, span: Range<i64>, line: &Arc<ControlSocket>) -> io::Result<()> {
    let out = Box::new(Told(Arc::clone(line)));
    let begin = |start| -> Box<dyn Write + Send> {
        // If the server has gone, sending the first bytes fails as well.
        line.send(&WorkerReply::Excerpt(ExcerptEvent::Begins(start))).ok();
        out
    };
    let trouble = SourceErrorCell::default();
    let opened = source::open(InputSource::File { len }, line, &trouble, &Place::of(None));
    let cut = opened.and_then(|demuxer| Ok(demuxer.excerpt(span, begin)?));
    match trouble.explain(cut) {
        Ok(()) => line.send(&WorkerReply::Excerpt(ExcerptEvent::Ended)),
        Err(fault) => line.send(&WorkerReply::Failed(fault)),
    }
}

/// Sends the bytes to the server as messages.
struct Told(Arc<ControlSocket>);

impl Write for Told {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(&WorkerReply::Excerpt(ExcerptEvent::Bytes(bytes.to_vec())))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Supervisor {
    /// Cuts a span out of a file in a worker of its own; returns after the last event, or with an error.
    ///
    /// Time spent in `on_event` counts for the limit of the whole job only; `Break` cancels. The cancel token
    /// is checked between events.
    pub fn excerpt(
        &self,
        spec: ExcerptSpec,
        cancel: &CancelToken,
        on_event: &mut dyn FnMut(ExcerptEvent) -> ControlFlow<()>,
    ) -> Result<(), WorkerError> {
        let ExcerptSpec { file, span, limits } = spec;
        let len = file_len(&file)?;
        let cpu_seconds = limits.wall.as_secs();
        let life = WorkerLifetime::Job { threads: 1, cpu_seconds, is_endless: false };
        let mut process = WorkerProcess::spawn(&self.program.plain(), &limits, life)?.0;
        let request = WorkerRequest::Excerpt { len, from_ms: span.start, to_ms: span.end };
        process.send_with(&request, file.as_fd())?;
        let mut watchdog = Watchdog::new(&limits);
        let mut has_begun = false;
        loop {
            if cancel.is_cancelled() {
                return Err(WorkerError::Cancelled);
            }
            match process.poll(None)? {
                Some(WorkerReply::Excerpt(event)) => {
                    let begins = matches!(event, ExcerptEvent::Begins(_));
                    if mem::replace(&mut has_begun, true) == begins {
                        return Err(WireError::Unexpected("excerpt").into());
                    }
                    watchdog.heard(matches!(event, ExcerptEvent::Bytes(_)));
                    let (told, is_last) = (Instant::now(), event == ExcerptEvent::Ended);
                    if on_event(event).is_break() {
                        return Err(WorkerError::Cancelled);
                    }
                    if is_last {
                        return Ok(());
                    }
                    watchdog.resume(told);
                }
                Some(WorkerReply::Failed(fault)) => return Err(fault.into()),
                Some(_) => return Err(WireError::Unexpected("reply").into()),
                None => {}
            }
            watchdog.check()?;
        }
    }
}
