//! Whether a selected frame says anything new: its embedding, and the rule that compares it with
//! the last frame that was described.
//!
//! Whatever goes wrong here is counted and answered by asking the model.

use std::{io, sync::Arc, time::Instant};

use bytes::Bytes;
use embed::{
    BatchLimits, CellMeans, EmbedError, Embedder, Embedding, Newness, OnnxConfig, OnnxError,
    OnnxModel, Picture, Reuse, ReuseRule, Seen, Sidecar, SidecarError,
};
use media::{Seq, Timestamp};
use worker::NoveltyInput;

use crate::{
    config::{EyesConfig, NoveltyConfig},
    metrics::{Metrics, NoveltyDecision},
};

/// Why pictures cannot be embedded.
#[derive(Debug, thiserror::Error)]
pub enum EyesError {
    /// The model does not run.
    #[error("SERVICE_NOVELTY_MODEL_PATH: {0}")]
    Model(#[from] OnnxError),
    /// There is no thread for it.
    #[error("no thread for the embedding model: {0}")]
    Thread(#[from] io::Error),
}

/// Why a picture was not embedded.
#[derive(Debug, thiserror::Error)]
enum Unseen {
    #[error(transparent)]
    Model(#[from] EmbedError),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
}

/// What turns pictures into embeddings.
#[derive(Clone)]
pub enum Eyes {
    /// A model in this process.
    Model(Arc<Embedder>),
    /// A sidecar.
    Sidecar(Arc<Sidecar>),
}

/// The novelty of one session's frames.
pub struct Novelty {
    eyes: Eyes,
    stream: u64,
    reuse: Reuse,
    metrics: Arc<Metrics>,
    /// The last description and its event.
    last: Option<(Seq, timeline::Finding)>,
}

/// Whether a frame needs a description of its own.
pub enum Verdict {
    /// It does; what it is remembered by once it has one.
    New(Option<Seen>),
    /// The description of this event stands for it.
    Reuse(Seq, Box<timeline::Finding>),
}

impl Eyes {
    /// What `config` asks for; a model is tried out.
    pub fn open(config: &NoveltyConfig) -> Result<Option<Eyes>, EyesError> {
        Ok(match &config.eyes {
            EyesConfig::Off => None,
            EyesConfig::Sidecar(address) => {
                Some(Eyes::Sidecar(Arc::new(Sidecar::new(address.clone(), config.timeout))))
            }
            EyesConfig::Model { model, runtime } => {
                let (runtime, model) = (runtime.clone(), model.clone());
                let model =
                    OnnxModel::load(&OnnxConfig { runtime, model, ..OnnxConfig::default() })?;
                let started = Embedder::start(model, BatchLimits::default(), config.timeout)?;
                Some(Eyes::Model(Arc::new(started)))
            }
        })
    }

    /// What it runs on, for people.
    pub fn provider(&self) -> &'static str {
        match self {
            Eyes::Model(model) => model.provider(),
            Eyes::Sidecar(_) => "sidecar",
        }
    }

    /// Side of the picture that is wanted of a worker.
    pub fn side(&self) -> u32 {
        match self {
            Eyes::Model(model) => model.side(),
            Eyes::Sidecar(_) => worker::NoveltySpec::SIDE_MIN,
        }
    }

    async fn embed(
        &self,
        stream: u64,
        jpeg: &Bytes,
        picture: Picture,
    ) -> Result<Embedding, Unseen> {
        Ok(match self {
            Eyes::Model(model) => model.embed(stream, picture).await?,
            Eyes::Sidecar(sidecar) => sidecar.embed(jpeg.clone()).await?,
        })
    }
}

impl Novelty {
    /// Nothing has been described of `stream`.
    pub fn new(eyes: Eyes, rule: ReuseRule, stream: u64, metrics: Arc<Metrics>) -> Novelty {
        Novelty { eyes, stream, reuse: Reuse::new(rule, stream), metrics, last: None }
    }

    /// Judges the frame shown at `pts_ms`.
    pub async fn judge(&mut self, pts_ms: i64, jpeg: &Bytes, input: NoveltyInput) -> Verdict {
        let Some(seen) = self.see(pts_ms, jpeg, input).await else {
            self.metrics.novelty_decisions.of(NoveltyDecision::Failed).inc();
            return Verdict::New(None);
        };
        let novelty = self.reuse.judge(&seen);
        self.metrics.novelty_decisions.of(NoveltyDecision::of(&novelty)).inc();
        match (novelty, &self.last) {
            (embed::Novelty::Reuse(_), Some((seq, finding))) => {
                Verdict::Reuse(*seq, Box::new(finding.clone()))
            }
            _ => Verdict::New(Some(seen)),
        }
    }

    async fn see(&self, pts_ms: i64, jpeg: &Bytes, input: NoveltyInput) -> Option<Seen> {
        let NoveltyInput { cells, picture } = input;
        let cells = CellMeans::new(cells).ok()?;
        let picture = Picture::new(picture.side, picture.rgb).ok()?;
        let started = Instant::now();
        let embedded = self.eyes.embed(self.stream, jpeg, picture).await;
        self.metrics.embedding_seconds.observe(started.elapsed().as_secs_f64());
        match embedded {
            Ok(embedding) => Some(Seen { at: Timestamp::from_millis(pts_ms), embedding, cells }),
            Err(error) => {
                tracing::debug!(%error, "a picture was not embedded");
                None
            }
        }
    }

    /// The frame has a description, in the event `seq`.
    pub fn described(&mut self, seen: Seen, seq: Seq, finding: timeline::Finding) {
        self.reuse.described(seen);
        self.last = Some((seq, finding));
    }

    /// The question changed: no description stands for another frame.
    pub fn forget(&mut self) {
        self.reuse.forget();
        self.last = None;
    }
}

impl NoveltyDecision {
    /// How `novelty` is counted.
    pub fn of(novelty: &embed::Novelty) -> NoveltyDecision {
        match novelty {
            embed::Novelty::Reuse(_) => NoveltyDecision::Reuse,
            embed::Novelty::New(newness) => match newness {
                Newness::First => NoveltyDecision::First,
                Newness::Elapsed => NoveltyDecision::Elapsed,
                Newness::Model => NoveltyDecision::Model,
                Newness::Distance(_) => NoveltyDecision::Distance,
                Newness::Cell(_) => NoveltyDecision::Cell,
                Newness::Drift => NoveltyDecision::Drift,
                Newness::Shadow(_) => NoveltyDecision::Shadow,
            },
        }
    }
}
