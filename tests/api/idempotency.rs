//! `Idempotency-Key` over HTTP: sent twice, done once, also across crashes and lost callers.

use std::{collections::HashMap, path::Path, sync::mpsc, time::Duration};

use scripted_model::Step;
use serde_json::{Value, json};

use super::uploads::{TYPE, file_form, half_an_upload, stored, wait_for_files};
use crate::support::{
    BOB, Reply, Server, Setup, clip_bytes, eventually, model::Model, shared, wait_until,
};

fn keyed(server: &Server, key: &str, path: &str, body: &Value) -> Reply {
    server.call("POST", path).header("idempotency-key", key).json(body).send()
}

fn is_replay(reply: &Reply) -> bool {
    reply.header("idempotency-replayed") == "true"
}

#[test]
fn every_route_that_acts_once_gives_its_first_answer_again() {
    let (answer, wait) = mpsc::sync_channel(1);
    let model = Model::start(move |_| {
        wait.recv().expect("the test ends later");
        Step::chat("late")
    });
    let setup = model.behind(Setup::temporary().clips());
    let mut server = setup.start();
    let run = server.create_run();
    let calls = [
        ("/v1/runs".to_owned(), json!({"mode": "detailed"})),
        (format!("/v1/runs/{run}/ingest"), json!({"source_uri": "talk.mp4"})),
        (format!("/v1/runs/{run}/analyze"), json!({"model": "qwen3-vl-8b"})),
    ];
    let firsts = calls.each_ref().map(|(path, body)| keyed(&server, "k", path, body));
    let kinds = server.kinds(&run);
    let [clip, other] = ["motion.mp4", "talk.mp4"].map(clip_bytes);
    upload(&server, file_form("a.mp4", b"no media"), TYPE).assert_status(422);
    let uploaded = upload(&server, file_form("a.mp4", &clip), TYPE);
    assert_eq!((uploaded.status, is_replay(&uploaded)), (200, false), "{}", uploaded.text);
    // A client that sends again draws a new boundary; the file is what is compared.
    let form = String::from_utf8_lossy(&file_form("a.mp4", b"@")).replace("x-boundary", "y-bound");
    let (head, tail) = form.split_once('@').expect("one");
    let form = [head.as_bytes(), &clip, tail.as_bytes()].concat();
    for round in 0..2 {
        let again = upload(&server, form.clone(), "multipart/form-data; boundary=y-bound");
        assert_eq!((again.status, is_replay(&again)), (200, true), "{}", again.text);
        assert!(again.bytes == uploaded.bytes);
        assert_eq!(again.header("location"), uploaded.header("location"));
        for ((path, body), first) in calls.iter().zip(&firsts) {
            assert_eq!((first.status, is_replay(first)), (200, false), "{path} {}", first.text);
            // The second time, the path is spelled in another way.
            let path = if round == 0 { path.clone() } else { path.replace("run-", "run%2D") };
            let again = keyed(&server, "k", &path, body);
            assert_eq!((again.status, is_replay(&again)), (200, true), "{path} {}", again.text);
            assert!(again.bytes == first.bytes, "{path}: the same body, request id included");
            assert_eq!(again.header("content-type"), first.header("content-type"), "{path}");
            let id = again.header("x-request-id");
            assert_eq!(id, first.header("x-request-id"), "{path}: the request that was answered");
            assert_eq!(again.json()["request_id"], id, "{path}: header and body agree");
        }
        assert_eq!(server.kinds(&run), kinds, "nothing was done twice");
        let listed = server.get("/v1/runs").json();
        assert_eq!(listed.as_array().map(Vec::len), Some(2), "nothing was created twice");
        if round == 0 {
            server.restart(&setup);
        }
    }
    for body in [file_form("a.mp4", &other), file_form("b.mp4", &clip)] {
        upload(&server, body, TYPE).assert_invalid("idempotency-key", "another body");
    }
    assert_eq!(stored(setup.dir()).len(), 1);
    a_second_request_waits_for_the_first_to_end(&server, setup.dir());
    questions_sent_twice_are_asked_once_and_refused_meanwhile(&server, &model, &answer);
}

/// Routes are those of the test above.
#[test]
fn a_key_is_one_callers_for_one_body() {
    let server = shared();
    // What is refused leaves the key free.
    keyed(&server, "k", "/v1/runs", &json!({"mode": "odd"})).assert_status(422);
    let first = keyed(&server, "k", "/v1/runs", &json!({"mode": "custom"})).assert_ok();
    let other = keyed(&server, "k", "/v1/runs", &json!({"mode": "detailed"}));
    other.assert_invalid("idempotency-key", "another body");
    let tenant = server.call("POST", "/v1/runs").header("idempotency-key", "k");
    let tenant = tenant.header("x-tenant-id", "acme").json(&json!({"mode": "custom"})).send();
    assert_eq!(tenant.status, 422, "another tenant is another request: {}", tenant.text);
    let bobs = server.call("POST", "/v1/runs").key(Some(BOB)).header("idempotency-key", "k");
    let bobs = bobs.json(&json!({"mode": "custom"})).send();
    assert_eq!((bobs.status, is_replay(&bobs)), (200, false), "{}", bobs.text);
    assert_ne!(bobs.run(), first.run());
}

#[test]
fn a_key_is_visible_ascii_and_bounded() {
    let server = shared();
    let (longest, longer) = ("k".repeat(255), "k".repeat(256));
    let rows = [("!", 200), (&*longest, 200), (&*longer, 422), ("", 422), ("a b", 422)];
    for (key, status) in rows {
        let reply = keyed(&server, key, "/v1/runs", &json!({}));
        assert_eq!(reply.status, status, "{key}: {}", reply.text);
    }
    let twice = server.call("POST", "/v1/runs").header("idempotency-key", "a");
    let twice = twice.header("idempotency-key", "a").json(&json!({})).send();
    twice.assert_invalid("idempotency-key", "two keys");
    let large = json!({ "x": "a".repeat(3 << 20) });
    assert_eq!(keyed(&server, "large", "/v1/runs", &large).status, 413);
}

