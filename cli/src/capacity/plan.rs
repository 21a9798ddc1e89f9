//! The arithmetic of a fleet: each line is a product of arguments, measured constants and earlier lines.

use serde::Serialize;

use super::FleetArgs;
use crate::output::grouped;

/// Core milliseconds per frame of a file, kilobytes per still, and Mb/s of a camera, by picture rows.
const MEASURED: [(&str, f64, f64, f64); 3] =
    [("360", 0.81, 37.0, 0.5), ("720", 2.9, 99.0, 1.5), ("1080", 6.3, 112.0, 4.0)];
/// Further core milliseconds per live frame: 0.08 cores of the server for 24 sessions at 30 frames/s.
const LIVE_MS: f64 = 0.11;
/// Memory in the worker of a session with stills, views and clips, in MiB.
const SESSION_MIB: f64 = 7.4;
/// Bytes per frame in the signal column of its node, and in frames.parquet.
const COLUMN_BYTES: f64 = 64.0;
const PARQUET_BYTES: f64 = 33.0;
/// Memory that a server reserves for a session, in MiB.
const RESERVED_MIB: f64 = 25.0;
/// Events per still, its own and those of markers, and bytes per event in the log.
const EVENTS: f64 = 3.0;
const EVENT_BYTES: f64 = 400.0;
/// Core milliseconds that Ray adds to a file.
const RAY_MS: f64 = 20.0;
/// Frames per second of an H100 that decodes and measures 1080p HEVC, eight files at once.
const H100: f64 = 4_729.0;
/// Seconds in a day, and hours in a month.
const DAY: f64 = 86_400.0;
const MONTH: f64 = 730.0;

/// A figure of the plan.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub about: &'static str,
    pub what: &'static str,
    pub arithmetic: String,
    pub value: f64,
    pub unit: &'static str,
}

/// Resource that does not grow with the number of nodes.
#[derive(Clone, Debug, Serialize)]
pub struct Shared {
    pub what: &'static str,
    pub arithmetic: String,
    /// Known or assumed capacity.
    pub most: f64,
    /// Share of the capacity used by this fleet, by ten and by a hundred of it.
    pub at: [f64; 3],
}

