//! Limits of live sessions and of the fields that publishers send.

use transport::webrtc::PEER_BYTES_A_SECOND;

use super::{Limit, number, numbers, seconds};
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
pub(super) fn of_live(app: &App) -> Vec<Limit> {
    vec![
        Limit::most("whip.offer", whip::SDP_BYTES_MAX, "bytes"),
        Limit::most("whip.x-attach-config", attach_config::ENCODED_BYTES_MAX, "bytes of base64url"),
        Limit::within("whip.prompt", LivePrompt::BYTES, "bytes"),
        Limit::within("whip.max_output_tokens_per_second", TokenRate::RANGE, "tokens a second"),
        Limit::within("whip.clip_mode.target_fps", ClipFps::RANGE, "pictures a second")
            .default(attach_config::CLIP_FPS_DEFAULT),
        Limit::within(
            "whip.clip_mode.clip_length_seconds",
            numbers(attach_config::CLIP_LENGTH_S),
            "seconds",
        )
        .default(number(attach_config::CLIP_S_DEFAULT)),
        Limit::within(
            "whip.clip_mode.delay_seconds",
            numbers(attach_config::CLIP_DELAY_S),
            "seconds",
        )
        .default(number(attach_config::CLIP_S_DEFAULT)),
        Limit::within("novelty_reuse", numbers(0.0..=1.0), "distance between embeddings")
            .default(number(app.settings.novelty.rule.distance_max.as_f64()))
            .by("SERVICE_NOVELTY_REUSE_THRESHOLD"),
        Limit::most("live_sessions", live::SESSIONS_MAX, "sessions, offers included"),
        Limit::most(
            "live_session_memory",
            app.settings.live.memory_budget,
            "bytes of all sessions",
        )
        .by("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"),
        Limit::most(
            "live_principal_memory",
            app.settings.live.memory_share,
            "bytes of the sessions of one principal",
        )
        .by("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"),
        Limit::most(
            "live_rate",
            PEER_BYTES_A_SECOND,
            "bytes a second of a publisher, 500 a packet at least",
        ),
        Limit::most("live_connect", live::CONNECT_WITHIN.as_secs(), "seconds from the offer"),
        seconds("live_silence", live::LOST_AFTER),
    ]
}