fn upload(server: &Server, body: Vec<u8>, kind: &str) -> Reply {
    let call = server.call("POST", "/v1/upload").header("idempotency-key", "k");
    call.header("content-type", kind).body(body).send()
}

fn a_second_request_waits_for_the_first_to_end(server: &Server, dir: &Path) {
    let send = || {
        let call = server.call("POST", "/v1/upload").header("idempotency-key", "l");
        call.header("content-type", TYPE).body(file_form("a.mp4", b"no media")).send()
    };
    let before = stored(dir).len();
    let stream = half_an_upload(server, Some("l"), b"x");
    wait_for_files(dir, before + 1);
    let reply = send().assert_refused(409, "conflict");
    assert_eq!(reply.header("retry-after"), "1");
    drop(stream);
    wait_for_files(dir, before);
    wait_until("the key is free again", || send().status == 422);
}

fn questions_sent_twice_are_asked_once_and_refused_meanwhile(
    server: &Server,
    model: &Model,
    answer: &mpsc::SyncSender<()>,
) {
    let body = json!({"requests": [{"model": "qwen3-vl-4b", "prompt": "p"}]});
    let ask = || keyed(server, "k", "/v1/infer/batch", &body);
    std::thread::scope(|scope| {
        let first = scope.spawn(ask);
        wait_until("the model is asked", || !model.server.seen().is_empty());
        let again = ask().assert_refused(409, "conflict");
        assert_eq!(again.header("retry-after"), "1");
        answer.send(()).expect("the model waits");
        let (first, again) = (first.join().expect("answered"), ask());
        assert!(first.status == 200 && is_replay(&again), "{} {}", first.text, again.text);
    });
    assert_eq!(model.server.seen().len(), 1, "asked once");
    answer.send(()).expect("the model waits");
    let again = [(); 2].map(|()| keyed(server, "k", "/v1/infer", &body["requests"][0]));
    assert_eq!(again.each_ref().map(is_replay), [false, true], "{}", again[1].text);
    assert!(again[0].status == 200 && again[0].bytes == again[1].bytes, "{}", again[0].text);
    assert_eq!(model.server.seen().len(), 2, "asked once");
}

#[test]
fn a_caller_that_goes_away_finds_its_answer_later() {
    let server = shared().with_clips();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/ingest");
    let body = json!({"source_uri": "street.mp4"});
    let call = server.call("POST", &path).header("idempotency-key", "k");
    let stream = call.json(&body).begin();
    let busy = || server.get(&format!("/v1/runs/{run}/state")).json()["progress"].is_object();
    let is_over = || server.kinds(&run).contains(&"frames_decoded".to_owned());
    wait_until("an ingest begins", || busy() || is_over());
    drop(stream);
    // The job ends before the first request's answer is kept: 409 between the two.
    let answered = || {
        let ask = || Some(keyed(&server, "k", &path, &body)).filter(|reply| reply.status != 409);
        eventually("its answer", ask)
    };
    let reply = answered().assert_ok();
    // One that came while the job ran has joined it; the answer is kept in either case.
    let again = answered();
    assert_eq!((again.status, is_replay(&again)), (200, true), "{}", again.text);
    assert_eq!(again.json()["decoded_frames"], reply.json()["decoded_frames"]);
    let kinds = server.kinds(&run);
    assert_eq!(kinds.iter().filter(|kind| *kind == "ingest_received").count(), 1, "{kinds:?}");
}

#[test]
fn no_kill_makes_a_request_act_twice() {
    let setup = Setup::temporary();
    // What each key has made, as far as an answer said so.
    let mut made: HashMap<String, Option<String>> = HashMap::new();
    let cycles: u32 = clips::sized(8, 25);
    for cycle in 0..cycles {
        let mut server = setup.start();
        for (key, run) in &mut made {
            let reply = keyed(&server, key, "/v1/runs", &json!({}));
            // The key's run is told in either case: as the answer, or as what was done.
            let found = match reply.status {
                200 => reply.run(),
                409 => reply.json()["error"]["details"][0]["message"].as_str().unwrap_or("").into(),
                status => panic!("{status}: {}", reply.text),
            };
            assert!(found.starts_with("run-"), "{}", reply.text);
            assert_eq!(run.get_or_insert_with(|| found.clone()), &found, "{key} has made one run");
        }
        let listed = server.get("/v1/runs?limit=1000").json();
        let listed = listed.as_array().map(Vec::len);
        assert_eq!(listed, Some(made.len()), "as many runs as keys after cycle {cycle}");
        let answered: Vec<(String, Option<String>)> = std::thread::scope(|scope| {
            let server = &server;
            let write = move |writer: u32| {
                let mut sent = Vec::new();
                for at in 0.. {
                    let key = format!("{cycle}-{writer}-{at}");
                    let call = server.call("POST", "/v1/runs").header("idempotency-key", &key);
                    let reply = call.json(&json!({})).try_send();
                    let run = reply.as_ref().ok().map(Reply::run);
                    sent.push((key, run));
                    if reply.is_err() || at == 7 {
                        return sent;
                    }
                }
                sent
            };
            let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
            std::thread::sleep(Duration::from_millis(u64::from(4 + cycle * 2)));
            server.signal_kill();
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect()
        });
        server.kill();
        made.extend(answered);
    }
    assert!(made.len() > cycles as usize, "the load was no load");
}
