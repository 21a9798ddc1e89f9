//! Settings of a model, in a JSON file beside it: preprocessing of its input pictures.

use std::{io, path::Path};

use crate::embedding::ModelInputImage;

/// Preprocessing of a model's input. Beside `encoder.onnx` it is `encoder.json`, for example `{"input_size":
/// 224, "mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28]}`.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreprocessConfig {
    /// Side of the square input, in pixels.
    pub input_size: u32,
    /// Values subtracted from red, green and blue in 0..=1.
    pub mean: [f32; 3],
    /// Divisors of the differences, for red, green and blue.
    pub std: [f32; 3],
    /// Name of the input; `None` is the model's first.
    pub input: Option<String>,
    /// Name of the output with the embedding; `None` is the model's first.
    pub output: Option<String>,
}

const SETTINGS_BYTES_MAX: u64 = 64 << 10;

impl PreprocessConfig {
    /// Reads and checks the file at `path`; the error names neither it nor its model.
    pub fn read(path: &Path) -> Result<PreprocessConfig, String> {
        let failed = |error: io::Error| error.to_string();
        if std::fs::metadata(path).map_err(failed)?.len() > SETTINGS_BYTES_MAX {
            return Err(format!("longer than {SETTINGS_BYTES_MAX} bytes"));
        }
        PreprocessConfig::parse(&std::fs::read(path).map_err(failed)?)
    }

    /// Parses the JSON in `bytes` and checks its values.
    pub fn parse(bytes: &[u8]) -> Result<PreprocessConfig, String> {
        let settings: PreprocessConfig =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let (side, side_max) = (settings.input_size, ModelInputImage::SIDE_MAX);
        if !(1..=side_max).contains(&side) {
            return Err(format!("input_size {side} does not lie in 1..={side_max}"));
        }
        let sound = settings.mean.iter().all(|mean| mean.is_finite())
            && settings.std.iter().all(|std| std.is_finite() && *std > 0.0);
        sound
            .then_some(settings)
            .ok_or_else(|| "mean and std must be finite and std above 0".to_owned())
    }

    /// Appends the normalised planes of red, green and blue, the model's input layout.
    pub(crate) fn fill(&self, picture: &ModelInputImage, input: &mut Vec<f32>) {
        for (channel, (mean, std)) in self.mean.iter().zip(self.std).enumerate() {
            let samples: [f32; 256] =
                std::array::from_fn(|sample| (sample as f32 / 255.0 - mean) / std);
            let (pixels, _) = picture.rgb().as_chunks::<3>();
            input.extend(pixels.iter().map(|pixel| samples[usize::from(pixel[channel])]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let cases = [
            (r#"{"input_size":224,"mean":[0,0,0],"std":[1,1,1]}"#, ""),
            (r#"{"input_size":224,"mean":[0,0,0],"std":[1,1,1],"output":"x"}"#, ""),
            (r#"{"input_size":0,"mean":[0,0,0],"std":[1,1,1]}"#, "input_size 0"),
            (r#"{"input_size":1025,"mean":[0,0,0],"std":[1,1,1]}"#, "input_size 1025"),
            (r#"{"input_size":224,"mean":[0,0,0],"std":[1,0,1]}"#, "std above 0"),
            (r#"{"input_size":224,"mean":[0,0],"std":[1,1,1]}"#, "line 1"),
            (r#"{"input_size":224,"mean":[0,0,0],"std":[1,1,1],"size":1}"#, "unknown field"),
            ("", "EOF"),
        ];
        for (json, problem) in cases {
            let said = PreprocessConfig::parse(json.as_bytes()).err().unwrap_or_default();
            assert!(
                said.contains(problem) && said.is_empty() == problem.is_empty(),
                "{json}: {said}"
            );
        }
    }

    #[test]
    fn a_picture_becomes_three_planes_around_the_mean() {
        let json = br#"{"input_size":2,"mean":[0,0.5,1],"std":[1,0.5,2]}"#;
        let settings = PreprocessConfig::parse(json).expect("sound");
        let rgb = vec![0, 0, 0, 255, 255, 255, 51, 51, 51, 102, 0, 255];
        let mut input = Vec::new();
        settings.fill(&ModelInputImage::new(2, rgb).expect("four pixels"), &mut input);
        let red = [0.0, 1.0, 0.2, 0.4];
        let green = [-1.0, 1.0, -0.6, -1.0];
        let blue = [-0.5, 0.0, -0.4, 0.0];
        for (got, expected) in input.iter().zip([red, green, blue].concat()) {
            assert!((got - expected).abs() < 1e-6, "{input:?}");
        }
        assert_eq!(input.len(), 12);
    }
}
