//! Limits of remote sources.

use std::{collections::BTreeMap, time::Duration};

use super::Limit;
use crate::{
    api::App,
    record::{
        remote::{FETCHES_MAX, GRACE, RATE_MIN, WAIT_MAX},
        runner,
    },
};

/// Returns the limits of sources on other hosts; beyond one the answer is 422.
pub(super) fn of_remote(app: &App) -> BTreeMap<&'static str, Limit> {
    use transport::egress::{CONNECT, FIRST_BYTE, IDLE, REDIRECTS_MAX};
    let bytes_max = app.settings.remote.bytes_max;
    let limits = worker::WorkerLimits::remote();
    let seconds = |time: Duration| Limit::most(time.as_secs(), "seconds");
    let (jobs, own_jobs) = runner::remotes_max(app.jobs);
    BTreeMap::from([
        ("remote_jobs", Limit::most(jobs, "at once")),
        ("principal_remote_jobs", Limit::most(own_jobs, "at once")),
        (
            "remote_rate",
            Limit {
                min: Some(RATE_MIN.into()),
                ..Limit::switched(None::<u64>, "bytes a second of waiting, once that is due")
            },
        ),
        ("remote_rate_due", seconds(GRACE)),
        ("remote_wait", seconds(WAIT_MAX)),
        ("remote", Limit::most(bytes_max, "bytes").by("SERVICE_REMOTE_MAX_BYTES")),
        (
            "remote_fetches",
            Limit::most(
                FETCHES_MAX,
                "requests of a job, redirects too; a live source has no limit",
            ),
        ),
        ("remote_redirects", Limit::most(REDIRECTS_MAX, "redirects")),
        ("remote_connect", seconds(CONNECT)),
        ("remote_first_byte", seconds(FIRST_BYTE)),
        ("remote_idle", seconds(IDLE)),
        ("remote_job_first_frame", seconds(limits.first_frame)),
        ("remote_job_stall", seconds(limits.stall)),
        (
            "rtsp_reconnect",
            Limit::most(
                runner::RECONNECT_WITHIN.as_secs(),
                "seconds without a frame, in which a live source is dialled again",
            ),
        ),
        ("hls_playlist", Limit::most(worker::PLAYLIST_BYTES_MAX, "bytes")),
        ("hls_playlists", Limit::most(worker::PLAYLISTS_MAX, "playlists from the first to media")),
        ("hls_segments", Limit::most(worker::SEGMENTS_MAX, "segments of a playlist")),
    ])
}
