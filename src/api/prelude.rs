//! Names that most resources use: extractors, answers, errors, ids and readers of fields.

pub(super) use std::{sync::Arc, time::Duration};

pub(super) use axum::{
    Json,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
pub(super) use bytes::Bytes;
pub(super) use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
pub(super) use media::{RequestId, RunId, Seq, StreamId};
pub(super) use serde::Serialize;
pub(super) use serde_json::Value;
pub(super) use timeline::{EventKind, Timeline};
pub(super) use utoipa::{IntoParams, ToSchema};

pub(super) use super::{
    ApiResult, App,
    error::ApiError,
    extract::{Call, Caller, JsonBody, OwnedRun, QueryParams},
    openapi::{FailureResponse, schema_types},
    pagination::{PageQuery, linked, sliced},
    streamed_json::{READING_BYTES, list as listed, record_texts},
};
pub(super) use crate::{
    base::{
        json::{BoundedInt, BoundedText, Faults, Form, ValueError, declared, parsed},
        keys::Principal,
    },
    runs::registry::Run,
};
