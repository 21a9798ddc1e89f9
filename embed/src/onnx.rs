//! An image encoder in ONNX form, run by ONNX Runtime, whose library is loaded when it is asked for.
//!
//! Promises that what runs is what was asked for: each execution provider is tried alone and with one
//! picture, its failure is an error, and the one in use is reported. Any CLIP, SigLIP or DINO image
//! encoder will do. Knows nothing of batches beyond what the model takes at once.

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

/// The descriptor that comes with the service; `embed/model/make_descriptor.py` writes it.
const DESCRIPTOR: (&[u8], &[u8]) =
    (include_bytes!("../model/descriptor.onnx"), include_bytes!("../model/descriptor.json"));

/// Name of ONNX Runtime's library where no path is given; the loader looks for it.
pub const RUNTIME_LIBRARY: &str = "libonnxruntime.so";

/// Model to run, and its settings.
#[derive(Clone, Debug, Default)]
pub struct OnnxConfig {
    /// ONNX Runtime's library, 1.20 or newer; [`RUNTIME_LIBRARY`] where it is not given. All models of
    /// a process share the first.
    pub runtime: Option<PathBuf>,
    /// The model, with its settings in a JSON of the same name; the built-in one where not given.
    pub model: Option<PathBuf>,
    /// Provider to run it on.
    pub provider: ExecutionProvider,
    /// Threads that one batch may use on a processor; 0 for as many as there are cores.
    pub threads: usize,
}

media::named! {
    /// Provider that may run a model.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ExecutionProvider {
        /// The first of those below that works, from the bottom up.
        #[default]
        Auto = "auto",
        /// The processor.
        Cpu = "cpu",
        /// An NVIDIA GPU; needs an ONNX Runtime that was built with CUDA.
        Cuda = "cuda",
        /// The same through TensorRT.
        TensorRt = "tensorrt",
    }
}

impl ExecutionProvider {
    /// In the order in which they are tried.
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
    /// The library is not there, is another one or too old.
    #[error("ONNX Runtime cannot be loaded: {0}")]
    Runtime(String),
    /// Another library has been loaded in this process.
    #[error("ONNX Runtime was loaded before, from {}", .0.display())]
    OtherRuntime(PathBuf),
    /// The model's settings are missing or wrong.
    #[error("{}: {source}", path.display())]
    Settings {
        /// The JSON.
        path: PathBuf,
        /// Fault of the settings.
        source: SettingsError,
    },
    /// The model cannot be opened or does not run there.
    #[error("the model does not run on {provider}: {reason}")]
    Session {
        /// Provider that it should have run on.
        provider: &'static str,
        /// ONNX Runtime's words.
        reason: String,
    },
    /// It is no image encoder that this service can feed or read.
    #[error("not a usable image encoder: {0}")]
    Shape(String),
}

impl OnnxError {
    /// A model that is not usable is the operator's, all else is missing.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OnnxError::Settings { .. } | OnnxError::Shape(_) => ErrorKind::InvalidInput,
            OnnxError::OtherRuntime(_) => ErrorKind::Conflict,
            OnnxError::Runtime(_) | OnnxError::Session { .. } => ErrorKind::Unavailable,
        }
    }
}

/// A model that ran at least once.
#[derive(Debug)]
pub struct OnnxModel {
    session: Session,
    settings: PreprocessConfig,
    input: String,
    output: String,
    /// True where the model takes one picture at a time only.
    single: bool,
    provider: &'static str,
    /// Providers that were tried before, and why they do not run it.
    passed_over: Vec<String>,
    dimensions: usize,
}

impl OnnxModel {
    /// Loads the library and the model, and embeds one grey picture.
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

    /// Numbers in each embedding.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the reasons that providers tried before the one in use do not run it.
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
        // A ramp: a descriptor without a constant part has no direction for a flat picture.
        let rgb: Vec<u8> =
            (0..side * side * 3).map(|at| (at * 251 / (side * side * 3)) as u8).collect();
        let failed = |reason: String| OnnxError::Session { provider: provider.as_str(), reason };
        let ramp = ModelInputImage::new(side, rgb).map_err(|error| failed(error.to_string()))?;
        let embeddings = model.run(&[ramp]).map_err(|error| failed(error.to_string()))?;
        model.dimensions = embeddings.first().map_or(0, |embedding| embedding.values().len());
        Ok(model)
    }

    /// Runs as many pictures as the model takes at once.
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

/// Rows, numbers in each, and how many of them are the embedding: all, or the first token's.
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

/// The input's name, and whether it takes one picture only.
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

/// The output's name. Its shape is known once it ran.
fn output(session: &Session, settings: &PreprocessConfig) -> Result<String, OnnxError> {
    let mut outputs = session.outputs().iter();
    let output = match &settings.output {
        Some(name) => outputs.find(|output| output.name() == name),
        None => outputs.next(),
    };
    let output = output.ok_or_else(|| OnnxError::Shape("it has no such output".to_owned()))?;
    Ok(output.name().to_owned())
}
