//! While keys are off: pages of other sites that a browser on this machine shows change and read nothing.

use serde_json::json;

use super::{uploads, whip};
use crate::support::{Call, Server, Setup, clips, shared};

#[test]
fn without_keys_everybody_here_is_one_principal_and_pages_of_others_are_nobody() {
    let server = Setup::temporary().var("SERVICE_REQUIRE_API_KEY", "false").start();
    only_local_names_are_answered(&server);
    a_post_has_a_header_that_no_foreign_page_sends(&server);
    let run = server.call("POST", "/v1/runs").key(None).json(&json!({})).send().run();
    let path = format!("/v1/runs/{run}");
    assert_eq!(server.call("GET", &path).key(Some("anything")).send().status, 200);
    // What a browser asks about itself needs no more.
    assert_eq!(server.call("DELETE", &path).key(None).send().status, 200);
}

fn only_local_names_are_answered(server: &Server) {
    let port = server.addr().rsplit_once(':').expect("a port").1.to_owned();
    let rows = [
        ("localhost".to_owned(), 200),
        (format!("localhost:{port}"), 200),
        (format!("127.0.0.1:{port}"), 200),
        (format!("[::1]:{port}"), 200),
        (format!("evil.example:{port}"), 421),
        ("evil.example".to_owned(), 421),
        ("10.0.0.1".to_owned(), 421),
    ];
    for (host, status) in rows {
        let named = |path| server.call("GET", path).key(None).header("host", &host).send();
        let reply = named("/v1/runs");
        assert_eq!(reply.status, status, "{host}: {}", reply.text);
        assert_eq!(reply.text.contains("SERVICE_API_KEYS"), status == 421, "{}", reply.text);
        assert_eq!(named("/v1/health").status, 200, "{host}: it tells nothing");
    }
    // A key is as good a proof as any: with keys, names matter to nobody.
    let guarded = shared();
    assert_eq!(guarded.call("GET", "/v1/runs").header("host", "evil.example").send().status, 200);
}

fn a_post_has_a_header_that_no_foreign_page_sends(server: &Server) {
    let post = |path: &str| server.call("POST", path).key(None);
    let typed = |kind: &str| post("/v1/runs").header("content-type", kind).body("{}");
    let stop = format!("/v1/runs/{}/stop", typed("application/json").send().run());
    let clip = std::fs::read(clips().join("motion.mp4")).expect("a clip");
    let form = uploads::file_form("a.mp4", &clip);
    let upload = || post("/v1/upload").header("content-type", uploads::TYPE).body(form.clone());
    let asked = |call: Call<'_>| call.header("x-requested-with", "test").send();
    let offer = whip::publishing(server, &whip::offer("VP8")).key(None);
    let rows = [
        ("a form", typed("application/x-www-form-urlencoded").send(), 403),
        ("text", typed("text/plain;charset=UTF-8").send(), 403),
        ("text with a claim", typed("Text/Plain; a=application/json").send(), 403),
        ("no type", post("/v1/runs").body("{}").send(), 403),
        ("an upload", upload().send(), 403),
        ("an upload that was asked about", asked(upload()), 200),
        ("a key", upload().header("x-api-key", "any").send(), 200),
        ("an offer", offer.send(), 201),
        ("nothing", post(&stop).send(), 403),
        ("nothing, asked about", asked(post(&stop)), 200),
    ];
    for (name, reply, status) in rows {
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
        assert_eq!(reply.text.contains("x-requested-with"), status == 403, "{}", reply.text);
    }
}
