//! Settings of the model backends and of their admission limits.

use infer::{BackendConfig, BaseUrl, scheduler::AdmissionLimits};

use super::*;
use crate::record::inference::InferenceConfig;

/// File that is read if SERVICE_CONFIG is unset; it may be missing.
const FILE_DEFAULT: &str = "sightline.toml";

pub(super) fn inference(vars: &mut EnvReader) -> InferenceConfig {
    InferenceConfig {
        outage: vars.read("SERVICE_REASON_OUTAGE_MS", "60000", millis(0, 3_600_000)),
        backends: backends(vars),
        limits: limits(vars),
    }
}

fn limits(vars: &mut EnvReader) -> AdmissionLimits {
    let places = whole(1, 1024);
    AdmissionLimits {
        wait: vars.read("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "5000", millis(1, 120_000)),
        image_bytes: vars.read("SERVICE_INFERENCE_IMAGE_MIB", "256", mib(16, 65_536)),
        in_flight: vars.read("SERVICE_INFERENCE_GLOBAL_LIMIT", "8", &places),
        in_flight_per_principal: vars.read("SERVICE_INFERENCE_PER_PRINCIPAL_LIMIT", "4", &places),
        waiters: vars.read("SERVICE_INFERENCE_WAITER_LIMIT", "128", whole(1, 4096)),
        tokens: vars.read("SERVICE_INFERENCE_TOKENS", "1048576", whole(65_536, 1 << 40)),
        tokens_per_day: vars.read("SERVICE_INFERENCE_TOKENS_PER_DAY", "0", whole(0, 1 << 50)),
    }
}

/// Returns the backends of the two URL variables or, if neither is set, those of the file.
fn backends(vars: &mut EnvReader) -> Vec<BackendConfig> {
    let vllm = vars.read("SERVICE_VLLM_BASE_URL", "", optional(url));
    let sglang = vars.read("SERVICE_SGLANG_BASE_URL", "", optional(url));
    let is_named = vars.raw("SERVICE_CONFIG").is_some();
    let file = vars.read("SERVICE_CONFIG", FILE_DEFAULT, |text| Ok(text.to_owned()));
    if vllm.is_some() || sglang.is_some() {
        return BackendConfig::of_urls(vllm, sglang);
    }
    let text = match text_of(Path::new(&file)) {
        Ok(text) => text,
        Err(FileError::NotFound) if !is_named => return Vec::new(),
        Err(error) => {
            vars.refuse("SERVICE_CONFIG", format!("cannot be read: {error}: {file}"));
            return Vec::new();
        }
    };
    let parsed = BackendConfig::parse(&file, &text, &|name| vars.mentioned(name));
    parsed.unwrap_or_else(|error| {
        vars.refuse("SERVICE_CONFIG", format!("cannot be used: {error}"));
        Vec::new()
    })
}

fn url(text: &str) -> Result<BaseUrl, ValueError> {
    BaseUrl::openai(text).map_err(ValueError::from)
}
