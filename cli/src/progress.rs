//! Progress bars on standard error, drawn only if it is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two drawings.
pub const REDRAW: Duration = Duration::from_millis(120);
const BAR: &str = "{prefix:.bold} [{bar:32.cyan/dim}] {percent:>3}%  {msg}";
const BYTES: &str =
    "{prefix:.bold} [{bar:32.cyan/dim}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
const SPINNER: &str = "{spinner:.cyan} {prefix:.bold} {msg}";

/// Starts a bar up to `total`, or a spinner if that is unknown or 0.
pub fn start(what: &'static str, total: Option<u64>) -> ProgressBar {
    let bar = match total.filter(|&total| total > 0) {
        Some(total) => ProgressBar::new(total).with_style(style(BAR)),
        None => ProgressBar::new_spinner().with_style(style(SPINNER)),
    };
    ticking(bar.with_prefix(what))
}

/// Moves to `at` and shows `message`; a spinner becomes a bar once a total is known.
pub fn show(bar: &ProgressBar, at: u64, total: Option<u64>, message: String) {
    if let Some(total) = total.filter(|total| bar.length() != Some(*total)) {
        bar.set_style(style(BAR));
        bar.set_length(total);
    }
    bar.set_position(at);
    bar.set_message(message);
}

/// Starts a bar over the `len` bytes of an upload.
pub fn upload(len: u64) -> ProgressBar {
    ticking(ProgressBar::new(len).with_style(style(BYTES)).with_prefix("uploading"))
}

fn ticking(bar: ProgressBar) -> ProgressBar {
    bar.enable_steady_tick(REDRAW);
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the templates above are valid")
        .progress_chars("━╸─")
}
