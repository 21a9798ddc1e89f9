//! State of a session before its first picture.

use serde_json::json;

use crate::support::{
    Setup, wait_until,
    whip::{Publication, clip, sightline},
};

#[test]
fn a_media_worker_has_started_when_the_first_picture_comes() {
    let Some(sightline) = sightline() else { return };
    let file = clip::scenes("A", 60);
    let server = Setup::temporary().start();
    assert_eq!(server.metric("service_live_workers"), 0.0);
    // The publisher connects, and no packet of a picture arrives.
    let options = ["--loss", "100"];
    let publication = Publication::start(&sightline, &server, &file, &json!({}), &options);
    let is = |series, value| server.metric(series) == value;
    wait_until("a connection", || is("service_live_connected_total", 1.0));
    wait_until("a worker", || is("service_live_workers", 1.0));
    assert_eq!(server.metric("service_live_pictures_total"), 0.0);
    drop(publication);
    wait_until("its end", || is("service_live_workers", 0.0));
}
