//! Logs as text on stdout and as JSON lines on stderr; spans to a collector.
//!
//! Logging never blocks: each sink has a bounded queue and a thread, and lines that do not fit are
//! dropped, counted and reported once there is room. Without a collector, spans cost nothing.

mod otlp;

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, filter_fn},
    fmt,
    layer::{Filter, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::base::metrics::Metrics;

pub use otlp::continue_trace;

/// Target of the exported spans, which logs leave out.
pub const SPANS: &str = "sightline::spans";

/// Maximum number of lines in the queue of a sink.
const QUEUE_LINES: usize = 8192;
/// Maximum number of bytes in the queue of a sink.
const QUEUE_BYTES: usize = 4 << 20;
/// Maximum wait for the queues to drain at the end of the process.
const FLUSH: Duration = Duration::from_secs(1);

/// Error of starting the logs.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TelemetryError {
    #[error("log filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("logging is set up twice: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
    #[error("cannot open a log sink: {0}")]
    Sink(#[from] io::Error),
}

/// On drop, ends the export of spans, then waits up to a second for the queued lines to be written.
#[must_use]
pub struct FlushGuard {
    lines: Vec<Arc<Queued>>,
    spans: Option<otlp::OtlpExporter>,
}

impl Drop for FlushGuard {
    fn drop(&mut self) {
        // Before the wait, as the last export may log that it failed.
        drop(self.spans.take());
        let started = Instant::now();
        let waits = || self.lines.iter().any(|queued| queued.bytes.load(Ordering::Acquire) > 0);
        while waits() && started.elapsed() < FLUSH {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

media::named! {
    /// Formats in which the log is written.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum LogFormat {
        /// Text to stdout and JSON to stderr; if stderr is a terminal, text only.
        #[default]
        Both = "both",
        /// Text to stdout.
        Text = "text",
        /// JSON to stderr.
        Json = "json",
    }
}

impl LogFormat {
    /// Returns two flags: text is written, JSON is written.
    fn copies(self, stderr_is_terminal: bool) -> (bool, bool) {
        let json = self == LogFormat::Json || self == LogFormat::Both && !stderr_is_terminal;
        (self != LogFormat::Json, json)
    }
}

/// Starts the logs, with events that match `filter`, in `format`; exports spans to `collector` if it is
/// given.
pub fn start(
    filter: &str,
    format: LogFormat,
    collector: Option<&str>,
    metrics: &Arc<Metrics>,
) -> Result<FlushGuard, TelemetryError> {
    // Descriptors of their own, so that a blocked writer does not hold the locks of stdout and stderr.
    let text = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let json = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let (is_text, is_json) = format.copies(json.is_terminal());
    let start = |name, to, report| Sink::start(name, to, metrics, report);
    let lost_text = |lost| format!("{lost} log lines were dropped\n");
    let lost_json = |lost| {
        format!("{{\"level\":\"WARN\",\"message\":\"log lines were dropped\",\"lost\":{lost}}}\n")
    };
    let text = is_text.then(|| start("log-text", text, lost_text)).transpose()?;
    let json = is_json.then(|| start("log-json", json, lost_json)).transpose()?;
    let lines = text.iter().chain(&json).map(|sink| Arc::clone(&sink.queued)).collect();
    let filters = (events(filter)?, events(filter)?);
    let text = text.map(|sink| {
        let layer = fmt::layer().with_ansi(false).with_writer(move || sink.clone());
        layer.with_filter(filters.0)
    });
    let json = json.map(|sink| {
        let layer = fmt::layer().json().flatten_event(true).with_writer(move || sink.clone());
        layer.with_filter(filters.1)
    });
    let (tracer, spans) = collector.map(|at| otlp::start(at, metrics)).transpose()?.unzip();
    let ours = filter_fn(|metadata| metadata.is_span() && metadata.target() == SPANS);
    let exported = tracer.map(|tracer| {
        let layer =
            tracing_opentelemetry::layer().with_tracer(tracer).with_tracked_inactivity(false);
        layer.with_location(false).with_threads(false).with_target(false).with_filter(ours)
    });
    tracing_subscriber::registry().with(exported).with(text).with(json).try_init()?;
    Ok(FlushGuard { lines, spans })
}

/// Returns a filter that passes the events that match `filter`, and no spans.
fn events<S: Subscriber>(filter: &str) -> Result<impl Filter<S> + use<S>, TelemetryError> {
    let events = filter_fn(|metadata| metadata.is_event());
    Ok(EnvFilter::try_new(filter)?.and(events.with_max_level_hint(LevelFilter::TRACE)))
}

/// Size of a sink's queue, and the number of lines lost.
struct Queued {
    bytes: AtomicUsize,
    lost: AtomicU64,
    metrics: Arc<Metrics>,
}

/// Log sink that accepts whole lines and never blocks.
#[derive(Clone)]
struct Sink {
    lines: SyncSender<Vec<u8>>,
    queued: Arc<Queued>,
}

impl Sink {
    fn start(
        name: &str,
        to: impl Write + Send + 'static,
        metrics: &Arc<Metrics>,
        report: fn(u64) -> String,
    ) -> io::Result<Sink> {
        let (lines, waiting) = sync_channel(QUEUE_LINES);
        let metrics = Arc::clone(metrics);
        let queued =
            Arc::new(Queued { bytes: AtomicUsize::new(0), lost: AtomicU64::new(0), metrics });
        let drained = Arc::clone(&queued);
        let drain = move || drain(&waiting, &drained, to, report);
        thread::Builder::new().name(name.to_owned()).spawn(drain)?;
        Ok(Sink { lines, queued })
    }
}

fn drain(
    waiting: &Receiver<Vec<u8>>,
    queued: &Queued,
    mut to: impl Write,
    report: fn(u64) -> String,
) {
    for line in waiting {
        let lost = queued.lost.swap(0, Ordering::Relaxed);
        let mut written = Ok(());
        if lost > 0 {
            written = to.write_all(report(lost).as_bytes());
        }
        if written.and_then(|()| to.write_all(&line)).is_err() {
            queued.lost.fetch_add(lost + 1, Ordering::Relaxed);
            queued.metrics.log_lines_dropped.inc();
        }
        queued.bytes.fetch_sub(line.len(), Ordering::Release);
    }
}

impl Write for Sink {
    /// Called by the formatter with one whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let before = self.queued.bytes.fetch_add(line.len(), Ordering::AcqRel);
        let fits = before + line.len() <= QUEUE_BYTES;
        if !fits || self.lines.try_send(line.to_vec()).is_err() {
            self.queued.bytes.fetch_sub(line.len(), Ordering::AcqRel);
            self.queued.lost.fetch_add(1, Ordering::Relaxed);
            self.queued.metrics.log_lines_dropped.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn a_terminal_is_spared_the_copy_for_machines() {
        for (name, terminal, copies) in [
            ("both", false, (true, true)),
            ("both", true, (true, false)),
            ("text", false, (true, false)),
            ("json", false, (false, true)),
            ("json", true, (false, true)),
        ] {
            let format = LogFormat::from_name(name).expect("a name");
            assert_eq!(format.copies(terminal), copies, "{name}, terminal {terminal}");
        }
        assert_eq!(LogFormat::from_name("xml"), None);
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted() {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let metrics = Arc::new(Metrics::new());
        let report = |lost| format!("lost {lost}\n");
        let mut sink = Sink::start("log-test", full, &metrics, report).expect("a thread");
        for _ in 0..2 {
            sink.write_all(b"a line\n").expect("never fails");
        }
        while sink.queued.bytes.load(Ordering::Acquire) > 0 {
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(metrics.log_lines_dropped.get(), 2);
    }

    #[test]
    fn a_pipe_that_nobody_reads_loses_lines_and_holds_nobody() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let metrics = Arc::new(Metrics::new());
        let report = |lost| format!("lost {lost}\n");
        let mut sink = Sink::start("log-test", writer, &metrics, report).expect("a thread");
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let sent = 2 * QUEUE_BYTES / line.len();
        for _ in 0..sent {
            sink.write_all(&line).expect("never fails");
        }
        let lost = metrics.log_lines_dropped.get() as usize;
        assert!((sent / 4..sent).contains(&lost), "{lost} of {sent} lines lost");
        drop(sink);
        let lines = BufReader::new(reader).lines().map(|line| line.expect("readable"));
        let told = |line: &String| line.strip_prefix("lost ")?.parse::<usize>().ok();
        let (kept, reports): (Vec<_>, Vec<_>) = lines.partition(|line| told(line).is_none());
        assert_eq!((kept.len(), reports.iter().filter_map(told).sum()), (sent - lost, lost));
    }
}
