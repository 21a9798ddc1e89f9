//! Progress bars on standard error, drawn only if it is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(120);
const BAR: &str = "{prefix:.bold} [{bar:32.cyan/dim}] {percent:>3}%  {msg}";
const BYTES: &str =
    "{prefix:.bold} [{bar:32.cyan/dim}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
const SPINNER: &str = "{spinner:.cyan} {prefix:.bold} {msg}";

/// Progress through media time.
pub struct MediaProgress {
    bar: ProgressBar,
    start_ms: Option<i64>,
}

impl MediaProgress {
    /// Starts a bar over `duration_ms`, or a spinner if the duration is unknown.
    pub fn start(what: &'static str, duration_ms: Option<i64>) -> MediaProgress {
        let bar = match duration_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|&ms| ms > 0) {
            Some(ms) => ProgressBar::new(ms).with_style(style(BAR)),
            None => ProgressBar::new_spinner().with_style(style(SPINNER)),
        };
        let bar = bar.with_prefix(what);
        bar.enable_steady_tick(REDRAW);
        MediaProgress { bar, start_ms: None }
    }

    /// Moves to `pts_ms` and shows `message`.
    pub fn at(&mut self, pts_ms: i64, message: String) {
        let start = *self.start_ms.get_or_insert(pts_ms.min(0));
        self.bar.set_position(u64::try_from(pts_ms.saturating_sub(start)).unwrap_or(0));
        self.bar.set_message(message);
    }

    /// Removes the bar.
    pub fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// Progress through the frames of a job.
pub struct FrameProgress(ProgressBar);

impl FrameProgress {
    /// Starts a spinner, which becomes a bar once the number of frames is known.
    pub fn start(what: &'static str) -> FrameProgress {
        let bar = ProgressBar::new_spinner().with_style(style(SPINNER)).with_prefix(what);
        bar.enable_steady_tick(REDRAW);
        FrameProgress(bar)
    }

    /// Moves to `done` of `total` and shows `message`.
    pub fn at(&mut self, done: u64, total: Option<u64>, message: String) {
        if let Some(total) = total.filter(|total| self.0.length() != Some(*total)) {
            self.0.set_style(style(BAR));
            self.0.set_length(total);
        }
        self.0.set_position(done);
        self.0.set_message(message);
    }

    /// Runs `print` while the bar is hidden.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Removes the bar.
    pub fn clear(self) {
        self.0.finish_and_clear();
    }
}

/// Starts a bar over the `len` bytes of an upload.
pub fn upload(len: u64) -> ProgressBar {
    let bar = ProgressBar::new(len).with_style(style(BYTES)).with_prefix("uploading");
    bar.enable_steady_tick(REDRAW);
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the templates above are valid")
        .progress_chars("━╸─")
}
