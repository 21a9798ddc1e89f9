//! Limits of remote sources.

use super::{Limit, seconds};
use crate::{
    api::App,
    record::{
        remote::{FETCHES_MAX, GRACE, RATE_MIN, WAIT_MAX},
        runner,
    },
};

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
