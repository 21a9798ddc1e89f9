//! Prints the cost a picture: measuring, for the reference and the measurer in use, and signals.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{hint::black_box, time::Instant};

use gate::{
    AHEAD, CpuMeasurer, FrameStamp, Measurer, ReferenceMeasurer, SignalWindow,
    conformance::{Fill, Picture},
};

mod cost;

fn main() {
    cost::rows(&mut ReferenceMeasurer, 25);
    cost::rows(&mut CpuMeasurer::new(), 25);
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
