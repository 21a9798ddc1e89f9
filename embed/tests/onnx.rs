//! Tests of the built-in model under a real ONNX Runtime: golden distances, its generator, and errors.
#![allow(missing_docs)]

#[path = "../../tests/support/onnx_runtime.rs"]
mod onnx_runtime;

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../tests/support/python.rs"]
mod python;

#[path = "../../tests/support/skip.rs"]
mod skip;

use std::{fs, path::Path, process::Command};

use embed::{
    EmbedError, EmbeddingModel, ExecutionProvider, ModelInputImage, OnnxConfig, OnnxModel,
};
use media::{ErrorKind, Score};

use crate::onnx_runtime::runtime;

/// Number of scenes.
const SCENES: u32 = 4;

const SIDE: u32 = 224;

/// Loads the built-in model; `None` if `test` is skipped.
fn load(test: &str) -> Option<OnnxModel> {
    let config = OnnxConfig { runtime: Some(runtime(test)?), ..OnnxConfig::default() };
    Some(OnnxModel::load(&config).expect("the built-in model runs"))
}

/// Returns scene `number`: a gradient with five discs, each sample passed through `change` with a random
/// number.
fn scene(number: u32, change: impl Fn(f64, u32) -> f64) -> ModelInputImage {
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

#[test]
fn the_descriptor_is_what_its_generator_writes() {
    let test = "the_descriptor_is_what_its_generator_writes";
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("model");
    let Some(bin) = python::installed(test, &dir.join("requirements.txt")) else { return };
    let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("descriptor.onnx");
    let mut generator = Command::new(bin.join("python3"));
    generator.arg(dir.join("make_descriptor.py")).arg(&written);
    python::run(&mut generator).expect("it runs");
    let same = fs::read(&written).expect("written")
        == fs::read(dir.join("descriptor.onnx")).expect("in the repository");
    assert!(same, "make_descriptor.py writes other bytes: run it on descriptor.onnx");
}

#[test]
fn what_changes_little_stays_near_and_other_scenes_stay_far() {
    let Some(mut model) = load("what_changes_little_stays_near_and_other_scenes_stay_far") else {
        return;
    };
    assert_eq!((model.side(), model.dimensions(), model.provider()), (224, 257, "cpu"));
    let near = Score::from_millionths(10_000);
    let far = Score::from_millionths(100_000);
    for one in 0..SCENES {
        let pictures = [
            scene(one, |sample, _| sample),
            scene(one, |sample, noise| sample + f64::from(noise % 17) - 8.0),
            scene(one, |sample, _| sample * 1.05),
            scene((one + 1) % SCENES, |sample, _| sample),
        ];
        let embeddings = model.embed(&pictures).expect("embedded");
        let distance = |to: usize| embeddings[0].distance(&embeddings[to]).expect("one model");
        assert_eq!(distance(0), Score::ZERO, "scene {one}");
        assert!(distance(1) <= near, "scene {one}, noise: {}", distance(1).as_f64());
        assert!(distance(2) <= near, "scene {one}, light: {}", distance(2).as_f64());
        assert!(distance(3) >= far, "scene {one} and the next: {}", distance(3).as_f64());
    }
}

/// Rounding differs between processors, but not in the third decimal.
#[test]
fn distances_of_known_pictures_are_golden() {
    let Some(mut model) = load("distances_of_known_pictures_are_golden") else { return };
    let pictures: Vec<ModelInputImage> =
        (0..SCENES).map(|one| scene(one, |sample, _| sample)).collect();
    let embeddings = model.embed(&pictures).expect("embedded");
    let thousandths: Vec<u32> = embeddings
        .windows(2)
        .map(|pair| pair[0].distance(&pair[1]).expect("one model").millionths() / 1000)
        .collect();
    for (got, golden) in thousandths.iter().zip([739, 1000, 802]) {
        assert!(got.abs_diff(golden) <= 1, "{thousandths:?}");
    }
}

#[test]
fn a_batch_gives_what_its_pictures_give_alone() {
    let Some(mut model) = load("a_batch_gives_what_its_pictures_give_alone") else { return };
    let pictures: Vec<ModelInputImage> =
        (0..SCENES).map(|one| scene(one, |sample, _| sample)).collect();
    let together = model.embed(&pictures).expect("embedded");
    for (picture, embedding) in pictures.iter().zip(&together) {
        let alone = model.embed(std::slice::from_ref(picture)).expect("embedded");
        assert_eq!(alone[0].distance(embedding), Some(Score::ZERO));
    }
    assert_eq!(model.embed(&[]).expect("nothing asked"), []);
    let small = ModelInputImage::new(2, vec![0; 12]).expect("four pixels");
    assert_eq!(model.embed(&[small]), Err(EmbedError::Side { side: 224, got: 2 }));
    for flat in [0, 255] {
        let flat = ModelInputImage::new(224, vec![flat; 224 * 224 * 3]).expect("a picture");
        assert!(model.embed(&[flat]).is_ok(), "a flat picture has a direction too");
    }
}

#[test]
fn a_runtime_that_is_missing_or_something_else_is_said() {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    for (library, problem) in [
        (Path::new("/nowhere/libonnxruntime.so"), "/nowhere/libonnxruntime.so"),
        (&text, "Cargo.toml"),
        (Path::new("libc.so.6"), "does not export"),
    ] {
        let config = OnnxConfig { runtime: Some(library.to_owned()), ..OnnxConfig::default() };
        let error = OnnxModel::load(&config).expect_err("no runtime");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn a_model_that_cannot_be_used_is_refused_by_name() {
    let Some(library) = runtime("a_model_that_cannot_be_used_is_refused_by_name") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let descriptor = Path::new(env!("CARGO_MANIFEST_DIR")).join("model/descriptor.onnx");
    let sound = r#"{"input_size": 224, "mean": [0, 0, 0], "std": [1, 1, 1]}"#;
    let model = fs::read(descriptor).expect("in the repository");
    let cases: [(&str, Option<&str>, &[u8], &str); 6] = [
        ("sound", Some(sound), &model, ""),
        ("bare", None, &model, "bare.json"),
        ("cut", Some(sound), &model[..model.len() / 2], "does not run on cpu"),
        (
            "small",
            Some(r#"{"input_size":112,"mean":[0,0,0],"std":[1,1,1]}"#),
            &model,
            "[-1, 3, 224, 224]",
        ),
        (
            "unnamed",
            Some(r#"{"input_size":224,"mean":[0,0,0],"std":[1,1,1],"output":"x"}"#),
            &model,
            "no such output",
        ),
        ("empty", Some(sound), b"", "does not run on cpu"),
    ];
    for (name, json, bytes, problem) in cases {
        let path = dir.path().join(name).with_extension("onnx");
        fs::write(&path, bytes).expect("room");
        if let Some(json) = json {
            fs::write(path.with_extension("json"), json).expect("room");
        }
        let config = OnnxConfig {
            runtime: Some(library.clone()),
            model: Some(path),
            ..OnnxConfig::default()
        };
        let said = OnnxModel::load(&config).err().map(|error| error.to_string());
        let said = said.unwrap_or_default();
        assert!(said.contains(problem) && said.is_empty() == problem.is_empty(), "{name}: {said}");
    }
}

#[test]
fn a_provider_that_is_not_there_is_an_error_and_no_fallback() {
    let Some(library) = runtime("a_provider_that_is_not_there_is_an_error_and_no_fallback") else {
        return;
    };
    for provider in [ExecutionProvider::Cuda, ExecutionProvider::TensorRt] {
        let config =
            OnnxConfig { runtime: Some(library.clone()), provider, ..OnnxConfig::default() };
        let error = OnnxModel::load(&config).expect_err("PyPI's library has no GPU in it");
        assert!(error.to_string().contains("does not run on"), "{error}");
    }
}

#[test]
fn a_second_library_in_one_process_is_refused() {
    let Some(library) = runtime("a_second_library_in_one_process_is_refused") else { return };
    let config = |runtime| OnnxConfig { runtime, ..OnnxConfig::default() };
    OnnxModel::load(&config(Some(library.clone()))).expect("the first");
    OnnxModel::load(&config(Some(library))).expect("the same again");
    OnnxModel::load(&config(None)).expect("the one that is there");
    let other = OnnxModel::load(&config(Some("libother.so".into()))).expect_err("another");
    assert_eq!(other.kind(), ErrorKind::Conflict);
}
