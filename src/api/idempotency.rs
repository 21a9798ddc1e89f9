//! `Idempotency-Key`: middleware that routes opt into, so that a repeated request acts once.
//!
//! The request runs in its own task: a caller that disconnects does not cancel it, and can fetch the answer
//! later. Answers to server errors and to requests without effect are not stored; the key stays free if the
//! log shows no effect. A route that knows its body only at the end uses [`DeferredKey`] itself.

mod stored_response;

use std::ops::RangeInclusive;

use axum::{extract::State, middleware::Next};
use redb::WriteTransaction;
use timeline::LogState;
use tracing::Instrument;

use super::{
    extract::{caller, whole},
    jobs,
    prelude::*,
};
use crate::{
    base::percent,
    runs::idempotency::{
        BodyDigest, IdempotencyError, Interrupted, KeyLookup, KeyScope, KeyedRequest,
        RecoveredOutcome, StoredResponse, TRACED_MAX,
    },
};
use stored_response::{KeyedRequestContext, kept, replay};

pub use stored_response::{Taken, response, taken};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub const KEY_BYTES: RangeInclusive<usize> = 1..=255;

/// Header that makes a request act once; documented here, read by `key`.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "says what `key` reads")]
pub struct IdempotencyKey {
    /// A repetition with the same key within a day gets the first answer and has no effect. A
    /// refused request (4xx) leaves its key free. A principal with 4096 keys of the last day, or 64
    /// MiB of answers, gets 429 for a new key.
    #[param(rename = "idempotency-key", min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    idempotency_key: Option<String>,
}

/// Use of a key by a route that learns the body only at its end.
#[derive(Clone)]
pub enum DeferredKey {
    /// The request must be carried out, and its answer stored.
    Act(Arc<KeyedRequest>),
    /// A request with this body was answered before.
    Answered(BodyDigest, Arc<StoredResponse>),
}

impl DeferredKey {
    /// Returns the stored answer if there is one; fails if its request had another body.
    pub fn check(&self, fingerprint: BodyDigest) -> ApiResult<Option<Response>> {
        match self {
            DeferredKey::Act(_) => Ok(None),
            DeferredKey::Answered(known, answer) => {
                check_body(*known, fingerprint)?;
                Ok(Some(replay(StoredResponse::clone(answer))))
            }
        }
    }

    /// Stores the answer in the same transaction as `change`.
    pub fn answered(
        &self,
        change: &WriteTransaction,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), redb::Error> {
        match self {
            DeferredKey::Act(attempt) => attempt.answered_with(change, fingerprint, answer),
            DeferredKey::Answered(..) => Ok(()),
        }
    }
}

/// Carries out a request with a key once; reads the whole body first.
pub async fn idempotent(State(app): State<Arc<App>>, request: Request, next: Next) -> ApiResult {
    let Some(scope) = scope(&request)? else { return Ok(next.run(request).await) };
    let caller = caller(&request)?;
    let (parts, body) = whole(request, &app).await?;
    let run = run_in(parts.uri.path());
    let log_failed = !takes_events(&app);
    let tenant = caller.tenant.as_deref().unwrap_or_default();
    let fingerprint = BodyDigest::of(&[tenant.as_bytes(), &body]);
    let attempt = match begin(&app, scope, Some(fingerprint), &caller).await? {
        KeyLookup::Fresh(attempt) => attempt,
        KeyLookup::Answered(known, answer) => {
            check_body(known, fingerprint)?;
            app.metrics.replays.inc();
            return Ok(replay(answer));
        }
        KeyLookup::Interrupted(attempt, past) => {
            resume(&app, attempt, past, fingerprint, run).await?
        }
        KeyLookup::UnderWay => {
            let mut request = Request::from_parts(parts, Body::from(body));
            // A job route waits for the same job.
            return match jobs::kind_in(request.uri().path()) {
                Some(_) => {
                    request.extensions_mut().insert(JoinsOnly);
                    Ok(next.run(request).await)
                }
                None => Err(ApiError::UnderWay),
            };
        }
        KeyLookup::Full { frees_in } => return Err(ApiError::KeysFull { frees_in }),
    };
    let request = Request::from_parts(parts, Body::from(body));
    let asked = KeyedRequestContext { attempt, fingerprint, run, log_failed };
    let carried_out = async move {
        let response = next.run(request).await;
        kept(&app, &caller, asked, response).await
    };
    let carried_out = tokio::spawn(carried_out.in_current_span());
    carried_out.await.map_err(|_| ApiError::Bug("a handler panicked"))?
}

