//! Region of a picture that a model was shown, in fractions and in pixels.

use media::Dimensions;
use serde::Serialize;
use utoipa::ToSchema;
use worker::ChunkImageOptions;

use crate::api::openapi::schema_types;

/// Name of the coordinate schema.
pub const SCHEMA: &str = "sightline.image.v1";

/// Region of the pictures that a model was shown, given for the first picture after rotation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct FrameCoordinates {
    source_extent: FrameSize,
    requested_region: FrameFractions,
    resolved_region: FramePixels,
    /// Size of the region after scaling.
    analysis_extent: FrameSize,
}

/// A size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
struct FrameSize {
    width: u32,
    height: u32,
}

/// A rectangle as fractions of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
struct FrameFractions {
    #[schema(value_type = schema_types::Fraction)]
    x: f64,
    #[schema(value_type = schema_types::Fraction)]
    y: f64,
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    width: f64,
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    height: f64,
}

/// A rectangle of whole pixels of the source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
struct FramePixels {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

impl From<Dimensions> for FrameSize {
    fn from(Dimensions { width, height }: Dimensions) -> FrameSize {
        FrameSize { width, height }
    }
}

impl FrameCoordinates {
    /// Returns the region that `views` crop from pictures of size `source`; `None` without a crop.
    pub fn of(views: &ChunkImageOptions, source: Dimensions) -> Option<FrameCoordinates> {
        let [x, y, width, height] = views.crop?.sides().map(|side| side.as_f64());
        let (region, shown) = views.images_per_chunk(source);
        Some(FrameCoordinates {
            source_extent: source.into(),
            requested_region: FrameFractions { x, y, width, height },
            resolved_region: FramePixels {
                x: region.x,
                y: region.y,
                width: region.width,
                height: region.height,
            },
            analysis_extent: shown.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use media::Score;
    use serde_json::json;
    use worker::{ChunkBoundary, Crop};

    use super::*;

    #[test]
    fn a_crop_is_told_as_it_was_asked_for_and_as_it_was_made() {
        let score = |value| Score::from_f64(value).expect("a fraction");
        let crop = Crop::new(score(0.25), score(0.0), score(0.5), score(0.75));
        let chunks = ChunkBoundary::Frames(30);
        let views =
            ChunkImageOptions { chunks, per_chunk: 1, max_edge: Some(64), crop, novelty: None };
        let source = Dimensions { width: 640, height: 360 };
        let told = FrameCoordinates::of(&views, source).map(|told| json!(told));
        let expected = json!({
            "source_extent": {"width": 640, "height": 360},
            "requested_region": {"x": 0.25, "y": 0.0, "width": 0.5, "height": 0.75},
            "resolved_region": {"x": 160, "y": 0, "width": 320, "height": 270},
            "analysis_extent": {"width": 64, "height": 54},
        });
        assert_eq!(told, Some(expected));
        assert_eq!(FrameCoordinates::of(&ChunkImageOptions { crop: None, ..views }, source), None);
    }
}
