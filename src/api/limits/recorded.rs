//! Limits of recorded media: of sources for the decoder, and of answers with media.

use std::collections::BTreeMap;

use super::{
    super::{keyframes::StillEdge, signals::MaxPoints},
    Limit,
};
use crate::{
    record::{
        runner::{EXCERPT_IDLE, EXCERPT_MS_MAX, EXCERPT_TIME, QUEUE_MAX, excerpts_max},
        small_stills,
    },
    runs::tickets,
};

/// Returns the limits of sources and of requests for recorded media; beyond one the answer is 422.
pub(super) fn of_media(jobs: usize) -> BTreeMap<&'static str, Limit> {
    let limits = decode::DemuxLimits::default();
    let (clips, own_clips) = excerpts_max(jobs);
    BTreeMap::from([
        ("picture_width", Limit::most(limits.side_px, "pixels")),
        ("picture_height", Limit::most(limits.side_px, "pixels")),
        ("container_streams", Limit::most(limits.streams, "streams")),
        ("signals.max_points", Limit::within(MaxPoints::RANGE, "points")),
        ("keyframes.max_edge", Limit::within(StillEdge::RANGE, "pixels")),
        (
            "keyframes_kept",
            Limit::most(small_stills::KEPT_BYTES_MAX, "bytes of stills scaled down"),
        ),
        ("clip.to_ms", Limit::most(EXCERPT_MS_MAX, "milliseconds after from_ms")),
        ("clip_time", Limit::most(EXCERPT_TIME.as_secs(), "seconds until a clip is taken")),
        ("clip_idle", Limit::most(EXCERPT_IDLE.as_secs(), "seconds in which none of it is taken")),
        ("clips", Limit::most(clips, "at once")),
        ("principal_clips", Limit::most(own_clips, "at once")),
        ("clips_waiting", Limit::most(QUEUE_MAX, "waiting")),
        ("media_ticket", Limit::most(tickets::LIFE.as_secs(), "seconds")),
        ("media_tickets", Limit::most(tickets::ALL_MAX, "open")),
        ("principal_media_tickets", Limit::most(tickets::OWN_MAX, "open")),
    ])
}
