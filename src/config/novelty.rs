//! Settings of novelty: the image embedder, and the rule for the reuse of descriptions.

use embed::{ExecutionProvider, ReuseRule};

use super::*;
use crate::record::image_embedder::{EmbedderConfig, NoveltyConfig};

/// Name that selects the model built into the server.
const BUILT_IN: &str = "built-in";

pub(super) fn novelty(vars: &mut EnvReader) -> NoveltyConfig {
    let rule = ReuseRule {
        distance_max: vars.read("SERVICE_NOVELTY_REUSE_THRESHOLD", "0.01", fraction),
        elapsed_ms_max: vars.read("SERVICE_NOVELTY_MAX_REUSE_MS", "2000", whole(0, 3_600_000)),
        drift_max: vars.read("SERVICE_NOVELTY_MAX_CUMULATIVE_DRIFT", "0.5", fraction),
        ..ReuseRule::default()
    };
    let timeout = vars.read("SERVICE_NOVELTY_EMBEDDING_TIMEOUT_MS", "2000", millis(10, 60_000));
    let sidecar = vars.read("SERVICE_NOVELTY_EMBEDDING_ADDR", "", optional(sidecar));
    let model = vars.read("SERVICE_NOVELTY_MODEL_PATH", "", optional_path);
    let runtime = vars.read("SERVICE_ONNXRUNTIME_PATH", "", optional_path);
    let provider = named(ExecutionProvider::from_name, "one of auto, cpu, cuda, tensorrt");
    let provider = vars.read("SERVICE_NOVELTY_EMBEDDING_PROVIDER", "auto", provider);
    let eyes = match (sidecar, model) {
        (None, None) => EmbedderConfig::Off,
        (Some(_), Some(_)) => {
            vars.refuse(
                "SERVICE_NOVELTY_MODEL_PATH",
                "cannot be used beside SERVICE_NOVELTY_EMBEDDING_ADDR: unset one",
            );
            EmbedderConfig::Off
        }
        (Some(sidecar), None) => EmbedderConfig::Sidecar(sidecar),
        (None, Some(model)) => {
            let model = Some(model).filter(|path| path.as_os_str() != BUILT_IN);
            EmbedderConfig::Model { model, runtime, provider }
        }
    };
    NoveltyConfig { eyes, timeout, rule }
}

fn sidecar(text: &str) -> Result<String, ValueError> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("must be a host and port such as 127.0.0.1:7070".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eyes(values: &[(&str, &str)]) -> Result<EmbedderConfig, String> {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut vars = EnvReader::new(values);
        let config = novelty(&mut vars);
        vars.errors.first().map_or(Ok(config.eyes), |error| Err(error.to_string()))
    }

    #[test]
    fn one_thing_embeds_or_none() {
        let (model, addr) = ("SERVICE_NOVELTY_MODEL_PATH", "SERVICE_NOVELTY_EMBEDDING_ADDR");
        let runtime = ("SERVICE_ONNXRUNTIME_PATH", "/lib/onnx.so");
        let on = ("SERVICE_NOVELTY_EMBEDDING_PROVIDER", "tensorrt");
        let (provider, runtime_path) = (ExecutionProvider::Auto, Some("/lib/onnx.so".into()));
        let built_in = EmbedderConfig::Model { model: None, runtime: runtime_path, provider };
        let provider = ExecutionProvider::TensorRt;
        let own = EmbedderConfig::Model { model: Some("a.onnx".into()), runtime: None, provider };
        assert_eq!(eyes(&[]), Ok(EmbedderConfig::Off));
        assert_eq!(eyes(&[(model, "built-in"), runtime]), Ok(built_in));
        assert_eq!(eyes(&[(model, "a.onnx"), on]), Ok(own));
        assert_eq!(eyes(&[(addr, "[::1]:70")]), Ok(EmbedderConfig::Sidecar("[::1]:70".to_owned())));
        for bad in ["localhost", ":70", "a:0", "a:65536"] {
            assert!(eyes(&[(addr, bad)]).is_err(), "{bad}");
        }
        assert!(eyes(&[(addr, "a:70"), (model, "a.onnx")]).is_err(), "both");
        assert!(eyes(&[(on.0, "gpu")]).is_err(), "no such provider");
    }
}
