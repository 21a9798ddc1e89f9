//! Media tickets: query parameters that replace the key in URLs of images and videos, which cannot send one.

use std::time::Instant;

use axum::extract::MatchedPath;
use media::WallTime;

use super::{idempotency::run_in, prelude::*};
use crate::{base::clock::wall_now, runs::tickets::LIFE};

/// Routes that accept a ticket, for GET and HEAD.
const OPENED: [&str; 3] =
    ["/v1/runs/{id}/source", "/v1/runs/{id}/clip", "/v1/runs/{id}/keyframes/{sha256}"];

/// Ticket of a request for media of a run.
pub struct Shown<'a> {
    ticket: &'a str,
    run: Option<RunId>,
}

impl Shown<'_> {
    /// Returns the ticket in the query of `request`, if its route accepts one.
    pub fn of(request: &Request) -> Option<Shown<'_>> {
        let route = request.extensions().get::<MatchedPath>()?;
        if !OPENED.contains(&route.as_str())
            || !matches!(*request.method(), Method::GET | Method::HEAD)
        {
            return None;
        }
        let ticket =
            request.uri().query()?.split('&').find_map(|pair| pair.strip_prefix("ticket="))?;
        Some(Shown { ticket, run: run_in(request.uri().path()) })
    }

    /// Returns the owner of the run that the ticket is for, while the run exists.
    pub fn owner(&self, app: &App) -> Option<Principal> {
        let run = self.run?;
        let owner = app.tables.tickets.owner(self.ticket, run, Instant::now())?;
        app.registry.find(run, &owner).map(|_| owner)
    }
}

/// Query parameter with a ticket that replaces the key.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "says what `Shown` reads")]
pub struct TicketQuery {
    /// Media ticket of the run, for a request without a key; ignored beside a key.
    ticket: Option<String>,
}

/// A ticket for the media of a run.
#[derive(Serialize, ToSchema)]
pub struct MediaTicket {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    /// The ticket; as secret as a key until it expires.
    #[schema(pattern = "^tk-[0-9a-f]{64}$")]
    ticket: String,
    expires_at: schema_types::Timestamp,
}

/// Create a ticket that opens source, clips and stills of a run for ten minutes, as `?ticket=`.
///
/// The ticket replaces the key. It also ends when the run is deleted or the server stops.
#[utoipa::path(
    post, path = "/v1/runs/{id}/media-ticket", operation_id = "createMediaTicket", tag = "runs",
    responses((status = 200, description = "The ticket", body = MediaTicket), FailureResponse<503>),
)]
pub async fn create(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<MediaTicket>> {
    let Caller { request_id, principal, .. } = caller;
    let ticket = app.tables.tickets.issue(&principal, run.id(), Instant::now());
    let ticket = ticket.map_err(ApiError::TicketsFull)?;
    let expires_at = WallTime { epoch_ms: wall_now().epoch_ms + LIFE.as_millis() as i64 }.into();
    Ok(Json(MediaTicket {
        request_id: request_id.into(),
        run_id: run.id().into(),
        ticket,
        expires_at,
    }))
}
