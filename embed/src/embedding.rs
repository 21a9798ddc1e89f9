//! Embeddings: vectors of length 1 that describe a picture.

use media::{ParseError, Score};

/// Most dimensions of an embedding; the largest image encoders in use give 4096.
pub const DIMENSIONS_MAX: usize = 4096;

/// Unit vector of at most [`DIMENSIONS_MAX`] dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding(Box<[f32]>);

impl Embedding {
    /// Scales `values` to length 1.
    ///
    /// Fails for no values, for more than [`DIMENSIONS_MAX`], for values that are not finite, and for zeros
    /// alone, which have no direction.
    pub fn new(mut values: Vec<f32>) -> Result<Embedding, ParseError> {
        let wrong = |problem| ParseError { what: "embedding", problem };
        if values.is_empty() || values.len() > DIMENSIONS_MAX {
            return Err(wrong("must have 1 to 4096 dimensions"));
        }
        let square: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
        if !square.is_finite() {
            return Err(wrong("must be finite"));
        }
        let length = square.sqrt();
        if length == 0.0 {
            return Err(wrong("must not be all zeros"));
        }
        for value in &mut values {
            *value = (f64::from(*value) / length) as f32;
        }
        Ok(Embedding(values.into_boxed_slice()))
    }

    /// Returns the values; their squares add up to 1 within rounding.
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// Returns 1 - cosine similarity, rounded to a millionth; at angles over 90 degrees 1. Returns `None` if
    /// the dimensions differ: the embeddings are of different models.
    pub fn distance(&self, other: &Embedding) -> Option<Score> {
        if self.0.len() != other.0.len() {
            return None;
        }
        // For unit vectors half the squared distance is 1 - cosine, without cancellation.
        let pairs = self.0.iter().zip(&other.0);
        let square: f64 = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
        let millionths = (square / 2.0 * f64::from(Score::SCALE)).round();
        Some(Score::from_millionths(millionths as u32))
    }
}

/// Square picture of the size that a model takes: RGB bytes, row by row.
#[derive(Clone, PartialEq, Eq)]
pub struct ModelInputImage {
    side: u32,
    rgb: Box<[u8]>,
}

impl ModelInputImage {
    /// Longest side that a model may take.
    pub const SIDE_MAX: u32 = 1024;

    /// Wraps `side` x `side` pixels of three bytes; fails for another number of bytes and for a side of 0 or
    /// over [`ModelInputImage::SIDE_MAX`].
    pub fn new(side: u32, rgb: impl Into<Box<[u8]>>) -> Result<ModelInputImage, ParseError> {
        let wrong = |problem| ParseError { what: "picture", problem };
        let rgb = rgb.into();
        if !(1..=ModelInputImage::SIDE_MAX).contains(&side) {
            return Err(wrong("its side must be 1 to 1024 pixels"));
        }
        if rgb.len() as u64 != u64::from(side) * u64::from(side) * 3 {
            return Err(wrong("its bytes do not fill the square"));
        }
        Ok(ModelInputImage { side, rgb })
    }

    /// Returns the side in pixels.
    pub fn side(&self) -> u32 {
        self.side
    }

    /// Returns the pixels, three bytes each, row by row.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }
}

impl std::fmt::Debug for ModelInputImage {
    /// Prints the side only, not the 150,528 bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelInputImage").field("side", &self.side).finish_non_exhaustive()
    }
}

/// Reason that a picture has no embedding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum EmbedError {
    #[error("the picture has a side of {got} pixels and the model takes {side}")]
    Side { side: u32, got: u32 },
    /// The model failed, or its output is no embedding.
    #[error("the embedding model failed: {0}")]
    Model(String),
    /// Too many pictures wait, in total or of one stream.
    #[error("too many pictures wait to be embedded")]
    Full,
    #[error("no embedding within {0} ms")]
    Late(u64),
    /// The thread that runs the model has ended.
    #[error("the embedding model was stopped")]
    Stopped,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn embedding(values: &[f32]) -> Embedding {
        Embedding::new(values.to_vec()).expect("an embedding")
    }

    #[test]
    fn distances_are_one_less_cosine_in_millionths() {
        let cases = [
            ("itself", [0.3, -0.4], [0.3, -0.4], 0),
            ("longer, same direction", [3.0, 4.0], [30.0, 40.0], 0),
            ("a right angle", [1.0, 0.0], [0.0, 7.0], 1_000_000),
            ("the other way", [1.0, 0.0], [-1.0, 0.0], 1_000_000),
            ("cosine 0.8", [1.0, 0.0], [4.0, 3.0], 200_000),
        ];
        for (name, a, b, millionths) in cases {
            let expected = Some(Score::from_millionths(millionths));
            assert_eq!(embedding(&a).distance(&embedding(&b)), expected, "{name}");
        }
        let other_model = embedding(&[1.0, 0.0, 0.0]);
        assert_eq!(embedding(&[1.0, 0.0]).distance(&other_model), None);
    }

    #[test]
    fn what_points_nowhere_is_refused() {
        let cases = [
            ("nothing", vec![]),
            ("zeros", vec![0.0; 8]),
            ("not a number", vec![1.0, f32::NAN]),
            ("endless", vec![1.0, f32::INFINITY]),
            ("too many", vec![1.0; DIMENSIONS_MAX + 1]),
        ];
        for (name, values) in cases {
            assert!(Embedding::new(values).is_err(), "{name}");
        }
    }

    #[test]
    fn a_picture_fills_its_square() {
        for (side, bytes, right) in [(2, 12, true), (2, 11, false), (0, 0, false), (1025, 3, false)]
        {
            let made = ModelInputImage::new(side, vec![0; bytes]);
            assert_eq!(made.is_ok(), right, "{side} {bytes}");
        }
    }

    proptest! {
        #[test]
        fn any_direction_has_length_one_and_no_distance_to_itself(
            values in proptest::collection::vec(-1e18_f32..1e18, 1..64),
        ) {
            prop_assume!(values.iter().any(|value| value.abs() > 1e-6));
            let made = Embedding::new(values).expect("finite and not all zeros");
            let square: f64 = made.values().iter().map(|value| f64::from(*value).powi(2)).sum();
            prop_assert!((square - 1.0).abs() < 1e-5, "{}", square);
            prop_assert_eq!(made.distance(&made), Some(Score::ZERO));
        }

        #[test]
        fn distance_is_the_same_both_ways(
            pair in proptest::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 1..32),
        ) {
            let (a, b): (Vec<f32>, Vec<f32>) = pair.into_iter().unzip();
            if let (Ok(a), Ok(b)) = (Embedding::new(a), Embedding::new(b)) {
                prop_assert_eq!(a.distance(&b), b.distance(&a));
            }
        }
    }
}
