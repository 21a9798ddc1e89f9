//! Publishers at the addresses of either family.

use serde_json::json;

use crate::support::{
    Setup, skip, this_test,
    whip::{Publication, clip, sightline},
};

#[test]
fn video_arrives_at_addresses_of_both_families() {
    let Some(sightline) = sightline() else { return };
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return skip(&this_test(), "no IPv6 on this machine");
    }
    for (bind, public, offered_to) in [
        ("[::1]:0", "", "[::1]"),
        ("[::]:0", "127.0.0.1,::1", "[::1]"),
        ("[::]:0", "127.0.0.1,::1", "127.0.0.1"),
        ("[::]:0", "", "127.0.0.1"),
    ] {
        let case = format!("{bind}, {public:?}, offered to {offered_to}");
        let file = clip::scenes("AB", 0);
        let setup = Setup::temporary().var("SERVICE_BIND_ADDR", bind);
        let server = setup.var("SERVICE_WEBRTC_PUBLIC_IPS", public).start();
        let (_, port) = server.addr().rsplit_once(':').expect("a port");
        let offered_to = format!("{offered_to}:{port}");
        let publication = Publication::start_at(&sightline, &offered_to, &file, &json!({}), &[]);
        let (run, figures) = publication.finish();
        assert_eq!((&figures["connected"], &figures["lost"]), (&json!(1), &json!(0)), "{case}");
        assert_eq!(server.payloads(&run, "run_completed")[0]["frames"], 2 * clip::RATE, "{case}");
    }
}
