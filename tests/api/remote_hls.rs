//! HLS playlists behind URLs: how much one may ask for. `worker/tests/worker/hls.rs` has what they give and why they are refused,
//! `goldens.rs` the events of one, `forgery.rs` where they may lead.

use crate::{
    api::remote::{refused, setup},
    support::host::{Answer, Certificate, Host},
};

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_playlist_has_a_bound_of_requests_and_uses_connections_again() {
    let certificate = Certificate::new();
    let segments = "#EXTINF:1,\nnull.ts\n".repeat(5000);
    let playlist = format!("#EXTM3U\n#EXT-X-TARGETDURATION:3\n{segments}#EXT-X-ENDLIST\n");
    // A packet that carries nothing: segments without a frame.
    let packet = [&[0x47, 0x1f, 0xff, 0x10][..], &[0xff; 184]].concat().repeat(10);
    let host = Host::start(&certificate, move |asked, out| match asked.path.as_str() {
        "/null.ts" => out.ranged(asked, &packet, &[]),
        _ => out.ranged(asked, playlist.as_bytes(), &[]),
    });
    let server = setup(&certificate).var("SERVICE_ALLOW_REMOTE_HLS", "true").start();
    let many = [(host.url("/many.m3u8"), "too large: more than 4096 requests")];
    refused(&server, &server.create_run(), many);
    let (requests, connections) = (host.asked().len(), host.connections());
    // Which side is done with a connection first decides how often.
    assert!(connections < requests / 2, "{requests} requests over {connections} connections");
}
