//! Without a part of the sandbox in the kernel, no media is read unless the operator allows it.

use serde_json::json;

use super::{uploads::uploading, whip};
use crate::support::{Reply, Server, Setup, clip_bytes, no_landlock::without_landlock};

/// A server on a kernel without landlock.
fn start(setup: &Setup) -> Server {
    without_landlock(|| setup.start())
}

fn ingest(server: &Server) -> Reply {
    let run = server.create_run();
    server.post_run(&run, "ingest", &json!({ "source_uri": "motion.mp4" }))
}

#[test]
fn without_landlock_media_is_refused_with_the_setting_that_allows_it() {
    let setup = Setup::temporary().clips();
    // As where nobody sets it.
    let server = start(&setup.clone().var("SERVICE_SANDBOX", ""));
    let ready = server.get("/v1/ready").json();
    assert_eq!(ready["sandbox"], "unavailable", "{ready}");
    let said = |text: &str| {
        text.contains("media is refused") && text.contains("SERVICE_SANDBOX=best-effort")
    };
    assert!(said(ready["sandbox_detail"].as_str().expect("says what is missing")), "{ready}");
    // The second finds a worker that waited.
    for _ in 0..2 {
        let reply = ingest(&server);
        assert_eq!((reply.status, said(&reply.text)), (503, true), "{}", reply.text);
    }
    let upload = uploading(&server, "motion.mp4", &clip_bytes("motion.mp4"));
    let offer = whip::publishing(&server, &whip::offer("VP8"));
    for reply in [upload.send(), offer.send()] {
        assert_eq!((reply.status, said(&reply.text)), (503, true), "{}", reply.text);
    }
    // What needs no media goes on.
    let run = server.create_run();
    assert_eq!(server.get(&format!("/v1/runs/{run}")).status, 200);
    drop(server);

    let server = start(&setup.var("SERVICE_SANDBOX", "best-effort"));
    let ready = server.get("/v1/ready").json();
    assert_eq!(ready["sandbox"], "partial", "{ready}");
    assert!(ready["sandbox_detail"].as_str().is_some_and(|lacks| lacks.contains("no landlock")));
    ingest(&server).assert_ok();
}
