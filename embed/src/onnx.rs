//! ONNX image encoders, run by ONNX Runtime, whose library is loaded on first use.
//!
//! Promises to run on the execution provider that was asked for: each one is tried alone with one picture,
//! its failure is an error, and the one in use is reported. Takes any CLIP, SigLIP or DINO image encoder.

mod runtime;

use std::path::{Path, PathBuf};

use media::{ErrorKind, ParseError};
use ort::{
    session::{Session, builder::SessionBuilder},
    value::{Tensor, TensorElementType, ValueType},
};

use crate::{
    embedder::EmbeddingModel,
    embedding::{EmbedError, Embedding, ModelInputImage},
    settings::{PreprocessConfig, SettingsError},
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
pub enum OnnxError {
    /// The library cannot be loaded: missing, another one, or too old.
    #[error("ONNX Runtime cannot be loaded: {0}")]
    Runtime(String),
    /// This process has loaded another library.
    #[error("ONNX Runtime was loaded before, from {}", .0.display())]
    OtherRuntime(PathBuf),
    /// The model's settings are missing or wrong.
    #[error("{}: {source}", path.display())]
    Settings {
        /// Path of the JSON.
        path: PathBuf,
        /// The settings' fault.
        source: SettingsError,
    },
    /// The model cannot be opened, or does not run on the provider.
    #[error("the model does not run on {provider}: {reason}")]
    Session {
        /// Provider that failed.
        provider: &'static str,
        /// ONNX Runtime's message.
        reason: String,
    },
    /// The model's inputs or outputs are not those of an image encoder that this service supports.
    #[error("not a usable image encoder: {0}")]
    Shape(String),
}

impl OnnxError {
    /// Returns the kind of the failure: wrong models and settings are invalid input, other failures are not.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OnnxError::Settings { .. } | OnnxError::Shape(_) => ErrorKind::InvalidInput,
            OnnxError::OtherRuntime(_) => ErrorKind::Conflict,
            OnnxError::Runtime(_) | OnnxError::Session { .. } => ErrorKind::Unavailable,
        }
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
        let (json, settings) = match &config.model {
            None => (PathBuf::from("descriptor.json"), PreprocessConfig::parse(DESCRIPTOR.1)),
            Some(path) => {
                let json = path.with_extension("json");
                let settings = PreprocessConfig::read(&json);
                (json, settings)
            }
        };
        let settings = settings.map_err(|source| OnnxError::Settings { path: json, source })?;
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
        Err(OnnxError::Session { provider: config.provider.as_str(), reason: failures.join("; ") })
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
        let failed = |reason: String| OnnxError::Session { provider: provider.as_str(), reason };
        let ramp = ModelInputImage::new(side, rgb).map_err(|error| failed(error.to_string()))?;
        let embeddings = model.run(&[ramp]).map_err(|error| failed(error.to_string()))?;
        model.dimensions = embeddings.first().map_or(0, |embedding| embedding.values().len());
        Ok(model)
    }

    /// Runs the model once on all of `pictures`.
    fn run(&mut self, pictures: &[ModelInputImage]) -> Result<Vec<Embedding>, OnnxRunError> {
        let side = self.settings.input_size as usize;
        let mut input = Vec::with_capacity(pictures.len() * 3 * side * side);
        for picture in pictures {
            self.settings.fill(picture, &mut input);
        }
        let input = Tensor::from_array(([pictures.len(), 3, side, side], input))?;
        let outputs = self.session.run(ort::inputs![self.input.as_str() => input])?;
        let output = outputs.get(&self.output).ok_or(OnnxRunError::Output)?;
        let (shape, values) = output.try_extract_tensor::<f32>()?;
        let (rows, row, dimensions) = rows_of(shape).ok_or(OnnxRunError::Output)?;
        if rows != pictures.len() || row * rows != values.len() || dimensions == 0 {
            return Err(OnnxRunError::Output);
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

#[derive(Debug, thiserror::Error)]
enum OnnxRunError {
    #[error("{0}")]
    Runtime(#[from] ort::Error),
    #[error("{0}")]
    Embedding(#[from] ParseError),
    #[error("its output is not one embedding for each picture")]
    Output,
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
    session.map_err(|error| OnnxError::Session {
        provider: provider.as_str(),
        reason: error.to_string(),
    })
}

/// Returns the input's name, and true if the input takes one picture only.
fn input(session: &Session, settings: &PreprocessConfig) -> Result<(String, bool), OnnxError> {
    let wrong = |problem: String| OnnxError::Shape(problem);
    let mut inputs = session.inputs().iter();
    let input = match &settings.input {
        Some(name) => inputs.find(|input| input.name() == name),
        None => inputs.next(),
    };
    let input = input.ok_or_else(|| wrong("it has no such input".to_owned()))?;
    if session.inputs().len() > 1 {
        return Err(wrong("it takes more than a picture".to_owned()));
    }
    let ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } = input.dtype() else {
        return Err(wrong(format!("its input is {}, not 32-bit floats", input.dtype())));
    };
    let side = i64::from(settings.input_size);
    let takes = |at: usize, size: i64| shape.get(at).is_some_and(|got| [size, -1].contains(got));
    let (batch, sized) = (shape.first(), takes(1, 3) && takes(2, side) && takes(3, side));
    if shape.len() != 4 || !sized || !batch.is_some_and(|batch| [1, -1].contains(batch)) {
        let got: Vec<i64> = shape.to_vec();
        return Err(wrong(format!("its input is {got:?}, not [pictures, 3, {side}, {side}]")));
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
    let output = output.ok_or_else(|| OnnxError::Shape("it has no such output".to_owned()))?;
    Ok(output.name().to_owned())
}
