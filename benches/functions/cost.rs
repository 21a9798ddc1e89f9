//! Cost of measuring, as rows of a table: shared by the examples of every backend.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock, which the gate must not")]

use std::{hint::black_box, time::Instant};

use gate::{
    MeasureBackend,
    conformance::{Fill, TestPicture},
};
use media::{Frame, SampleFormat};

/// Pictures of a batch: 1080p ones do not all fit in the cache together.
const BATCH: usize = 8;

/// Prints nanoseconds a frame of each size and storage: the least of `rounds` batches.
pub fn rows(measurer: &mut dyn MeasureBackend, rounds: usize) {
    println!("{:<14} {:>10} {:>6} {:>12}", "measurer", "size", "bits", "ns/frame");
    for (width, height) in [(1280, 720), (1920, 1080), (3840, 2160)] {
        for (bits, sample) in [(8, SampleFormat::U8), (10, SampleFormat::U16 { shift: 2 })] {
            let picture = TestPicture { sample, padding: 64, ..TestPicture::new(width, height) };
            let frames: Vec<Frame> = (0..BATCH as u64)
                .map(|seed| TestPicture { fill: Fill::Random(seed), ..picture }.frame())
                .collect();
            let nanos = least(measurer, &frames, rounds);
            let size = format!("{width}x{height}");
            println!("{:<14} {size:>10} {bits:>6} {nanos:>12}", measurer.name());
        }
    }
}

/// Returns the nanoseconds a frame of `frames` in one batch: the least of `rounds`.
pub fn least(measurer: &mut dyn MeasureBackend, frames: &[Frame], rounds: usize) -> u128 {
    let mut out = Vec::new();
    let round = |_| {
        out.clear();
        let start = Instant::now();
        measurer.measure(black_box(frames), &mut out).expect("measurable");
        start.elapsed().as_nanos() / frames.len() as u128
    };
    (0..rounds).map(round).min().unwrap_or_default()
}
