//! The same calls in every version of HTTP have the same answers.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::client::{Answer, Call, Client, Served, Version};
use crate::{
    api::uploads::{TYPE, file_form},
    support::{Setup, clips, whip::OFFER},
};

/// Headers that belong to a version or to a moment.
const OWN: [&str; 5] = ["alt-svc", "connection", "date", "last-modified", "transfer-encoding"];

/// Part of an answer that is the same for every caller, at any time.
#[derive(Debug, PartialEq)]
struct Same {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Same {
    /// Of an answer of a server that keeps its data in `dir`.
    fn of(answer: &Answer, dir: &str) -> Same {
        let mut headers = BTreeMap::new();
        for (name, value) in &answer.headers {
            if !OWN.contains(&name.as_str()) {
                let value = masked(value.to_str().expect("ASCII"));
                headers.insert(name.to_string(), value);
            }
        }
        let body = match serde_json::from_slice::<Value>(&answer.body) {
            Ok(mut json) => {
                mask(&mut json);
                json.to_string()
            }
            Err(_) => match std::str::from_utf8(&answer.body) {
                Ok(text) if text.starts_with("v=0") => text.lines().map(masked_attribute).collect(),
                Ok(text) => text.lines().map(masked_line).collect(),
                Err(_) => format!("{} bytes: {:x?}", answer.body.len(), fold(&answer.body)),
            },
        };
        if !body.is_empty() && headers.contains_key("content-length") {
            assert_eq!(headers["content-length"], answer.body.len().to_string(), "{answer:?}");
        }
        if answer.body.starts_with(b"v=0") {
            // What is drawn by chance has more digits or fewer.
            headers.remove("content-length");
        }
        Same { status: answer.status, headers, body: body.replace(dir, "") }
    }
}

/// A sum of bytes in which their order counts.
fn fold(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// `text` without what is drawn by chance: `req-`, `run-` and other ids, and names of 32 digits.
fn masked(text: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let mut masked = String::new();
    for piece in text.split_inclusive(|letter| !is_part(letter)) {
        let (word, rest) = piece.split_at(piece.trim_end_matches(|c| !is_part(c)).len());
        let digits = word.rsplit_once('-').map_or(word, |(_, digits)| digits);
        let by_chance = matches!(digits.len(), 16 | 32)
            && digits.chars().all(|digit| digit.is_ascii_hexdigit());
        masked.push_str(if by_chance {
            word.strip_suffix(digits).unwrap_or_default()
        } else {
            word
        });
        masked.push_str(rest);
    }
    masked
}

/// The line of an event stream, its JSON masked.
fn masked_line(line: &str) -> String {
    let Some(Ok(mut json)) = line.strip_prefix("data: ").map(serde_json::from_str::<Value>) else {
        return format!("{}\n", masked(line));
    };
    mask(&mut json);
    format!("data: {json}\n")
}

/// The line of a session description without what is drawn by chance.
fn masked_attribute(line: &str) -> String {
    let drawn = ["o=", "a=ice-ufrag:", "a=ice-pwd:", "a=fingerprint:", "a=candidate:"];
    let name = drawn.into_iter().find(|name| line.starts_with(name));
    format!("{}\n", name.unwrap_or(line))
}

/// Ids, instants, time taken and what is free are the same in no two answers.
fn mask(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name.ends_with("_at") && value.is_string() {
                    *value = "an instant".into();
                }
                // A share of what is free on a disk that others use too.
                if name == "principal_stored" {
                    *value = "a share".into();
                }
                mask(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => *text = masked(text),
        Value::Number(number) if number.as_u64().is_some_and(|ms| ms > 1_000_000_000_000) => {
            *json = "an instant".into();
        }
        _ => {}
    }
}

fn upload(body: Vec<u8>) -> Call {
    Call::new("POST", "/v1/upload").header("content-type", TYPE).body(body)
}

fn offer(sdp: &str) -> Call {
    let call = Call::new("POST", "/v1/stream/whip").header("content-type", "application/sdp");
    call.body(sdp.as_bytes().to_vec())
}

/// Requests of a publisher from its offer to the session's end, and their answers.
fn signal(client: &Client, version: Version, answers: &mut Vec<(Call, Answer)>) {
    let mut ask = |call: Call| {
        let answer = client.ask(version, &call);
        let text =
            |name: &str| answer.headers.get(name).map(|value| value.to_str().expect("ASCII"));
        let told = (text("location").map(str::to_owned), text("etag").map(str::to_owned));
        answers.push((call, answer));
        told
    };
    ask(Call::new("OPTIONS", "/v1/stream/whip"));
    ask(offer("v=1"));
    ask(offer(&OFFER.replace("VP8", "H261")));
    ask(offer(OFFER).header("content-type", "text/plain"));
    let (Some(session), Some(tag)) = ask(offer(OFFER)) else { panic!("no session") };

    let fragment = |tag: &str, body: &str| {
        let call = Call::new("PATCH", &session).header("if-match", tag);
        let call = call.header("content-type", "application/trickle-ice-sdpfrag");
        call.body(body.as_bytes().to_vec())
    };
    let candidate = "candidate:1 1 udp 2130706431 192.0.2.1 50000 typ host";
    let trickle = format!(
        "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n\
         m=video 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\na={candidate}\r\n"
    );
    ask(fragment(&tag, &trickle));
    ask(fragment(&tag, candidate));
    ask(fragment("\"other\"", &trickle));
    let prompt = |body: &str| {
        let call = Call::new("PATCH", &format!("{session}/prompt"));
        call.header("content-type", "application/json").body(body.as_bytes().to_vec())
    };
    ask(prompt(r#"{"prompt":"What is on the belt?"}"#));
    ask(prompt(r#"{"prompt":""}"#));
    ask(Call::new("DELETE", &session));
    ask(Call::new("DELETE", &session));
    ask(prompt(r#"{"prompt":"too late"}"#));
}

/// Calls that make a run with pictures and an upload, the run's id and the paths of a picture and
/// of the upload, and their answers.
fn prepare(
    client: &Client,
    version: Version,
    clip: &[u8],
    answers: &mut Vec<(Call, Answer)>,
) -> (String, String, String) {
    let mut ask = |call: Call| {
        let answer = client.ask(version, &call);
        let json = answer.json();
        answers.push((call, answer));
        json
    };
    let run = ask(Call::json("/v1/runs", r#"{"mode":"balanced"}"#))["run_id"].clone();
    let run = run.as_str().expect("an id").to_owned();
    let source = r#"{"source_uri":"clip.mp4","max_frames":20}"#;
    ask(Call::json(&format!("/v1/runs/{run}/ingest"), source));
    ask(Call::json(&format!("/v1/runs/{run}/analyze"), r#"{"model":"qwen3-vl-8b"}"#));
    let listed = ask(Call::get(&format!("/v1/runs/{run}/keyframes")));
    let still = listed["keyframes"][0]["image_ref"].as_str().expect("a path").to_owned();
    let file = ask(upload(file_form("clip.mp4", clip)))["file_name"].clone();
    (run, still, format!("/v1/files/{}", file.as_str().expect("a name")))
}

/// Calls about `run`, `still` and `file`.
fn calls(run: &str, still: &str, file: &str, clip: &[u8]) -> Vec<Call> {
    let of = |path: &str| Call::get(&format!("/v1/runs/{run}{path}"));
    let post = |path: &str, body: &str| Call::json(&format!("/v1/runs/{run}{path}"), body);
    let part = |range: &str| Call::get(file).header("range", range);
    let query = |rest: &str| Call::json("/v1/query", &format!(r#"{{"run_id":"{run}"{rest}}}"#));
    vec![
        Call::get("/v1/health"),
        Call::get("/v1/ready"),
        Call::get("/v1/limits"),
        Call::get("/v1/models"),
        Call::get("/v1/openapi.json"),
        Call::new("HEAD", "/v1/health"),
        Call::new("HEAD", still),
        Call::new("OPTIONS", "/v1/runs").header("origin", "https://a.example"),
        Call::get("/v1/runs"),
        Call::get("/v1/runs?limit=0"),
        Call::get("/v1/runs?limit=many"),
        of(""),
        of("/state"),
        of("/events"),
        of("/events?limit=2"),
        of("/markers"),
        of("/interactions"),
        of("/feedback"),
        of("/webhooks"),
        of("/keyframes"),
        Call::get(still),
        Call::get(still).header("if-none-match", "*"),
        Call::get(still).header("if-none-match", "\"other\""),
        Call::get(&still.replace(run, "run-00000000000000000000000000000000")),
        Call::get(file),
        part("bytes=0-0"),
        part("bytes=1000-70000"),
        part("bytes=-5"),
        part("bytes=99999999-"),
        Call::get("/v1/files/clip.mp4"),
        Call::get("/v1/files/none.mp4"),
        Call::get("/v1/files/..%2fsecret.mp4"),
        Call::get("/v1/files"),
        Call::get("/nowhere"),
        Call::new("DELETE", "/v1/health"),
        Call::get("/v1/runs").header("x-api-key", ""),
        Call::get("/v1/runs").header("x-api-key", "stranger"),
        Call::get("/v1/runs").header("x-api-key", "").header("authorization", "Bearer alice-key"),
        Call::get("/v1/health").header("x-pad", &"a".repeat(70_000)),
        Call::json("/v1/runs", "{"),
        Call::json("/v1/runs", r#"{"mode":"unheard-of"}"#),
        Call::json("/v1/runs", "{}").header("content-type", "text/plain"),
        Call::json("/v1/runs", &format!("\"{}\"", "a".repeat(3 << 20))),
        Call::json("/v1/runs", "{}").header("idempotency-key", "same"),
        Call::json("/v1/runs", "{}").header("idempotency-key", "same"),
        Call::new("POST", "/v1/runs").header("content-type", "application/json"),
        query(""),
        query(r#","kind":"frames_decoded""#),
        query(r#","from_seq":1000,"wait_ms":200"#),
        query(r#","limit":0"#),
        Call::json("/v1/search", r#"{"query":"a door"}"#),
        post("/feedback", r#"{"rating":5,"category":"good","feedback":"yes"}"#),
        post("/keepalive", "{}"),
        post("/ingest", r#"{"source_uri":"none.mp4"}"#),
        post("/reason", "{}"),
        upload(file_form("clip.mp4", clip)),
        upload(file_form("text.mp4", &b"no video".repeat(50_000))),
        upload(b"no form".to_vec()),
        post("/stop", "{}"),
        of("/events/stream"),
        of("/events/stream?after=2&kind=stop_requested"),
        of("/events/stream").header("last-event-id", "100000"),
        Call::new("DELETE", &format!("/v1/runs/{run}")),
        of(""),
    ]
}

/// Every call, and what of its answer is the same in every version.
fn answers(version: Version, root: &Path, clip: &[u8]) -> Vec<(Call, Same)> {
    let dir = tempfile::tempdir().expect("a directory");
    let origins = "https://a.example";
    let setup = Setup::new(dir.path()).root(root).var("SERVICE_CORS_ALLOWED_ORIGINS", origins);
    let served = Served::start(dir.path(), setup);
    let mut answers = Vec::new();
    let (run, still, file) = prepare(&served.client, version, clip, &mut answers);
    signal(&served.client, version, &mut answers);
    for call in calls(&run, &still, &file, clip) {
        let answer = served.client.ask(version, &call);
        answers.push((call, answer));
    }
    let dir = dir.path().to_str().expect("text");
    let same = answers.into_iter().map(|(call, answer)| {
        assert!(answer.headers.contains_key("date"), "{call:?}");
        (call, Same::of(&answer, dir))
    });
    same.collect()
}

#[test]
fn three_versions_give_the_same_answers() {
    let clips = clips();
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path().canonicalize().expect("there");
    let clip = fs::read(clips.join("motion.mp4")).expect("readable");
    fs::write(root.join("clip.mp4"), &clip).expect("written");
    let [first, others @ ..] = Version::ALL;
    let expected = answers(first, &root, &clip);
    assert!(expected.len() >= 60, "{} calls", expected.len());
    let mut wrong = Vec::new();
    for version in others {
        for ((call, found), (_, expected)) in answers(version, &root, &clip).iter().zip(&expected) {
            if found != expected {
                let call = format!("{} {}", call.method, call.path);
                wrong.push(format!("{version:?} {call}:\n  {expected:?}\n  {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
    let statuses: Vec<u16> = expected.iter().map(|(_, answer)| answer.status).collect();
    for status in [200, 201, 204, 206, 304, 400, 401, 404, 405, 413, 415, 416, 422, 431] {
        assert!(statuses.contains(&status), "no call had {status}: {statuses:?}");
    }
}
