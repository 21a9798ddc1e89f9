//! Media tickets: what they open and to whom, what ends them, and that nothing writes them down.

use std::fs;

use serde_json::json;

use crate::support::{ALICE, BOB, Server, Setup, assert_has, eventually, files, shared};

/// A run with a source and a still, and the paths of both.
fn ingested(server: &Server) -> (String, [String; 2]) {
    let run = server.ingested(&json!({"source_uri": "motion.mp4", "max_frames": 2}));
    let paths = [format!("/v1/runs/{run}/source"), server.still_paths(&run).remove(0)];
    (run, paths)
}

fn ticket(server: &Server, run: &str) -> String {
    let reply = server.call("POST", &format!("/v1/runs/{run}/media-ticket")).send().assert_ok();
    assert_eq!(reply.header("cache-control"), "no-store");
    let answer = reply.json();
    assert_has(&answer, &json!({"request_id": reply.header("x-request-id"), "run_id": run}));
    let expires = answer["expires_at"].as_str().expect("a time");
    assert!(expires.len() == 24 && expires.ends_with('Z'), "{expires}");
    answer["ticket"].as_str().expect("a ticket").to_owned()
}

/// The status of a request that shows a ticket and no key.
fn shown(server: &Server, method: &str, path: &str, ticket: &str) -> u16 {
    server.call(method, &format!("{path}?ticket={ticket}")).key(None).send().status
}

#[test]
fn a_ticket_opens_the_media_of_its_run_and_nothing_else() {
    let server = shared().with_clips();
    let (run, paths) = ingested(&server);
    let (other, of_other) = ingested(&server);
    let first = ticket(&server, &run);
    let second = ticket(&server, &run);
    assert_ne!(first, second);
    for path in &paths {
        let expected = server.get(path);
        assert_eq!(expected.status, 200);
        for ticket in [&first, &second] {
            let found = server.call("GET", &format!("{path}?x=1&ticket={ticket}")).key(None).send();
            assert_eq!((found.status, &found.bytes), (200, &expected.bytes), "{path}");
            assert_eq!(shown(&server, "HEAD", path, ticket), 200, "{path}");
            let spelled = path.replace("run-", "run%2D");
            assert_eq!(shown(&server, "GET", &spelled, ticket), 200, "{spelled}");
        }
        assert_eq!(shown(&server, "GET", &of_other[usize::from(path != &paths[0])], &first), 401);
        assert_eq!(server.call("GET", path).key(None).send().status, 401);
        assert_eq!(shown(&server, "POST", path, &first), 401, "{path}");
    }
    let part = server.call("GET", &format!("{}?ticket={first}", paths[0])).key(None);
    assert_eq!(part.header("range", "bytes=0-9").send().status, 206);
    for rest in ["", "/events", "/signals", "/frames/0", "/keyframes", "/markers", "/state"] {
        assert_eq!(shown(&server, "GET", &format!("/v1/runs/{run}{rest}"), &first), 401, "{rest}");
    }
    for rest in ["/stop", "/media-ticket", "/keepalive"] {
        assert_eq!(shown(&server, "POST", &format!("/v1/runs/{run}{rest}"), &first), 401, "{rest}");
    }
    assert_eq!(shown(&server, "DELETE", &format!("/v1/runs/{run}"), &first), 401);
    // A key beside it is what counts.
    let both =
        |key| server.call("GET", &format!("{}?ticket={first}", paths[0])).key(key).send().status;
    assert_eq!([both(Some(ALICE)), both(Some(BOB)), both(Some("no-such-key"))], [200, 404, 401]);
    assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
    for path in &paths {
        assert_eq!(shown(&server, "GET", path, &first), 401, "gone with the run");
    }
    assert_eq!(shown(&server, "GET", &of_other[0], &ticket(&server, &other)), 200);
}

#[test]
fn wrong_tickets_count_as_wrong_keys_and_no_ticket_is_written_down() {
    let setup = Setup::temporary().clips().var("SERVICE_REQUIRE_TENANT_ID", "false");
    let log = setup.dir().join("stderr");
    let setup = setup.log_to(&log);
    let server = setup.start();
    let (run, paths) = ingested(&server);
    let ticket = ticket(&server, &run);
    let path = &paths[0];
    let wrong = server
        .call("GET", &format!("{path}?ticket=tk-0"))
        .key(None)
        .send()
        .assert_refused(401, "unauthorized");
    assert_eq!(wrong.header("www-authenticate"), "Bearer");
    let late = (0..500).map(|at| shown(&server, "GET", path, &format!("{ticket}{at}")));
    assert_eq!(late.into_iter().find(|status| *status != 401), Some(429), "of one address so many");
    for path in &paths {
        assert_eq!(shown(&server, "GET", path, &ticket), 200, "and nobody is locked out");
    }
    let last = server.get("/v1/health").header("x-request-id").to_owned();
    let text = eventually("a line of it", || {
        Some(fs::read_to_string(&log).expect("readable")).filter(|text| text.contains(&last))
    });
    assert!(text.contains(path), "requests are logged");
    assert!(!text.contains(&ticket) && !text.contains("ticket="), "{text}");
    for entry in files(&setup.dir().join("data")) {
        let bytes = fs::read(&entry).unwrap_or_default();
        let holds = bytes.windows(ticket.len()).any(|part| part == ticket.as_bytes());
        assert!(!holds, "{}", entry.display());
    }
    drop(server);
    let server = setup.var("SERVICE_REQUIRE_TENANT_ID", "true").start();
    assert_eq!(shown(&server, "GET", path, &ticket), 401, "a restart ends it");
    let made = server.call("POST", &format!("/v1/runs/{run}/media-ticket"));
    let made = made.header("x-tenant-id", "acme").send().json();
    let ticket = made["ticket"].as_str().expect("a ticket");
    assert_eq!(shown(&server, "GET", path, ticket), 200, "an image has no tenant to send");
}

#[test]
fn tickets_of_a_principal_have_a_bound() {
    let server = shared();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/media-ticket");
    let bound = server.get("/v1/limits").json()["limits"]["principal_media_tickets"]["max"].clone();
    for _ in 0..bound.as_u64().expect("a number") {
        assert_eq!(server.call("POST", &path).send().status, 200);
    }
    let refused = server.call("POST", &path).send().assert_refused(429, "rate_limited");
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(server.metric(r#"service_refusals_total{reason="media_tickets"}"#), 1.0);
}
