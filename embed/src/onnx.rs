//! ONNX image encoders, run by ONNX Runtime, whose library is loaded on first use.
//!
//! Promises to run on the execution provider that was asked for: each one is tried alone with one picture,
//! its failure is an error, and the one in use is reported. Takes any CLIP, SigLIP or DINO image encoder.

mod runtime;

use std::{
    error::Error,
    fmt::Display,
    path::{Path, PathBuf},
};

use media::ErrorKind;
use ort::{
    session::{Session, builder::SessionBuilder},
    value::{Tensor, TensorElementType, ValueType},
};

use crate::{
    embedder::EmbeddingModel,
    embedding::{EmbedError, Embedding, ModelInputImage},
    settings::PreprocessConfig,
};

/// Built-in model and its settings; `embed/model/make_descriptor.py` writes them.
const DESCRIPTOR: (&[u8], &[u8]) =
    (include_bytes!("../model/descriptor.onnx"), include_bytes!("../model/descriptor.json"));

/// File name of ONNX Runtime's library if no path is given; the loader searches for it.
pub const RUNTIME_LIBRARY: &str = "libonnxruntime.so";

/// Model to run, and its settings.
#[derive(Clone, Debug, Default)]
pub struct OnnxConfig {
    /// ONNX Runtime's library, 1.20 or newer; `None` is [`RUNTIME_LIBRARY`]. A process loads one library for
    /// all models.
    pub runtime: Option<PathBuf>,
    /// The model, with its settings in a JSON of the same name; `None` is the built-in one.
    pub model: Option<PathBuf>,
    /// Execution provider to run the model on.
    pub provider: ExecutionProvider,
    /// Threads that one batch may use on a CPU; 0 for one per core.
    pub threads: usize,
}

media::named! {
    /// Execution provider that runs a model.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ExecutionProvider {
        /// The first that works of TensorRT, CUDA and the CPU.
        #[default]
        Auto = "auto",
        /// The CPU.
        Cpu = "cpu",
        /// An NVIDIA GPU; needs an ONNX Runtime that was built with CUDA.
        Cuda = "cuda",
        /// An NVIDIA GPU through TensorRT.
        TensorRt = "tensorrt",
    }
}

impl ExecutionProvider {
    /// Returns the providers to try, in order.
    fn candidates(self) -> &'static [ExecutionProvider] {
        match self {
            ExecutionProvider::Auto => {
                &[ExecutionProvider::TensorRt, ExecutionProvider::Cuda, ExecutionProvider::Cpu]
            }
            ExecutionProvider::Cpu => &[ExecutionProvider::Cpu],
            ExecutionProvider::Cuda => &[ExecutionProvider::Cuda],
            ExecutionProvider::TensorRt => &[ExecutionProvider::TensorRt],
        }
    }
}

/// Reason that a model cannot be run.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct OnnxError {
    kind: ErrorKind,
    text: String,
}

impl OnnxError {
    /// The model or its settings are wrong.
    fn wrong(text: String) -> OnnxError {
        OnnxError { kind: ErrorKind::InvalidInput, text }
    }

    /// The model's inputs or outputs are not those of an image encoder that this service supports.
    fn shape(problem: &str) -> OnnxError {
        OnnxError::wrong(format!("not a usable image encoder: {problem}"))
    }

    /// The model cannot be opened, or does not run on `provider`.
    fn session(provider: ExecutionProvider, reason: impl Display) -> OnnxError {
        let text = format!("the model does not run on {}: {reason}", provider.as_str());
        OnnxError { kind: ErrorKind::Unavailable, text }
    }

    /// Returns the kind of the failure: wrong models and settings are invalid input, other failures are not.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Loaded model that has embedded at least one picture.
#[derive(Debug)]
pub struct OnnxModel {
    session: Session,
    settings: PreprocessConfig,
    input: String,
    output: String,
    /// True if the model takes only one picture at a time.
    single: bool,
    provider: &'static str,
    /// Reasons for which the providers tried before failed.
    passed_over: Vec<String>,
    dimensions: usize,
}

impl OnnxModel {
    /// Loads the library and the model, and embeds one test picture.
    pub fn load(config: &OnnxConfig) -> Result<OnnxModel, OnnxError> {
        let settings = match &config.model {
            None => PreprocessConfig::parse(DESCRIPTOR.1).map_err(OnnxError::wrong),
            Some(path) => {
                let json = path.with_extension("json");
                let wrong =
                    |problem: String| OnnxError::wrong(format!("{}: {problem}", json.display()));
                PreprocessConfig::read(&json).map_err(wrong)
            }
        }?;
        let environment = runtime::environment(config.runtime.as_deref())?;
        let mut failures = Vec::new();
        for provider in config.provider.candidates() {
            let opened = runtime::builder(&environment, *provider, config.threads)
                .and_then(|mut builder| open(&mut builder, config.model.as_deref(), *provider));
            match opened.and_then(|session| OnnxModel::try_out(session, &settings, *provider)) {
                Ok(model) => {
                    let OnnxModel { provider, dimensions, .. } = model;
                    tracing::info!(provider, dimensions, "embedding model loaded");
                    for reason in &failures {
                        tracing::warn!(reason, "an execution provider is passed over");
                    }
                    return Ok(OnnxModel { passed_over: failures, ..model });
                }
                Err(error) if config.provider.candidates().len() == 1 => return Err(error),
                Err(error) => failures.push(error.to_string()),
            }
        }
        Err(OnnxError::session(config.provider, failures.join("; ")))
    }

