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
    let rows: [(&str, &str, &[&str]); 3] = [
        ("[::1]:0", "", &["[::1]"]),
        ("[::]:0", "127.0.0.1,::1", &["[::1]", "127.0.0.1"]),
        ("[::]:0", "", &["127.0.0.1"]),
    ];
    let file = clip::scenes("AB", 0);
    for (bind, public, all) in rows {
        let setup = Setup::temporary().var("SERVICE_BIND_ADDR", bind);
        let server = setup.var("SERVICE_WEBRTC_PUBLIC_IPS", public).start();
        let (_, port) = server.addr().rsplit_once(':').expect("a port");
        for offered_to in all {
            let case = format!("{bind}, {public:?}, offered to {offered_to}");
            let to = format!("{offered_to}:{port}");
            let (run, figures) =
                Publication::start_at(&sightline, &to, &file, &json!({}), &[]).finish();
            assert_eq!((&figures["connected"], &figures["lost"]), (&json!(1), &json!(0)), "{case}");
            let frames = &server.payloads(&run, "run_completed")[0]["frames"];
            assert_eq!(*frames, 2 * clip::RATE, "{case}");
        }
    }
}
