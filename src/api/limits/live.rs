//! Limits of live sessions and of the fields that publishers send.

use std::collections::BTreeMap;

use transport::webrtc::PEER_BYTES_A_SECOND;

use super::{Limit, number, numbers};
use crate::{
    api::{
        App,
        whip::{
            self,
            attach_config::{self, ClipFps, LivePrompt, TokenRate},
        },
    },
    record::live,
};

/// Returns the limits of live sessions, and of publishers' fields, beyond which the answer is 400 or 413.
pub(super) fn of_live(app: &App) -> BTreeMap<&'static str, Limit> {
    BTreeMap::from([
        ("whip.offer", Limit::most(whip::SDP_BYTES_MAX, "bytes")),
        (
            "whip.x-attach-config",
            Limit::most(attach_config::ENCODED_BYTES_MAX, "bytes of base64url"),
        ),
        ("whip.prompt", Limit::within(LivePrompt::BYTES, "bytes")),
        ("whip.max_output_tokens_per_second", Limit::within(TokenRate::RANGE, "tokens a second")),
        (
            "whip.clip_mode.target_fps",
            Limit::within(ClipFps::RANGE, "pictures a second")
                .default(attach_config::CLIP_FPS_DEFAULT),
        ),
        (
            "whip.clip_mode.clip_length_seconds",
            Limit::within(numbers(attach_config::CLIP_LENGTH_S), "seconds")
                .default(number(attach_config::CLIP_S_DEFAULT)),
        ),
        (
            "whip.clip_mode.delay_seconds",
            Limit::within(numbers(attach_config::CLIP_DELAY_S), "seconds")
                .default(number(attach_config::CLIP_S_DEFAULT)),
        ),
        (
            "novelty_reuse",
            Limit::within(numbers(0.0..=1.0), "distance between embeddings")
                .default(number(app.settings.novelty.rule.distance_max.as_f64()))
                .by("SERVICE_NOVELTY_REUSE_THRESHOLD"),
        ),
        ("live_sessions", Limit::most(live::SESSIONS_MAX, "sessions, offers included")),
        (
            "live_session_memory",
            Limit::most(app.settings.live.memory_budget, "bytes of all sessions")
                .by("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"),
        ),
        (
            "live_principal_memory",
            Limit::most(app.settings.live.memory_share, "bytes of the sessions of one principal")
                .by("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"),
        ),
        (
            "live_rate",
            Limit::most(
                PEER_BYTES_A_SECOND,
                "bytes a second of a publisher, 500 a packet at least",
            ),
        ),
        ("live_connect", Limit::most(live::CONNECT_WITHIN.as_secs(), "seconds from the offer")),
        ("live_silence", Limit::most(live::LOST_AFTER.as_secs(), "seconds")),
    ])
}
