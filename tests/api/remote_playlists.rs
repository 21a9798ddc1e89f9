//! Remote playlists where the operator has not allowed them: refused by the setting's name.

use crate::{api::remote::ingest, support::shared};

#[test]
fn a_remote_playlist_is_refused_with_the_setting_that_allows_it() {
    let server = shared();
    let run = server.create_run();
    // Nobody answers for these names, and nobody has to.
    let rows = [
        ("https://no-such-name.invalid/live/index.m3u8", "SERVICE_ALLOW_REMOTE_HLS=true"),
        ("https://no-such-name.invalid/a.M3U?token=b", "SERVICE_ALLOW_REMOTE_HLS=true"),
        ("http://no-such-name.invalid/index.m3u8", "SERVICE_ALLOW_INSECURE_HTTP=true"),
        ("rtsp://no-such-name.invalid/a", "SERVICE_ALLOW_UNENCRYPTED_RTSP=true"),
    ];
    for (source, setting) in rows {
        let reply = ingest(&server, &run, source);
        assert_eq!(reply.status, 422, "{source}: {}", reply.text);
        assert!(reply.source_message().contains(setting), "{source}: {}", reply.text);
    }
    assert_eq!(server.kinds(&run), ["run_created"]);
}
