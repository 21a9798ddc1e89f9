//! The built-in model, and synthetic pictures.

use embed::{ModelInputImage, OnnxConfig, OnnxModel};

use crate::onnx_runtime::runtime;

/// Number of scenes.
pub const SCENES: u32 = 4;

const SIDE: u32 = 224;

/// Loads the built-in model; `None` if `test` is skipped.
pub fn load(test: &str) -> Option<OnnxModel> {
    let config = OnnxConfig { runtime: Some(runtime(test)?), ..OnnxConfig::default() };
    Some(OnnxModel::load(&config).expect("the built-in model runs"))
}

/// Returns scene `number`: a gradient with five discs, each sample passed through `change` with a random
/// number.
pub fn scene(number: u32, change: impl Fn(f64, u32) -> f64) -> ModelInputImage {
    let mut random = number.wrapping_mul(2_654_435_761) | 1;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random
    };
    let corners: Vec<f64> = (0..12).map(|_| f64::from(next() % 200)).collect();
    let discs: Vec<[f64; 6]> = (0..5)
        .map(|_| std::array::from_fn(|at| f64::from(next() % if at == 2 { 60 } else { 224 })))
        .collect();
    let mut rgb = Vec::with_capacity((SIDE * SIDE * 3) as usize);
    for y in 0..SIDE {
        for x in 0..SIDE {
            let (right, down) = (f64::from(x) / f64::from(SIDE), f64::from(y) / f64::from(SIDE));
            for channel in 0..3 {
                let corner = |at: usize| corners[at * 3 + channel];
                let above = corner(0) * (1.0 - right) + corner(1) * right;
                let below = corner(2) * (1.0 - right) + corner(3) * right;
                let mut sample = above * (1.0 - down) + below * down;
                for [across, along, radius, colour @ ..] in &discs {
                    let away = (f64::from(x) - across).hypot(f64::from(y) - along);
                    if away < 10.0 + radius {
                        sample = colour[channel];
                    }
                }
                rgb.push(change(sample, next()).round().clamp(0.0, 255.0) as u8);
            }
        }
    }
    ModelInputImage::new(SIDE, rgb).expect("a square")
}
