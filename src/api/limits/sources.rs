//! Limits of live sessions, of remote and recorded sources, and of answers with media.

use transport::webrtc::PEER_BYTES_A_SECOND;

use super::{
    super::{keyframes::StillEdge, signals::MaxPoints},
    Limit, number, numbers, seconds,
};
use crate::{
    api::{
        App,
        whip::{
            self,
            attach_config::{self, ClipFps, LivePrompt, TokenRate},
        },
    },
    record::{
        live,
        remote::{FETCHES_MAX, GRACE, RATE_MIN, WAIT_MAX},
        runner::{self, EXCERPT_IDLE},
        small_stills,
    },
    runs::tickets,
};

/// Returns the limits of live sessions, and of publishers' fields, beyond which the answer is 400 or 413.
pub(super) fn of_live(app: &App) -> Vec<Limit> {
    let settings = &app.settings.live;
    let (length, delay) =
        (numbers(attach_config::CLIP_LENGTH_S), numbers(attach_config::CLIP_DELAY_S));
    let clip_default = number(attach_config::CLIP_S_DEFAULT);
    vec![
        Limit::most("whip.offer", whip::SDP_BYTES_MAX, "bytes"),
        Limit::most("whip.x-attach-config", attach_config::ENCODED_BYTES_MAX, "bytes of base64url"),
        Limit::within("whip.prompt", LivePrompt::BYTES, "bytes"),
        Limit::within("whip.max_output_tokens_per_second", TokenRate::RANGE, "tokens a second"),
        Limit::within("whip.clip_mode.target_fps", ClipFps::RANGE, "pictures a second")
            .default(attach_config::CLIP_FPS_DEFAULT),
        Limit::within("whip.clip_mode.clip_length_seconds", length, "seconds")
            .default(clip_default.clone()),
        Limit::within("whip.clip_mode.delay_seconds", delay, "seconds").default(clip_default),
        Limit::within("novelty_reuse", numbers(0.0..=1.0), "distance between embeddings")
            .default(number(app.settings.novelty.rule.distance_max.as_f64()))
            .by("SERVICE_NOVELTY_REUSE_THRESHOLD"),
        Limit::most("live_sessions", live::SESSIONS_MAX, "sessions, offers included"),
        Limit::most("live_session_memory", settings.memory_budget, "bytes of all sessions")
            .by("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"),
        Limit::most(
            "live_principal_memory",
            settings.memory_share,
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

/// Returns the limits of sources and of requests for recorded media; beyond one the answer is 422.
pub(super) fn of_media(jobs: usize) -> Vec<Limit> {
    let limits = decode::DemuxLimits::default();
    let (clips, own_clips) = runner::shared_max(jobs);
    vec![
        Limit::most("picture_width", limits.side_px, "pixels"),
        Limit::most("picture_height", limits.side_px, "pixels"),
        Limit::most("container_streams", limits.streams, "streams"),
        Limit::within("signals.max_points", MaxPoints::RANGE, "points"),
        Limit::within("keyframes.max_edge", StillEdge::RANGE, "pixels"),
        Limit::most("keyframes_kept", small_stills::KEPT_BYTES_MAX, "bytes of stills scaled down"),
        Limit::most("clip.to_ms", runner::EXCERPT_MS_MAX, "milliseconds after from_ms"),
        Limit::most("clip_time", runner::EXCERPT_TIME.as_secs(), "seconds until a clip is taken"),
        Limit::most("clip_idle", EXCERPT_IDLE.as_secs(), "seconds in which none of it is taken"),
        Limit::most("clips", clips, "at once"),
        Limit::most("principal_clips", own_clips, "at once"),
        Limit::most("clips_waiting", runner::QUEUE_MAX, "waiting"),
        seconds("media_ticket", tickets::LIFE),
        Limit::most("media_tickets", tickets::ALL_MAX, "open"),
        Limit::most("principal_media_tickets", tickets::OWN_MAX, "open"),
    ]
}

/// Returns the limits of sources on other hosts; beyond one the answer is 422.
pub(super) fn of_remote(app: &App) -> Vec<Limit> {
    use transport::egress::{CONNECT, FIRST_BYTE, IDLE, REDIRECTS_MAX};
    let bytes_max = app.settings.remote.bytes_max;
    let limits = worker::WorkerLimits::remote();
    let (jobs, own_jobs) = runner::shared_max(app.jobs);
    vec![
        Limit::most("remote_jobs", jobs, "at once"),
        Limit::most("principal_remote_jobs", own_jobs, "at once"),
        Limit::least("remote_rate", RATE_MIN, "bytes a second of waiting, once that is due"),
        seconds("remote_rate_due", GRACE),
        seconds("remote_wait", WAIT_MAX),
        Limit::most("remote", bytes_max, "bytes").by("SERVICE_REMOTE_MAX_BYTES"),
        Limit::most(
            "remote_fetches",
            FETCHES_MAX,
            "requests of a job, redirects too; a live source has no limit",
        ),
        Limit::most("remote_redirects", REDIRECTS_MAX, "redirects"),
        seconds("remote_connect", CONNECT),
        seconds("remote_first_byte", FIRST_BYTE),
        seconds("remote_idle", IDLE),
        seconds("remote_job_first_frame", limits.first_frame),
        seconds("remote_job_stall", limits.stall),
        Limit::most(
            "rtsp_reconnect",
            runner::RECONNECT_WITHIN.as_secs(),
            "seconds without a frame, in which a live source is dialled again",
        ),
        Limit::most("hls_playlist", worker::PLAYLIST_BYTES_MAX, "bytes"),
        Limit::most("hls_playlists", worker::PLAYLISTS_MAX, "playlists from the first to media"),
        Limit::most("hls_segments", worker::SEGMENTS_MAX, "segments of a playlist"),
    ]
}