/// Factor of a product, with its unit.
#[derive(Clone, Copy)]
enum Factor {
    Times(f64, &'static str),
    Over(f64, &'static str),
    /// Power of ten between units; not shown.
    Scale(f64),
}
use Factor::{Over, Scale, Times};

/// Lines of one part of the plan.
struct Lines {
    about: &'static str,
    lines: Vec<Line>,
}

impl Lines {
    /// Adds a line for a product; returns its value.
    fn add(&mut self, what: &'static str, unit: &'static str, factors: &[Factor]) -> f64 {
        let (mut value, mut arithmetic) = (1.0, String::new());
        for factor in factors {
            let (sign, number, of) = match *factor {
                Times(number, of) => ("x", number, of),
                Over(number, of) => ("/", number, of),
                Scale(number) => {
                    value *= number;
                    continue;
                }
            };
            let number_of = if of == "%" { number / 100.0 } else { number };
            value = if sign == "x" { value * number_of } else { value / number_of };
            if !arithmetic.is_empty() {
                arithmetic.push_str(&format!(" {sign} "));
            }
            let space = if ["", "%"].contains(&of) { "" } else { " " };
            arithmetic.push_str(&format!("{}{space}{of}", figure(number)));
        }
        self.lines.push(Line { about: self.about, what, arithmetic, value, unit });
        value
    }

    /// Adds a line for a product, rounded up to a whole number.
    fn add_whole(&mut self, what: &'static str, factors: &[Factor]) -> f64 {
        let value = self.add(what, "", factors).ceil();
        self.lines.last_mut().expect("added").value = value;
        value
    }

    fn add_sum(&mut self, what: &'static str, unit: &'static str, parts: &[f64]) {
        let arithmetic = parts.iter().map(|part| figure(*part)).collect::<Vec<_>>().join(" + ");
        let value = parts.iter().sum();
        self.lines.push(Line { about: self.about, what, arithmetic, value, unit });
    }
}

/// Returns milliseconds per frame, kilobytes per still and megabits per second, as given or measured.
fn costs(given: &FleetArgs) -> (f64, f64, f64) {
    let found = MEASURED.iter().find(|row| row.0 == given.height);
    let (_, frame, still, stream) = *found.expect("the argument is one of the table");
    (given.frame_ms.unwrap_or(frame), given.still_kb.unwrap_or(still), stream)
}

/// Formats three significant digits, with digit grouping.
pub fn figure(value: f64) -> String {
    let digits = if value >= 1.0 { (2 - value.log10().floor() as i32).max(0) as usize } else { 3 };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let whole = grouped(whole.parse().unwrap_or(u64::MAX));
    let part = part.trim_end_matches('0');
    if part.is_empty() { whole } else { format!("{whole}.{part}") }
}

/// Computes machines, disks and traffic of the cameras.
pub fn cameras(given: &FleetArgs) -> Vec<Line> {
    let (frame_ms, still_kb, stream) = costs(given);
    let (count, days) = (given.cameras as f64, Times(given.retention, "days"));
    let cameras = Times(count, "cameras");
    let mut of = Lines { about: "cameras", lines: Vec::new() };
    let frames = of.add("frames", "/s", &[cameras, Times(given.fps, "frames/s")]);
    let frame = frame_ms + LIVE_MS;
    let cores = of.add("cores", "", &[Times(frames, "frames/s"), Times(frame, "ms"), Scale(1e-3)]);
    let node = [Times(cores, "cores"), Over(given.cores, "cores"), Over(given.load, "%")];
    let nodes = of.add_whole("nodes", &node);
    let h100 = Over(H100, "frames/s of 1080p HEVC");
    of.add_whole("H100s instead of cores", &[Times(frames, "frames/s"), h100]);
    let node = Over(nodes, "nodes");
    let each = of.add("cameras of a node", "", &[cameras, node]);
    let sessions = [Times(each, "sessions"), Times(SESSION_MIB, "MiB"), Scale(1.0 / 1024.0)];
    of.add("memory of a node", "GiB", &sessions);
    // With this budget a node's cores are full before its memory: it refuses sessions that would overload it.
    let carried = [Times(given.cores, "cores"), Over(given.fps, "frames/s"), Over(frame, "ms")];
    let carried =
        of.add("sessions that a node carries", "", &[&carried[..], &[Scale(1e3)]].concat());
    let reserved = [Times(carried, "sessions"), Times(RESERVED_MIB, "MiB"), Scale(1.0 / 1024.0)];
    of.add("memory budget of a node", "GiB", &reserved);
    let video = of.add("video in", "Gb/s", &[cameras, Times(stream, "Mb/s"), Scale(1e-3)]);
    of.add("video of a node", "Gb/s", &[Times(video, "Gb/s"), node]);
    let kept = [cameras, Times(given.stills, "an hour"), Over(3600.0, "s")];
    let stills = of.add("stills", "/s", &kept);
    let put = [Times(stills, "stills/s"), Times(still_kb, "kB"), Scale(1e-3)];
    let put = of.add("store traffic", "MB/s", &put);
    let store = of.add("store", "TB", &[Times(put, "MB/s"), Times(DAY, "s"), days, Scale(1e-6)]);
    let column = [Times(frames, "frames/s"), Times(COLUMN_BYTES, "B"), Times(DAY, "s"), days, node];
    of.add("columns of a node", "GB", &[&column[..], &[Scale(1e-9)]].concat());
    let events = of.add("events", "/s", &[Times(stills, "stills/s"), Times(EVENTS, "")]);
    let log = [Times(events, "events/s"), Times(EVENT_BYTES, "B"), Times(DAY, "s"), days, node];
    of.add("log of a node", "GB", &[&log[..], &[Scale(1e-9)]].concat());
    let rows = [Times(events, "events/s"), Times(DAY, "s"), Scale(1e-6)];
    of.add("mirrored events", "million/day", &rows);
    let described = [Times(stills, "stills/s"), Times(given.described, "%")];
    let told = of.add("descriptions", "/s", &described);
    let models = [Times(told, "/s"), Over(given.gpu_descriptions, "/s of a GPU")];
    let gpus = of.add_whole("GPUs for models", &models);
    let month = [Times(MONTH, "h"), Over(count, "cameras")];
    let price = |factors: &[Factor]| [factors, &month[..]].concat();
    let machines = price(&[Times(nodes * given.cores, "cores"), Times(given.core_price, "")]);
    let models = price(&[Times(gpus, "GPUs"), Times(given.gpu_price, "")]);
    let disks = [Times(store, "TB"), Times(given.terabyte_price, ""), Over(count, "cameras")];
    let parts =
        [("nodes' price", &machines[..]), ("GPUs' price", &models), ("store's price", &disks)];
    let parts = parts.map(|(what, factors)| of.add(what, "/month", factors));
    of.add_sum("price of a camera", "/month", &parts);
    of.lines
}

/// Computes machines and results of the recorded files.
pub fn archive(given: &FleetArgs) -> Vec<Line> {
    let (frame_ms, still_kb, stream) = costs(given);
    let count = given.hours as f64;
    let (hours, days) = (Times(count, "hours"), Over(given.days, "days"));
    let mut of = Lines { about: "files", lines: Vec::new() };
    let rate = Times(given.sampled.unwrap_or(given.fps), "frames/s");
    let frames = of.add("frames", "billion", &[hours, Times(3600.0, "s"), rate, Scale(1e-9)]);
    let all = Times(frames, "billion");
    let work = [all, Times(frame_ms, "ms"), Scale(1e9 / 3.6e6)];
    let work = of.add("work", "core-hours", &work);
    let ray = [Times(count, "files of an hour"), Times(RAY_MS, "ms"), Scale(1.0 / 3.6e6)];
    of.add("Ray's work", "core-hours", &ray);
    let work = Times(work, "core-hours");
    let nodes = [work, days, Over(24.0, "h"), Over(given.cores, "cores"), Over(given.load, "%")];
    of.add_whole("nodes", &nodes);
    let h100 = Over(H100, "frames/s of 1080p HEVC");
    of.add_whole("H100s instead of cores", &[all, days, Over(DAY, "s"), h100, Scale(1e9)]);
    let read = [hours, Times(3600.0, "s"), Times(stream, "Mb/s"), Scale(1.0 / 8e6)];
    let read = of.add("video read", "TB", &read);
    of.add("store traffic", "Gb/s", &[Times(read, "TB"), days, Over(DAY, "s"), Scale(8e3)]);
    of.add("Parquet", "TB", &[all, Times(PARQUET_BYTES, "B"), Scale(1e-3)]);
    let stills = of.add("stills", "billion", &[hours, Times(given.stills, "an hour"), Scale(1e-9)]);
    of.add("size of the stills", "TB", &[Times(stills, "billion"), Times(still_kb, "kB")]);
    let price = [work, Over(given.load, "%"), Times(given.core_price, ""), Over(count, "hours")];
    of.add("price of an hour", "", &price);
    of.lines
}

/// Returns the resources shared by all nodes, with the share in use; the one closest to its limit first.
pub fn shared(given: &FleetArgs) -> Vec<Shared> {
    let lines = cameras(given);
    let of = |what| lines.iter().find(|line| line.what == what).map_or(0.0, |line| line.value);
    let files = given.hours as f64 / (given.days * DAY);
    let back = given.cameras as f64 / 60.0;
    let uses = [
        ("one PostgreSQL, all events", of("events"), 10_000.0, "rows/s"),
        ("one PostgreSQL, descriptions", of("descriptions"), 10_000.0, "rows/s"),
        ("one prefix of an S3 bucket", of("stills"), 3_500.0, "stills/s"),
        ("one driver of Ray", files, 170.0, "files/s"),
        ("tags of nodes", of("nodes"), 65_536.0, "nodes"),
        ("one proxy, all cameras back in a minute", back, 5_000.0, "offers/s"),
    ];
    let mut shared = uses.map(|(what, used, most, unit)| {
        let at = [1.0, 10.0, 100.0].map(|times| used * times / most);
        let arithmetic = format!("{} {unit} of {}", figure(used), figure(most));
        Shared { what, arithmetic, most, at }
    });
    shared.sort_by(|one, other| other.at[0].total_cmp(&one.at[0]));
    shared.to_vec()
}
