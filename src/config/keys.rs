//! Settings of the API keys: of callers, and of scrapers of the metrics.

use super::*;

/// Reads the keys of callers and those for the metrics; `None` where no key is required.
pub(super) fn keys(vars: &mut EnvReader) -> (Option<ApiKeys>, Option<ApiKeys>) {
    let require_keys = vars.read("SERVICE_REQUIRE_API_KEY", "true", flag);
    let ring = key_ring(vars);
    // A refused key already has an error of its own; "is not set" would be wrong then.
    if require_keys && ring.is_empty() && !vars.refused("SERVICE_API_KEYS") {
        vars.refuse(
            "SERVICE_API_KEYS",
            "is not set, and keys are required: set it (name:key, comma separated) or \
             SERVICE_API_KEYS_FILE, or turn keys off with SERVICE_REQUIRE_API_KEY=false",
        );
    }
    let metrics_need_key = vars.read("SERVICE_METRICS_REQUIRE_API_KEY", "true", flag);
    let mut metrics_ring = ring.clone();
    add_listed(vars, &mut metrics_ring, "SERVICE_METRICS_API_KEYS");
    (require_keys.then_some(ring), metrics_need_key.then_some(metrics_ring))
}

fn key_ring(vars: &mut EnvReader) -> ApiKeys {
    let mut ring = ApiKeys::default();
    add_listed(vars, &mut ring, "SERVICE_API_KEYS");
    let Some(file) = vars.read("SERVICE_API_KEYS_FILE", "", optional_path) else { return ring };
    match text_of(&file) {
        Ok(text) => {
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            lines.for_each(|line| add(vars, &mut ring, "SERVICE_API_KEYS_FILE", line));
        }
        Err(error) => vars.refuse("SERVICE_API_KEYS_FILE", format!("cannot be read: {error}")),
    }
    ring
}

/// Adds the keys that the variable `variable` lists, comma separated.
fn add_listed(vars: &mut EnvReader, ring: &mut ApiKeys, variable: &'static str) {
    let listed = vars.secret(variable).unwrap_or_default();
    add(vars, ring, variable, &listed);
}

fn add(vars: &mut EnvReader, ring: &mut ApiKeys, variable: &'static str, listed: &str) {
    for entry in parts(listed) {
        if let Err(problem) = ring.add(entry) {
            vars.refuse(variable, problem);
        }
    }
}
