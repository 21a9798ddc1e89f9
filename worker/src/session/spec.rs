//! Options of a live session, clamped to their bounds.

use gate::{GateConfig, GateState};
use media::{Codec, Signal, Zones};

use crate::{ChunkImageOptions, Crop};

/// Options of a live session.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
#[allow(missing_docs, reason = "the names say it")]
pub struct SessionSpec {
    pub codec: Codec,
    pub gate: GateConfig,
    pub zones: Zones,
    /// True to encode the selected frames as stills.
    pub stills: bool,
    /// Part of the picture that models are shown, in views, clips and novelty inputs; not for the gate or
    /// stills. `None` is all of it.
    pub crop: Option<Crop>,
    /// Adds a view to the selected frames, of this longest edge in pixels, from
    /// [`ChunkImageOptions::EDGE_MIN`] to [`ChunkImageOptions::EDGE_MAX`]. Smaller pictures are not scaled up.
    pub view_edge: Option<u32>,
    /// Adds pictures of clips, one clip after the other.
    pub clip: Option<ClipSpec>,
    /// Adds the input of the novelty rule to the selected frames.
    pub novelty: Option<NoveltySpec>,
    /// Last signal of an earlier session, and the gate's state after it: frame numbers continue, and the gate
    /// decides as if uninterrupted.
    pub resume: Option<(Signal, GateState)>,
}

media::serde_checked!(SessionSpec, |spec| spec.clone().within_bounds() == spec);

/// Options of clips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClipSpec {
    /// Sampling instants per second, from 1 to [`ClipSpec::FPS_MAX`]; the first is at the clip's start.
    pub target_fps: u32,
    /// Length in milliseconds, from [`ClipSpec::LENGTH_MS_MIN`] to [`ClipSpec::LENGTH_MS_MAX`].
    pub length_ms: u32,
    /// Milliseconds between a clip and the next, at most [`ClipSpec::DELAY_MS_MAX`].
    pub delay_ms: u32,
    /// Most pictures of a clip, from 1 to [`ClipSpec::PICTURES_MAX`]; if there are more instants, evenly
    /// spaced ones are shown.
    pub pictures: u32,
    /// Longest edge of a picture, from [`ChunkImageOptions::EDGE_MIN`] to [`ClipSpec::EDGE_MAX`].
    pub max_edge: u32,
}

/// Options of the input of the novelty rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NoveltySpec {
    /// Width and height of the picture for the embedding model, from [`NoveltySpec::SIDE_MIN`] to
    /// [`NoveltySpec::SIDE_MAX`].
    pub side: u32,
}

impl SessionSpec {
    /// Returns options for signals only.
    pub fn new(codec: Codec, gate: GateConfig) -> SessionSpec {
        SessionSpec {
            codec,
            gate,
            zones: Zones::default(),
            stills: false,
            crop: None,
            view_edge: None,
            clip: None,
            novelty: None,
            resume: None,
        }
    }

    pub(crate) fn first_frame(&self) -> u64 {
        self.resume.map_or(0, |(last, _)| last.frame_index.saturating_add(1))
    }

    /// Returns the options with each number clamped to its bounds.
    pub fn within_bounds(self) -> SessionSpec {
        SessionSpec {
            view_edge: self
                .view_edge
                .map(|edge| edge.clamp(ChunkImageOptions::EDGE_MIN, ChunkImageOptions::EDGE_MAX)),
            clip: self.clip.map(ClipSpec::within_bounds),
            novelty: self.novelty.map(NoveltySpec::within_bounds),
            ..self
        }
    }

    pub(crate) fn wants_pixels(&self) -> bool {
        self.stills || self.clip.is_some() || self.wants_selected()
    }

    /// Returns true if selected frames need a view or a novelty input.
    pub(crate) fn wants_selected(&self) -> bool {
        self.view_edge.is_some() || self.novelty.is_some()
    }
}

impl ClipSpec {
    /// Most sampling instants per second.
    pub const FPS_MAX: u32 = 30;
    /// Shortest clip.
    pub const LENGTH_MS_MIN: u32 = 100;
    /// Longest clip.
    pub const LENGTH_MS_MAX: u32 = 60_000;
    /// Longest time between clips.
    pub const DELAY_MS_MAX: u32 = 60_000;
    /// Most pictures of a clip.
    pub const PICTURES_MAX: u32 = 8;
    /// Longest edge of a clip's picture: memory has room for all of a clip's pictures, even of noise.
    pub const EDGE_MAX: u32 = 2048;

    pub(crate) fn within_bounds(self) -> ClipSpec {
        ClipSpec {
            target_fps: self.target_fps.clamp(1, Self::FPS_MAX),
            length_ms: self.length_ms.clamp(Self::LENGTH_MS_MIN, Self::LENGTH_MS_MAX),
            delay_ms: self.delay_ms.min(Self::DELAY_MS_MAX),
            pictures: self.pictures.clamp(1, Self::PICTURES_MAX),
            max_edge: self.max_edge.clamp(ChunkImageOptions::EDGE_MIN, Self::EDGE_MAX),
        }
    }

    /// Returns the sampling instants in a clip, at least 1.
    pub(crate) fn instants(&self) -> u32 {
        (self.length_ms * self.target_fps).div_ceil(1000)
    }

    /// Returns the pictures of a clip whose source has a frame for every instant.
    pub(crate) fn shown(&self) -> u32 {
        self.pictures.min(self.instants())
    }
}

impl NoveltySpec {
    /// Smallest side.
    pub const SIDE_MIN: u32 = 32;
    /// Largest side: no common image encoder takes a larger picture.
    pub const SIDE_MAX: u32 = 512;

    pub(crate) fn within_bounds(self) -> NoveltySpec {
        NoveltySpec { side: self.side.clamp(Self::SIDE_MIN, Self::SIDE_MAX) }
    }
}
