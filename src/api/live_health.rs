//! Health of the live session of a run.

use super::prelude::*;
use crate::base::clock::millis;

/// Health of a live session. Figures cover the last `window_ms`, about five seconds at most.
#[derive(Serialize, ToSchema)]
pub struct SessionHealth {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    session_id: schema_types::SessionId,
    /// `good`: every figure is within its bound. `fair`: one is not. `poor`: several are not, or one is five
    /// times over. `silent`: no packet for 5 s, or none yet.
    word: schema_types::HealthStatus,
    /// Explanation of the status in a sentence; for `poor` and `silent` with a remedy.
    rule: String,
    window_ms: u64,
    /// Percentage of video packets lost on first transmission; bound: 1. Most are retransmitted in time.
    lost_percent: f64,
    /// Packets that never arrived.
    given_up: u64,
    /// Interarrival jitter of packets (RFC 3550); bound: 30.
    jitter_ms: f64,
    /// Bit rate of video in bits per second, retransmissions included.
    bits_per_second: u64,
    /// Frames decided by the gate, per second.
    frames_per_second: f64,
    /// Milliseconds from the last packet of a picture to the gate's decision; bound: 1000.
    behind_ms: u64,
    /// Pictures dropped for lack of room in the decoder, and pictures that refer to them.
    dropped: u64,
    /// Pictures that failed to decode.
    damaged: u64,
    /// Stills, and images for models, dropped for lack of room.
    unkept: u64,
    /// Milliseconds since the last packet; null before the first.
    #[schema(required = true)]
    since_packet_ms: Option<u64>,
    /// Milliseconds since the last complete picture; null before the first.
    #[schema(required = true)]
    since_picture_ms: Option<u64>,
}

/// Rounds to one decimal, the precision of these figures.
fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Fetch the health of the live session of a run; 409 if the run has none.
#[utoipa::path(
    get, path = "/v1/runs/{id}/health", operation_id = "getSessionHealth", tag = "live",
    responses((status = 200, description = "Its figures", body = SessionHealth), FailureResponse<409>),
)]
pub async fn fetch(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<SessionHealth>> {
    let session = app.live.of(&run).ok_or(ApiError::NotLive)?;
    let health = session.health();
    Ok(Json(SessionHealth {
        request_id: caller.request_id.into(),
        run_id: run.id().into(),
        session_id: session.id.into(),
        word: health.word.into(),
        rule: health.rule,
        window_ms: millis(health.window),
        lost_percent: tenths(health.lost_percent),
        given_up: health.given_up,
        jitter_ms: tenths(health.jitter.as_secs_f64() * 1e3),
        bits_per_second: health.bits_per_second,
        frames_per_second: tenths(health.frames_per_second),
        behind_ms: millis(health.behind),
        dropped: health.dropped,
        damaged: health.damaged,
        unkept: health.unkept,
        since_packet_ms: health.since_packet.map(millis),
        since_picture_ms: health.since_picture.map(millis),
    }))
}
