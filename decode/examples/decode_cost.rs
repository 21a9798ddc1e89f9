//! Cost of decoding a file, with a sink that only counts: frames, CPU seconds, wall seconds.
//!
//! `decode_cost FILE [--threads N] [--fps R] [--no-plan] [--max N] [--pts]`; compare with
//! `ffmpeg -i FILE -f null -` in alternating pairs.

use std::{error::Error, fs::File, ops::ControlFlow, path::PathBuf, thread, time::Instant};

use decode::{
    Demuxer, FileOptions, FileReport, FrameSink, Limits, Sampling, SegmentInfo, SinkStop,
    decode_file,
};
use media::{Frame, PixelsLost, Rate};

struct Times(Vec<i64>);

impl FrameSink for Times {
    type Output = Vec<i64>;

    fn begin(&mut self, _segment: SegmentInfo) {
        self.0.clear();
    }

    fn frame(&mut self, _index: u64, frame: Frame) -> ControlFlow<SinkStop> {
        self.0.push(frame.pts.ticks);
        ControlFlow::Continue(())
    }

    fn end(&mut self) -> Result<Vec<i64>, PixelsLost> {
        Ok(std::mem::take(&mut self.0))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = FileOptions {
        sampling: Sampling::Every,
        max_frames: u64::MAX,
        threads: thread::available_parallelism()?.get(),
        plan: true,
    };
    let mut path = None;
    let mut print_pts = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--threads" => options.threads = value()?.parse()?,
            "--max" => options.max_frames = value()?.parse()?,
            "--fps" => {
                let rate = Rate::from_f64(value()?.parse()?).ok_or("no such rate")?;
                options.sampling = Sampling::Fixed(rate);
            }
            "--no-plan" => options.plan = false,
            "--pts" => print_pts = true,
            _ => path = Some(PathBuf::from(arg)),
        }
    }
    let path = path.ok_or("which file?")?;
    let begun = Instant::now();
    let demuxer = Demuxer::open(Box::new(File::open(&path)?), Limits::default())?;
    let mut segments = 0;
    let report = decode_file(
        demuxer,
        &options,
        || Times(Vec::new()),
        |times| {
            segments += 1;
            if print_pts {
                times.iter().for_each(|ticks| println!("{ticks}"));
            }
            ControlFlow::Continue(())
        },
    )?;
    let cpu = cpu_seconds()?;
    let wall = begun.elapsed().as_secs_f64();
    let FileReport { decoder, frames, source_frames, truncated, damaged_packets, .. } = report;
    eprintln!(
        "{decoder}: {frames} of {source_frames} frames in {segments} segments, truncated \
         {truncated}, {damaged_packets} damaged; CPU {cpu:.2} s, wall {wall:.3} s"
    );
    Ok(())
}

/// User and system time of this process so far (proc_pid_stat(5): fields 14 and 15, in 1/100 s).
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("malformed stat")?;
    let ticks = |index: usize| -> Result<f64, Box<dyn Error>> {
        Ok(fields.split_whitespace().nth(index).ok_or("malformed stat")?.parse()?)
    };
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}
