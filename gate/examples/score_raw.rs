//! Prints the signal and decision of each frame of raw 4:2:0 video on standard input.
//!
//! `ffmpeg -i X -f rawvideo -pix_fmt yuv420p - | score_raw WIDTH HEIGHT FPS`

use std::io::{BufReader, stdin};

use gate::{AHEAD, CpuMeasurer, FrameStamp, Gate, GateConfig, Measurer, SignalWindow};
use media::Extent;

#[path = "../tests/gate/raw.rs"]
mod raw;

fn main() {
    let arguments: Vec<f64> = std::env::args().skip(1).flat_map(|text| text.parse()).collect();
    let [width, height, fps] = arguments[..] else {
        eprintln!("usage: score_raw WIDTH HEIGHT FPS < video.yuv");
        std::process::exit(2);
    };
    let extent = Extent::new(width as u32, height as u32).expect("a size in pixels");
    let mut source = BufReader::new(stdin().lock());
    let mut measurer = CpuMeasurer::new();
    let mut window = SignalWindow::new(AHEAD);
    let mut gate = Gate::new(GateConfig::default());
    let mut measured = Vec::new();
    println!("frame pts_ms luma scene flicker ghosting noise activity hash reason selected");
    for index in 0.. {
        let frame = raw::read_frame(&mut source, extent, raw::PLANAR, index);
        match &frame {
            Some(frame) => {
                measured.clear();
                measurer.measure(std::slice::from_ref(frame), &mut measured).expect("measurable");
                let pts_ms = (index as f64 * 1000.0 / fps) as i64;
                let stamp = FrameStamp { frame_index: index, source_frame_index: index, pts_ms };
                window.push(stamp, &measured[0]);
            }
            None => window.flush(),
        }
        while let Some(signal) = window.poll() {
            let decision = gate.offer(&signal);
            println!(
                "{} {} {:.3} {:.3} {:.3} {:.3} {:.3} {:.6} {:016x} {} {}",
                signal.frame_index,
                signal.pts_ms,
                signal.luma_mean.as_f64(),
                signal.scene_score.unwrap_or_default().as_f64(),
                signal.flicker_score.as_f64(),
                signal.ghosting_score.as_f64(),
                signal.noise_variance_score.as_f64(),
                signal.activity.unwrap_or_default().score.as_f64(),
                signal.perceptual_hash,
                decision.reason.as_str(),
                decision.selected,
            );
        }
        if frame.is_none() {
            break;
        }
    }
}
