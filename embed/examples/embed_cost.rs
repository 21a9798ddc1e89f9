//! Milliseconds per picture of the built-in model, alone and in batches, on one thread and on all.
//!
//!     cargo run --release -p embed --example embed_cost -- path/to/libonnxruntime.so
#![allow(missing_docs)]

use std::{path::PathBuf, time::Instant};

use embed::{EmbeddingModel, ModelInputImage, OnnxConfig, OnnxModel};

/// Repetitions, of which the fastest and the median are printed.
const ROUNDS: usize = 60;

fn main() {
    let runtime = std::env::args_os().nth(1).map(PathBuf::from);
    println!("threads  batch  fastest ms  median ms   (a picture)");
    for threads in [1, 0] {
        let config = OnnxConfig { runtime: runtime.clone(), threads, ..OnnxConfig::default() };
        let mut model = match OnnxModel::load(&config) {
            Ok(model) => model,
            Err(error) => return eprintln!("{error}"),
        };
        for batch in [1, 4, 16] {
            let pictures: Vec<ModelInputImage> =
                (0..batch).map(|number| picture(&model, number)).collect();
            let mut times: Vec<f64> = (0..ROUNDS)
                .map(|_| {
                    let started = Instant::now();
                    let embedded = model.embed(&pictures).map_or(0, |embeddings| embeddings.len());
                    assert_eq!(embedded, pictures.len(), "the model fails");
                    started.elapsed().as_secs_f64() * 1000.0 / f64::from(batch)
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{threads:7}  {batch:5}  {:10.2}  {:9.2}", times[0], times[ROUNDS / 2]);
        }
    }
}

fn picture(model: &OnnxModel, number: u32) -> ModelInputImage {
    let side = model.side();
    let rgb: Vec<u8> = (0..side * side * 3)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(number * 977) >> 13) as u8)
        .collect();
    ModelInputImage::new(side, rgb).expect("a square of its side")
}
