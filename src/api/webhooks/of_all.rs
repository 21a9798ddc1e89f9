//! Routes of webhooks of all runs of a principal, later ones included; the work is that of run webhooks.

use super::{
    DeadLetterList, OwnedWebhook, RedeliverResult, WebhookCreated, WebhookDeleted, WebhookList,
    WebhookRequest, listed, made,
};
use crate::api::prelude::*;

/// Deliver the future events of all the caller's runs, later ones included, to a URL.
///
/// As a run's webhook, except that it stays when a run is deleted: undelivered events of that run are not
/// sent, but `run_deleted` is.
#[utoipa::path(
    post, path = "/v1/webhooks", operation_id = "createWebhookOfAll", tag = "webhooks",
    request_body = WebhookRequest,
    responses(
        (status = 200, description = "The webhook", body = WebhookCreated),
        FailureResponse<409>, FailureResponse<503>,
    ),
)]
pub async fn create(Call(app, caller): Call, body: JsonBody) -> ApiResult<Json<WebhookCreated>> {
    made(&app, caller, None, &body).await
}

/// List the webhooks of all the caller's runs, oldest first, without those of single runs.
#[utoipa::path(
    get, path = "/v1/webhooks", operation_id = "listWebhooksOfAll", tag = "webhooks",
    responses((status = 200, description = "The webhooks", body = WebhookList)),
)]
pub async fn list(Call(app, caller): Call) -> ApiResult<Json<WebhookList>> {
    listed(&app, &caller, None).await
}

/// Remove a webhook of all runs and its dead letters.
#[utoipa::path(
    delete, path = "/v1/webhooks/{webhook_id}", operation_id = "deleteWebhookOfAll",
    tag = "webhooks",
    responses((status = 200, description = "Removed", body = WebhookDeleted), FailureResponse<404>, FailureResponse<503>),
)]
pub async fn remove(webhook: OwnedWebhook) -> ApiResult<Json<WebhookDeleted>> {
    super::remove(webhook).await
}

/// List the events that the target of a webhook of all runs did not accept: the newest 100, oldest first.
#[utoipa::path(
    get, path = "/v1/webhooks/{webhook_id}/dead-letters",
    operation_id = "listDeadLettersOfAll", tag = "webhooks",
    responses((status = 200, description = "The dead letters", body = DeadLetterList), FailureResponse<404>, FailureResponse<503>),
)]
pub async fn dead_letters(webhook: OwnedWebhook) -> ApiResult<Json<DeadLetterList>> {
    super::dead_letters(webhook).await
}

/// Redeliver the dead letters of a webhook of all runs.
#[utoipa::path(
    post, path = "/v1/webhooks/{webhook_id}/redeliver",
    operation_id = "redeliverDeadLettersOfAll", tag = "webhooks",
    responses(
        (status = 200, description = "The redelivery has begun", body = RedeliverResult),
        FailureResponse<404>, FailureResponse<503>,
    ),
)]
pub async fn redeliver(webhook: OwnedWebhook) -> ApiResult<Json<RedeliverResult>> {
    super::redeliver(webhook).await
}