    /// Returns the dimensions of the embeddings.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the reasons for which the providers tried before the one in use failed.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    fn try_out(
        session: Session,
        settings: &PreprocessConfig,
        provider: ExecutionProvider,
    ) -> Result<OnnxModel, OnnxError> {
        let (input, single) = input(&session, settings)?;
        let output = output(&session, settings)?;
        let mut model = OnnxModel {
            session,
            settings: settings.clone(),
            input,
            output,
            single,
            provider: provider.as_str(),
            passed_over: Vec::new(),
            dimensions: 0,
        };
        let side = settings.input_size;
        // A ramp, as a descriptor without a constant part gives no direction for a flat picture.
        let rgb: Vec<u8> =
            (0..side * side * 3).map(|at| (at * 251 / (side * side * 3)) as u8).collect();
        let embeddings = ModelInputImage::new(side, rgb)
            .map_err(Into::into)
            .and_then(|ramp| model.run(&[ramp]))
            .map_err(|error| OnnxError::session(provider, error))?;
        model.dimensions = embeddings.first().map_or(0, |embedding| embedding.values().len());
        Ok(model)
    }

    /// Runs the model once on all of `pictures`.
    fn run(&mut self, pictures: &[ModelInputImage]) -> Result<Vec<Embedding>, Box<dyn Error>> {
        let side = self.settings.input_size as usize;
        let mut input = Vec::with_capacity(pictures.len() * 3 * side * side);
        for picture in pictures {
            self.settings.fill(picture, &mut input);
        }
        let input = Tensor::from_array(([pictures.len(), 3, side, side], input))?;
        let outputs = self.session.run(ort::inputs![self.input.as_str() => input])?;
        let wrong = "its output is not one embedding for each picture";
        let output = outputs.get(&self.output).ok_or(wrong)?;
        let (shape, values) = output.try_extract_tensor::<f32>()?;
        let (rows, row, dimensions) = rows_of(shape).ok_or(wrong)?;
        if rows != pictures.len() || row * rows != values.len() || dimensions == 0 {
            return Err(wrong.into());
        }
        let embed = |row: &[f32]| Ok(Embedding::new(row[..dimensions].to_vec())?);
        values.chunks_exact(row).map(embed).collect()
    }
}

impl EmbeddingModel for OnnxModel {
    fn side(&self) -> u32 {
        self.settings.input_size
    }

    fn provider(&self) -> &'static str {
        self.provider
    }

    fn embed(&mut self, pictures: &[ModelInputImage]) -> Result<Vec<Embedding>, EmbedError> {
        let side = self.settings.input_size;
        if let Some(wrong) = pictures.iter().find(|picture| picture.side() != side) {
            return Err(EmbedError::Side { side, got: wrong.side() });
        }
        let at_once = if self.single { 1 } else { pictures.len().max(1) };
        let mut embeddings = Vec::with_capacity(pictures.len());
        for part in pictures.chunks(at_once) {
            let part = self.run(part).map_err(|error| EmbedError::Model(error.to_string()))?;
            embeddings.extend(part);
        }
        Ok(embeddings)
    }
}

/// Returns rows, values per row, and how many lead as the embedding: all, or the first token's.
fn rows_of(shape: &[i64]) -> Option<(usize, usize, usize)> {
    let sides: Option<Vec<usize>> = shape.iter().map(|side| usize::try_from(*side).ok()).collect();
    match sides?[..] {
        [rows, dimensions] | [rows, dimensions, 1, 1] => Some((rows, dimensions, dimensions)),
        [rows, tokens, dimensions] if tokens > 0 => Some((rows, tokens * dimensions, dimensions)),
        _ => None,
    }
}

fn open(
    builder: &mut SessionBuilder,
    model: Option<&Path>,
    provider: ExecutionProvider,
) -> Result<Session, OnnxError> {
    let session = match model {
        Some(path) => builder.commit_from_file(path),
        None => builder.commit_from_memory(DESCRIPTOR.0),
    };
    session.map_err(|error| OnnxError::session(provider, error))
}

/// Returns the input's name, and true if the input takes one picture only.
fn input(session: &Session, settings: &PreprocessConfig) -> Result<(String, bool), OnnxError> {
    let mut inputs = session.inputs().iter();
    let input = match &settings.input {
        Some(name) => inputs.find(|input| input.name() == name),
        None => inputs.next(),
    };
    let input = input.ok_or_else(|| OnnxError::shape("it has no such input"))?;
    if session.inputs().len() > 1 {
        return Err(OnnxError::shape("it takes more than a picture"));
    }
    let ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } = input.dtype() else {
        let problem = format!("its input is {}, not 32-bit floats", input.dtype());
        return Err(OnnxError::shape(&problem));
    };
    let side = i64::from(settings.input_size);
    let takes = |at: usize, size: i64| shape.get(at).is_some_and(|got| [size, -1].contains(got));
    let (batch, sized) = (shape.first(), takes(1, 3) && takes(2, side) && takes(3, side));
    if shape.len() != 4 || !sized || !batch.is_some_and(|batch| [1, -1].contains(batch)) {
        let got: Vec<i64> = shape.to_vec();
        let problem = format!("its input is {got:?}, not [pictures, 3, {side}, {side}]");
        return Err(OnnxError::shape(&problem));
    }
    Ok((input.name().to_owned(), batch == Some(&1)))
}

/// Returns the output's name. Its shape is known only after a run.
fn output(session: &Session, settings: &PreprocessConfig) -> Result<String, OnnxError> {
    let mut outputs = session.outputs().iter();
    let output = match &settings.output {
        Some(name) => outputs.find(|output| output.name() == name),
        None => outputs.next(),
    };
    let output = output.ok_or_else(|| OnnxError::shape("it has no such output"))?;
    Ok(output.name().to_owned())
}
