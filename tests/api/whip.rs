//! WHIP as its clients see it: statuses, headers, ownership, and how sessions end without media.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::support::{BOB, Call, PATIENCE, Reply, Server, Setup, shared, whip::OFFER};

const PATH: &str = "/v1/stream/whip";
const FRAGMENT: &str = "application/trickle-ice-sdpfrag";

/// An offer of one video section with `codec`.
pub fn offer(codec: &str) -> String {
    OFFER.replace("VP8", codec)
}

/// The request that brings an offer.
pub fn publishing<'a>(server: &'a Server, offer: &str) -> Call<'a> {
    server.call("POST", PATH).header("content-type", "application/sdp").body(offer.to_owned())
}

/// A session of Alice's: where it is, its run, and the answer.
fn publish(server: &Server) -> (String, String, Reply) {
    begun(publishing(server, &offer("VP8")))
}

/// The same of this request.
fn begun(call: Call<'_>) -> (String, String, Reply) {
    let reply = call.send().assert_status(201);
    let [session, run] = ["location", "x-service-run-id"].map(|name| reply.header(name).to_owned());
    (session, run, reply)
}

/// The header of an attach config.
pub fn attached(config: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(config.to_string())
}

#[test]
fn an_offer_is_answered_as_the_protocol_says_and_one_more_when_the_session_has_ended() {
    let server = Setup::temporary()
        .var("SERVICE_ACTIVE_STREAM_LIMIT", "1")
        .var("SERVICE_WEBRTC_STUN_SERVERS", "stun:stun.example:3478")
        .var("SERVICE_WEBRTC_TURN_URL", "turn:turn.example:3478?transport=udp")
        .var("SERVICE_WEBRTC_TURN_USERNAME", "us\"er")
        .var("SERVICE_WEBRTC_TURN_CREDENTIAL", "secret")
        .start();
    let (session, run, reply) = publish(&server);
    assert_eq!(reply.header("content-type"), "application/sdp");
    assert!(session.starts_with("/v1/stream/whip/sess-"), "{session}");
    assert!(reply.header("etag").starts_with('"'), "{}", reply.header("etag"));
    assert!(run.starts_with("run-"), "{run}");
    let links = reply.headers.get_all("link").iter();
    let links: Vec<_> = links.map(|link| link.to_str().expect("ASCII")).collect();
    let turn = "<turn:turn.example:3478?transport=udp>; rel=\"ice-server\"; \
                username=\"us\\\"er\"; credential=\"secret\"; credential-type=\"password\"";
    assert_eq!(links, ["<stun:stun.example:3478>; rel=\"ice-server\"", turn]);
    for line in
        ["a=ice-lite", "a=recvonly", "a=setup:passive", "a=rtcp-mux", "a=fingerprint:sha-256"]
    {
        assert!(reply.text.contains(line), "no {line}:\n{}", reply.text);
    }
    let record = server.get(&format!("/v1/runs/{run}")).json();
    let id = session.rsplit('/').next().expect("a name");
    assert_eq!((&record["source"], &record["session_id"]), (&json!("whip"), &json!(id)));
    let created = &server.events(&run)[0]["payload"];
    assert_eq!(created, &json!({"principal_key": "alice", "session_id": id, "source": "whip"}));
    let options = server.call("OPTIONS", PATH).key(None).send();
    assert_eq!((options.status, options.header("accept-post")), (204, "application/sdp"));
    let second = publishing(&server, &offer("VP8")).send().assert_status(409);
    assert!(second.text.contains("1 of at most 1"), "{}", second.text);
    publishing(&server, &offer("VP8")).key(Some(BOB)).send().assert_status(201);
    assert_eq!(server.call("DELETE", &session).send().status, 200);
    publish(&server);
}

#[test]
fn what_cannot_be_published_is_refused_in_plain_text() {
    let server = shared();
    let vp8 = offer("VP8");
    let with =
        |config: Value| publishing(&server, &vp8).header("x-attach-config", &attached(&config));
    let rows = [
        ("no key", publishing(&server, &vp8).key(None), 401, "API key"),
        ("JSON", server.call("POST", PATH).json(&json!({})), 415, "application/sdp"),
        ("nonsense", publishing(&server, "v=1\r\n"), 400, ""),
        ("too large", publishing(&server, &"a".repeat(70_000)), 413, ""),
        ("no servable codec", publishing(&server, &offer("H261")), 422, "H261"),
        ("padding", publishing(&server, &vp8).header("x-attach-config", "e30="), 400, "base64url"),
        ("unknown field", with(json!({"promt": "a"})), 400, "promt"),
        ("two configs", with(json!({})).header("x-attach-config", "e30"), 400, "twice"),
        ("unknown model", with(json!({"model": "unheard-of"})), 400, "model"),
        ("another method", server.call("PUT", PATH), 405, ""),
    ];
    for (name, call, status, says) in rows {
        let reply = call.send();
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
        assert!(reply.text.contains(says), "{name}: {}", reply.text);
        assert!(!reply.text.starts_with('{'), "{name}: {}", reply.text);
        if status == 401 {
            assert_eq!(reply.header("www-authenticate"), "Bearer", "{name}");
        }
    }
    assert_eq!(server.get("/v1/runs").json(), json!([]), "nothing was left behind");
}

