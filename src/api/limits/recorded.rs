//! Limits of recorded media: of sources for the decoder, and of answers with media.

use super::{
    super::{keyframes::StillEdge, signals::MaxPoints},
    Limit, seconds,
};
use crate::{
    record::{
        runner::{EXCERPT_IDLE, EXCERPT_MS_MAX, EXCERPT_TIME, QUEUE_MAX, shared_max},
        small_stills,
    },
    runs::tickets,
};

/// Returns the limits of sources and of requests for recorded media; beyond one the answer is 422.
pub(super) fn of_media(jobs: usize) -> Vec<Limit> {
    let limits = decode::DemuxLimits::default();
    let (clips, own_clips) = shared_max(jobs);
    vec![
        Limit::most("picture_width", limits.side_px, "pixels"),
        Limit::most("picture_height", limits.side_px, "pixels"),
        Limit::most("container_streams", limits.streams, "streams"),
        Limit::within("signals.max_points", MaxPoints::RANGE, "points"),
        Limit::within("keyframes.max_edge", StillEdge::RANGE, "pixels"),
        Limit::most("keyframes_kept", small_stills::KEPT_BYTES_MAX, "bytes of stills scaled down"),
        Limit::most("clip.to_ms", EXCERPT_MS_MAX, "milliseconds after from_ms"),
        Limit::most("clip_time", EXCERPT_TIME.as_secs(), "seconds until a clip is taken"),
        Limit::most("clip_idle", EXCERPT_IDLE.as_secs(), "seconds in which none of it is taken"),
        Limit::most("clips", clips, "at once"),
        Limit::most("principal_clips", own_clips, "at once"),
        Limit::most("clips_waiting", QUEUE_MAX, "waiting"),
        seconds("media_ticket", tickets::LIFE),
        Limit::most("media_tickets", tickets::ALL_MAX, "open"),
        Limit::most("principal_media_tickets", tickets::OWN_MAX, "open"),
    ]
}
