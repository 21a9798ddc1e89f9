//! Run operations.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::Uri;
use media::Seq;
use serde::Serialize;

use super::{
    ApiResult, App,
    extract::{Body, Caller, Owned, OwnedOrDeleted, Params},
    page::{linked, paging},
    wire::{RunAnswer, RunRecord},
};
use crate::{
    catalog::{self, Mode},
    json::{name, text},
    session::{Lifecycle, registry::Origin},
};

/// `POST /v1/runs`
pub async fn create(State(app): State<Arc<App>>, caller: Caller, body: Body) -> ApiResult {
    let mut fields = body.fields()?;
    let mode = fields.optional("mode", name(Mode::NAMES, Mode::from_name)).unwrap_or_default();
    let model = fields.optional("model", |value| {
        let id = text(1..=128)(value)?;
        catalog::model(id)
            .ok_or_else(|| format!("must be one of {}", catalog::MODELS.join(", ")).into())
    });
    fields.finish(|| Some(()))?;
    app.check_open()?;
    let origin = Origin {
        principal: caller.principal,
        tenant: caller.tenant,
        mode: mode.as_str().to_owned(),
        model: model.map(str::to_owned),
        session: None,
    };
    let run = app.registry.create(origin, caller.request_id).await?;
    let mut answer = RunAnswer::new(caller.request_id, run.id());
    answer.status = Some(Lifecycle::Pending.as_str());
    #[derive(Serialize)]
    struct Created {
        #[serde(flatten)]
        answer: RunAnswer,
        mode: &'static str,
        model: Option<&'static str>,
    }
    Ok(Json(Created { answer, mode: mode.as_str(), model }).into_response())
}

/// `GET /v1/runs`
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    params: Params,
    uri: Uri,
) -> ApiResult {
    let mut fields = params.fields()?;
    let names = "pending, processing, completed, failed, cancelled, expired";
    let status = fields.optional("status", name(names, Lifecycle::from_name));
    let paging = paging(&mut fields);
    fields.finish(|| Some(()))?;
    let before = paging.cursor.unwrap_or(Seq(u64::MAX));
    let (runs, next) = app.registry.list(&caller.principal, status, before, paging.limit);
    let limits = app.registry.limits();
    let records: Vec<_> = runs.iter().map(|run| RunRecord::new(run, limits, None)).collect();
    Ok(linked(Json(records), &uri, next))
}

/// `GET /v1/runs/{id}`
pub async fn fetch(State(app): State<Arc<App>>, caller: Caller, Owned(run): Owned) -> Response {
    let record = RunRecord::new(&run, app.registry.limits(), Some(caller.request_id));
    Json(record).into_response()
}

/// `DELETE /v1/runs/{id}`
pub async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    OwnedOrDeleted(run): OwnedOrDeleted,
) -> ApiResult {
    app.registry.delete(&run, caller.request_id).await?;
    Ok(Json(RunAnswer::new(caller.request_id, run.id())).into_response())
}

/// `POST /v1/runs/{id}/stop`
pub async fn stop(State(app): State<Arc<App>>, caller: Caller, Owned(run): Owned) -> ApiResult {
    app.registry.stop(&run, caller.request_id).await?;
    let mut answer = RunAnswer::new(caller.request_id, run.id());
    answer.status = Some(Lifecycle::Cancelled.as_str());
    Ok(Json(answer).into_response())
}

/// `POST /v1/runs/{id}/keepalive`
pub async fn keepalive(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
) -> ApiResult {
    app.registry.keep_alive(&run, caller.request_id).await?;
    let mut answer = RunAnswer::new(caller.request_id, run.id());
    answer.state = Some(Lifecycle::Processing.as_str());
    Ok(Json(answer).into_response())
}

/// `GET /v1/runs/{id}/state`
pub async fn state(caller: Caller, Owned(run): Owned) -> Response {
    let mut answer = RunAnswer::new(caller.request_id, run.id());
    answer.state = Some(run.lifecycle().as_str());
    answer.progress = run.progress().map(Into::into);
    Json(answer).into_response()
}