#[test]
fn candidates_and_restarts_follow_the_entity_tag() {
    let server = shared();
    let (session, _, reply) = publish(&server);
    let tag = reply.header("etag").to_owned();
    let candidate = "candidate:1 1 udp 2130706431 192.0.2.7 50000 typ host";
    let trickled = format!(
        "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n\
        m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\na={candidate}\r\na=end-of-candidates\r\n"
    );
    let restart = trickled.replace("abcd", "efgh").replace("pwd:0", "pwd:9");
    let patch = |body: &str, tag: Option<&str>| {
        let call = server.call("PATCH", &session).header("content-type", FRAGMENT);
        let call = match tag {
            Some(tag) => call.header("if-match", tag),
            None => call,
        };
        call.body(body.to_owned()).send()
    };
    for (name, body, tag, status) in [
        ("a fragment", trickled.as_str(), Some(tag.as_str()), 204),
        ("without a tag", &trickled, None, 204),
        ("a bare candidate", candidate, None, 204),
        ("of another session", &trickled, Some("\"other\""), 412),
        ("nonsense", "nonsense", None, 400),
        ("a restart without a tag", &restart, None, 428),
        ("a restart of another session", &restart, Some("\"other\""), 412),
    ] {
        let reply = patch(body, tag);
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
    }
    let restarted = patch(&restart, Some(&tag)).assert_ok();
    assert_eq!(restarted.header("content-type"), FRAGMENT);
    assert_ne!(restarted.header("etag"), tag);
    assert!(restarted.text.contains("a=ice-ufrag:"), "{}", restarted.text);
    assert_eq!(patch(&trickled, Some(&tag)).status, 412, "the tag of before the restart");
    server.call("PATCH", &session).json(&json!({})).send().assert_status(415);
}

#[test]
fn sessions_of_others_do_not_exist() {
    let server = shared();
    let (session, ..) = publish(&server);
    let unknown = format!("{PATH}/sess-{}", "0".repeat(32));
    let asks: [fn(&Server, &str) -> Reply; 3] = [
        |server, path| server.call("DELETE", path).key(Some(BOB)).send(),
        |server, path| {
            let call = server.call("PATCH", path).key(Some(BOB)).header("content-type", FRAGMENT);
            call.body("candidate:1 1 udp 1 192.0.2.7 5 typ host").send()
        },
        |server, path| {
            let call = server.call("PATCH", &format!("{path}/prompt")).key(Some(BOB));
            call.json(&json!({"prompt": "a"})).send()
        },
    ];
    for ask in asks {
        let answers =
            [&session, &unknown, &format!("{PATH}/nonsense")].map(|path| ask(&server, path));
        for answer in &answers {
            assert_eq!((answer.status, &answer.text), (404, &answers[0].text));
        }
    }
    assert_eq!(server.call("DELETE", &session).send().status, 200);
}

#[test]
fn a_prompt_is_taken_up_while_the_session_lives() {
    let server = shared();
    let config = attached(&json!({"prompt": "count", "clip_mode": {}}));
    let (session, ..) =
        begun(publishing(&server, &offer("VP8")).header("x-attach-config", &config));
    let update =
        |body: &Value| server.call("PATCH", &format!("{session}/prompt")).json(body).send();
    let schema = json!({"type": "object", "properties": {"cars": {"type": "integer"}}});
    let applied = update(&json!({"prompt": "cars", "output_schema": schema})).assert_ok();
    let expected = json!({"prompt": "cars", "output_schema": schema, "applied_from_frame": 0});
    assert_eq!(applied.json(), expected);
    let rows = [
        ("no prompt", json!({})),
        ("empty", json!({"prompt": ""})),
        ("too long", json!({"prompt": "a".repeat(4097)})),
        ("no schema", json!({"prompt": "a", "output_schema": {"type": "nothing"}})),
    ];
    for (name, body) in rows {
        let refused = update(&body);
        assert_eq!(refused.status, 400, "{name}: {}", refused.text);
        assert!(!refused.text.starts_with('{'), "{name}: {}", refused.text);
    }
    assert_eq!(server.call("DELETE", &session).send().status, 200);
    assert_eq!(update(&json!({"prompt": "a"})).status, 409, "the session has ended");
}

#[test]
fn every_end_is_on_the_timeline() {
    let setup = Setup::temporary();
    let mut server = setup.start();
    let (deleted, run_deleted, _) = publish(&server);
    let gone = server.call("DELETE", &deleted).send();
    assert_eq!((gone.status, gone.text.as_str()), (200, ""));
    assert_eq!(server.payloads(&run_deleted, "run_completed")[0]["frames"], 0);
    assert_eq!(server.call("DELETE", &deleted).send().status, 200, "once more");
    let (stopped, run_stopped, _) = publish(&server);
    assert_eq!(server.post_run(&run_stopped, "stop", &json!({})).status, 200);
    assert_eq!(server.call("DELETE", &stopped).send().status, 200);
    assert_eq!(server.kinds(&run_stopped), ["run_created", "stop_requested"]);
    let named = publishing(&server, &offer("VP8")).header("x-tenant-id", "acme \"north\"");
    let config = attached(&json!({"label": "gate 3"}));
    let (_, run_busy, _) = begun(named.header("x-attach-config", &config));
    let records = |server: &Server| {
        [&run_busy, &run_stopped].map(|run| {
            let record = server.record(run);
            ["source", "tenant_id", "label"].map(|field| record[field].clone())
        })
    };
    let told = records(&server);
    let named = [json!("whip"), json!("acme \"north\""), json!("gate 3")];
    assert_eq!(told, [named, [json!("whip"), Value::Null, Value::Null]]);
    server.restart(&setup);
    assert_eq!(records(&server), told, "after the restart");
    assert_eq!(server.wait_for_event(&run_busy, "run_failed")["reason"], "interrupted");
    let (_, run_drained, _) = publish(&server);
    server.terminate();
    assert!(server.wait(PATIENCE).success());
    let server = setup.start();
    assert_eq!(server.wait_for_event(&run_drained, "run_failed")["reason"], "shutdown");
    assert_eq!(server.get("/v1/runs").json().as_array().map(Vec::len), Some(4));
}
