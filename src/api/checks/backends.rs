//! Checks of the model backends: reachable, and serving the requested models.

use infer::{FailureKind, ProbeResult, Standing};

use super::Check;
use crate::api::App;

/// Checks each backend and the models of live video.
pub fn checks(app: &App, probes: &[ProbeResult]) -> Vec<Check> {
    let mut checks: Vec<Check> = probes.iter().map(|probe| backend(app, probe, probes)).collect();
    if checks.is_empty() {
        checks.push(Check::advice(
            "models",
            "no backend is configured: footage is measured, and described by nobody",
            "SERVICE_VLLM_BASE_URL=http://127.0.0.1:8000 names a server that speaks OpenAI's API",
        ));
    }
    let live = &app.settings.live;
    let named = [("SERVICE_LIVE_MODEL", &live.model)].into_iter();
    let named = named.chain([("SERVICE_LIVE_SECOND_PASS_MODEL", &live.second_model)]);
    for (setting, model) in named {
        let Some(model) = model else { continue };
        let standing = app.inference.standing(model, probes);
        if !standing.iter().any(|one| one.standing == Standing::Ready) {
            let said = format!("{setting} names {model}, which no backend has now");
            let advice = "name one that `sightline models` shows as ready";
            checks.push(Check::problem("live model", said, advice));
        }
    }
    checks
}

fn backend(app: &App, probe: &ProbeResult, probes: &[ProbeResult]) -> Check {
    let name = format!("model backend {}", probe.name);
    let failed = probe.last_error.as_ref();
    let failed = failed.map_or_else(String::new, |error| format!("; its last answer: it {error}"));
    if !probe.reachable {
        let said = format!("asked and not answered{failed}");
        let advice = "see that it runs, and that its base URL leads to it from here";
        return Check::problem(name, said, advice);
    }
    let lists = match probe.models.as_deref() {
        None => "it gave no list of models".to_owned(),
        Some([]) => "it lists no model".to_owned(),
        Some(models) => format!("it lists {}", models.join(", ")),
    };
    let catalog = app.inference.catalog();
    let has = |id: &&str| {
        let standing = app.inference.standing(id, probes);
        standing.iter().any(|one| *one.name == *probe.name && one.standing == Standing::Ready)
    };
    let ready: Vec<&str> = catalog.ids().filter(has).collect();
    match &probe.upstream_model {
        Some(asked) if ready.is_empty() => Check::problem(
            name,
            format!("asked for {asked}, a name that it does not serve; {lists}"),
            "set upstream_model to a name that it lists, or have it serve that name",
        ),
        None if ready.is_empty() => Check::problem(
            name,
            format!("has no model that the server knows; {lists}"),
            "have it serve a model: it is known by the name that it lists",
        ),
        _ => {
            let said = format!("serves {}; {lists}{failed}", ready.join(", "));
            match &probe.last_error {
                None => Check::ok(name, said),
                Some(FailureKind::Http { status: 404, .. }) => Check::advice(
                    name,
                    said,
                    "so it answers a name that it does not serve: `sightline models` lists what it has, \
                     and `sightline runs show` says which name a run asked for",
                ),
                Some(_) => Check::advice(name, said, "the server's log says which run met that"),
            }
        }
    }
}
