//! Prints the cost a picture: measuring, for the reference and the measurer in use, and signals.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{hint::black_box, time::Instant};

use gate::{
    AHEAD, CpuMeasurer, FrameStamp, Measurer, ReferenceMeasurer, SignalWindow,
    conformance::{Fill, Picture},
};
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
    println!("signals of a calm picture {:>25}", window_cost(32));
    println!("signals where every frame is a cut {:>16}", window_cost(1));
}

/// Nanoseconds a frame for deriving signals, where `shot` pictures in a row are alike.
fn window_cost(shot: usize) -> u128 {
    let frames: Vec<_> = (0..32)
        .filter_map(|n| {
            let fill = Fill::Random((n / shot) as u64);
            Picture { fill, ..Picture::new(640, 360) }.frame()
        })
        .collect();
    let mut measured = Vec::new();
    CpuMeasurer::new().measure(&frames, &mut measured).expect("measurable");
    let mut window = SignalWindow::new(AHEAD);
    let mut index = 0;
    let pass = |_| {
        let start = Instant::now();
        for measurements in &measured {
            let pts_ms = 33 * index as i64;
            let stamp = FrameStamp { frame_index: index, source_frame_index: index, pts_ms };
            window.push(stamp, measurements);
            while let Some(signal) = window.poll() {
                black_box(signal);
            }
            index += 1;
        }
        start.elapsed().as_nanos() / measured.len() as u128
    };
    (0..25).map(pass).min().unwrap_or_default()
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
