//! Prints the cost of measuring one picture, for the reference and the measurer in use.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{hint::black_box, time::Instant};

use gate::{CpuMeasurer, Measurer, ReferenceMeasurer, conformance::Picture};
use media::Sample;

fn main() {
    println!("{:<14} {:>10} {:>6} {:>12}", "measurer", "size", "bits", "ns/frame");
    let measurers: [&mut dyn Measurer; 2] = [&mut ReferenceMeasurer, &mut CpuMeasurer::new()];
    for measurer in measurers {
        for (width, height) in [(1280, 720), (1920, 1080), (3840, 2160)] {
            for (bits, sample) in [(8, Sample::U8), (10, Sample::U16 { shift: 2 })] {
                let picture = Picture { sample, padding: 64, ..Picture::new(width, height) };
                let nanos = cost(measurer, picture);
                let size = format!("{width}x{height}");
                println!("{:<14} {size:>10} {bits:>6} {nanos:>12}", measurer.name());
            }
        }
    }
}

/// Least nanoseconds a frame, over pictures that do not all fit in the cache together.
fn cost(measurer: &mut dyn Measurer, picture: Picture) -> u128 {
    let frames: Vec<_> = (0..8).filter_map(|_| picture.frame()).collect();
    let mut out = Vec::new();
    (0..25)
        .map(|_| {
            out.clear();
            let start = Instant::now();
            measurer.measure(black_box(&frames), &mut out).expect("measurable");
            start.elapsed().as_nanos() / frames.len() as u128
        })
        .min()
        .unwrap_or_default()
}