/// Passes a request with a key to its handler, with a [`DeferredKey`] as extension.
pub async fn idempotent_deferred(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> ApiResult {
    let Some(scope) = scope(&request)? else { return Ok(next.run(request).await) };
    let caller = caller(&request)?;
    let ticket = match begin(&app, scope, None, &caller).await? {
        KeyLookup::Fresh(attempt) => DeferredKey::Act(Arc::new(attempt)),
        KeyLookup::Answered(known, answer) => DeferredKey::Answered(known, Arc::new(answer)),
        // The answer is stored in the same transaction as the effect, so an interrupted request had none.
        KeyLookup::Interrupted(attempt, _) => DeferredKey::Act(Arc::new(attempt)),
        KeyLookup::UnderWay => return Err(ApiError::UnderWay),
        KeyLookup::Full { frees_in } => return Err(ApiError::KeysFull { frees_in }),
    };
    request.extensions_mut().insert(ticket.clone());
    let carried_out = async move {
        let response = next.run(request).await;
        if let DeferredKey::Act(attempt) = ticket {
            let is_kept = response.status().is_success();
            let settled = move || if is_kept { attempt.settle() } else { attempt.refused() };
            app.blocking(settled).await??;
        }
        Ok(response)
    };
    let carried_out = tokio::spawn(carried_out.in_current_span());
    carried_out.await.map_err(|_| ApiError::Bug("a handler panicked"))?
}

/// Marks a request whose key is in progress: it may only join the running job.
#[derive(Clone, Copy)]
pub struct JoinsOnly;

async fn begin(
    app: &Arc<App>,
    scope: KeyScope,
    fingerprint: Option<BodyDigest>,
    caller: &Caller,
) -> ApiResult<KeyLookup> {
    let (keys, id, head) =
        (Arc::clone(&app.idempotency), caller.request_id, app.registry.timeline().head());
    let timeline = app.registry.timeline().clone();
    // The answer will be stored, whatever else the request stores.
    let room = app.check_disk().and_then(|()| Ok(app.quota.check(&scope.owner)?));
    let begin = move || -> ApiResult<KeyLookup> {
        let owner = scope.owner.clone();
        let mut begun = keys.begin(scope.clone(), fingerprint, id, head, keys.now())?;
        // Removes records without an answer before it refuses the request.
        if matches!(begun, KeyLookup::Full { .. })
            && keys.make_room(&owner, &timeline).map_err(|error| match error {
                IdempotencyError::Ledger(error) => ApiError::from(error),
                IdempotencyError::Log(error) => ApiError::from(error),
            })?
        {
            begun = keys.begin(scope, fingerprint, id, head, keys.now())?;
        }
        if let (KeyLookup::Fresh(attempt), Err(error)) = (&begun, room) {
            attempt.refused()?;
            return Err(error);
        }
        Ok(begun)
    };
    app.blocking(begin).await?
}

/// Restarts an interrupted request that had no effect; refuses one that had.
async fn resume(
    app: &Arc<App>,
    mut attempt: KeyedRequest,
    past: Interrupted,
    fingerprint: BodyDigest,
    run: Option<RunId>,
) -> ApiResult<KeyedRequest> {
    let timeline = app.registry.timeline().clone();
    let resumed = move || -> ApiResult<KeyedRequest> {
        let trace = past.trace(&timeline, run, TRACED_MAX)?;
        if trace == RecoveredOutcome::Nothing {
            attempt.write(Some(fingerprint), timeline.head())?;
            return Ok(attempt);
        }
        if let Some(known) = past.fingerprint {
            check_body(known, fingerprint)?;
        }
        let request_id = past.request_id;
        Err(match trace {
            RecoveredOutcome::Run(run) => ApiError::AnswerLost { request_id, run },
            RecoveredOutcome::Nothing | RecoveredOutcome::Unknown => {
                ApiError::AnswerUnknown { request_id }
            }
        })
    };
    app.blocking(resumed).await?
}

fn check_body(known: BodyDigest, asked: BodyDigest) -> ApiResult<()> {
    if known == asked {
        return Ok(());
    }
    let text = "was used for a request with another body: use a new key for a new request";
    Err(ApiError::field(KEY.as_str(), text))
}

/// Returns the scope of the request's key; `None` without a key.
fn scope(request: &Request) -> ApiResult<Option<KeyScope>> {
    let Some(key) = key(request.headers())? else { return Ok(None) };
    // Decoded, so that every spelling of the path is the same route.
    let path = percent::decode(request.uri().path().as_bytes()).unwrap_or_default();
    let route = format!("{} {path}", request.method());
    Ok(Some(KeyScope::new(&caller(request)?.principal, &route, key)))
}

fn key(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let mut keys = headers.get_all(KEY).into_iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let visible = key.as_bytes().iter().all(u8::is_ascii_graphic);
    let fits = visible && KEY_BYTES.contains(&key.len()) && keys.next().is_none();
    let text = key.to_str().ok().filter(|_| fits);
    let told = || ApiError::field(KEY.as_str(), "must be one of 1 to 255 visible ASCII characters");
    text.map(Some).ok_or_else(told)
}

fn takes_events(app: &App) -> bool {
    app.registry.timeline().state() == LogState::Writable
}

/// Returns the run that the path of a request names, percent-decoded as handlers get it.
pub fn run_in(path: &str) -> Option<RunId> {
    let id = path.strip_prefix("/v1/runs/")?.split('/').next()?;
    percent::decode(id.as_bytes())?.parse().ok()
}
