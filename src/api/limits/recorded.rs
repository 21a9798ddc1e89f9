//! Limits of media: what a source may ask of the decoder, and what is answered of it.

use std::collections::BTreeMap;

use super::{
    super::{media::StillEdge, signals::MaxPoints},
    Limit,
};
use crate::{small_stills, tickets};

/// What a source may ask of the decoder, and a reader of what was decoded; past one 422.
pub(super) fn of_media() -> BTreeMap<&'static str, Limit> {
    let limits = decode::Limits::default();
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
        ("media_ticket", Limit::most(tickets::LIFE.as_secs(), "seconds")),
        ("media_tickets", Limit::most(tickets::ALL_MAX, "open")),
        ("principal_media_tickets", Limit::most(tickets::OWN_MAX, "open")),
    ])
}
