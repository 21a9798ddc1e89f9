//! The nginx of `docs/PROXY.md`, as it stands there, before a real server: what is long, large or slow passes, and links lead back.

use std::io::{BufRead, BufReader, Read};

use reqwest::blocking::{Client, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::{ALICE, PATIENCE, Setup, clip_bytes, whip::servers::Neighbour};

/// The text of the document, for this machine.
fn documented(server: &str, address: &str, dir: &std::path::Path) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/PROXY.md");
    let page = std::fs::read_to_string(page).expect("there");
    let (_, rest) = page.split_once("```nginx\n").expect("a snippet");
    let mut text = rest.split_once("```").expect("its end").0.to_owned();
    let path = |name: &str| dir.join(name).display().to_string();
    for (there, here) in [
        ("127.0.0.1:8080", server),
        ("listen 443 ", &format!("listen {address} ")),
        ("/etc/ssl/video.example.pem", &path("cert.pem")),
        ("/etc/ssl/video.example.key", &path("key.pem")),
    ] {
        assert!(text.contains(there), "{there}");
        text = text.replace(there, here);
    }
    text
}

struct Proxied {
    client: Client,
    root: String,
}

impl Proxied {
    /// A request to an absolute path of the proxy.
    fn call(&self, method: &str, path: &str) -> RequestBuilder {
        let method = method.parse().expect("a method");
        self.client.request(method, format!("{}{path}", self.root)).header("x-api-key", ALICE)
    }

    fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.call(method, path).json(body).send().expect("an answer");
        assert!(reply.status().is_success(), "{method} {path}: {}", reply.status());
        reply.json().expect("JSON")
    }
}

fn header(reply: &Response, name: &str) -> String {
    let value = reply.headers().get(name).unwrap_or_else(|| panic!("no {name}"));
    value.to_str().expect("text").to_owned()
}

#[test]
fn the_proxy_of_the_documentation_passes_everything() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).expect("written");
    std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).expect("written");
    let server = Setup::new(dir.path()).clips().start();
    let text = |address: &str| documented(server.addr(), address, dir.path());
    let Some(proxy) = Neighbour::nginx(text) else { return };
    let client = Client::builder().danger_accept_invalid_certs(true).no_proxy().timeout(PATIENCE);
    let client = client.redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let proxied = Proxied { client, root: format!("https://{}", proxy.address()) };

    // Larger than what nginx takes by itself, and found where the answer says.
    let clip = clip_bytes("talk.mp4");
    let mut file = clip.clone();
    // A box that players pass over: the size, `free`, zeros.
    file.extend((2_u32 << 20).to_be_bytes());
    file.extend(*b"free");
    file.resize(clip.len() + (2 << 20), 0);
    let part = reqwest::blocking::multipart::Part::bytes(file.clone()).file_name("talk.mp4");
    let form = reqwest::blocking::multipart::Form::new().part("file", part);
    let uploaded = proxied.call("POST", "/video/v1/upload").multipart(form).send().expect("sent");
    assert_eq!(uploaded.status(), 200, "{:?}", uploaded.text());
    let location = header(&uploaded, "location");
    assert!(location.starts_with("/video/v1/files/"), "{location}");
    let mut back = Vec::new();
    let mut served = proxied.call("GET", &location).send().expect("an answer");
    served.read_to_end(&mut back).expect("read");
    assert!(back == file, "{} of {} bytes came back", back.len(), file.len());

    // An event is read while its stream is open: nothing keeps it back.
    let stream = proxied.call("GET", "/video/v1/events/stream").send().expect("an answer");
    let run = proxied.json("POST", "/video/v1/runs", &json!({}))["run_id"].clone();
    let run = run.as_str().expect("an id");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    assert!(lines.any(|line| line == "event: run_created"), "the stream ended");

    // A job is found where the answer says, and so is the next page.
    let ingest = json!({ "source_uri": "talk.mp4", "max_frames": 20 });
    let path = format!("/video/v1/runs/{run}");
    let asked = proxied.call("POST", &format!("{path}/ingest")).header("prefer", "respond-async");
    let accepted = asked.json(&ingest).send().expect("an answer");
    let location = header(&accepted, "location");
    assert!(location.starts_with(&format!("{path}/jobs/job-")), "{location}");
    let job = proxied.json("GET", &format!("{location}?wait_ms=30000"), &json!({}));
    assert_eq!(job["status"], "succeeded", "{job}");
    let page = proxied.call("GET", &format!("{path}/events?limit=1")).send().expect("an answer");
    let link = header(&page, "link");
    let next = link.strip_prefix('<').and_then(|link| link.split_once('>')).expect("a link").0;
    assert!(next.starts_with(&format!("{path}/events?")), "{link}");
    assert_eq!(proxied.json("GET", next, &json!({}))["events"].as_array().map(Vec::len), Some(1));

    // Who reaches the server without the proxy is told its own paths; a bad prefix is none.
    for (prefix, expected) in [(None, ""), (Some("/a/b/"), "/a/b"), (Some("//evil.example"), "")] {
        let path = format!("/v1/runs/{run}/events?limit=1");
        let call = server.call("GET", &path);
        let call =
            prefix.into_iter().fold(call, |call, text| call.header("x-forwarded-prefix", text));
        let reply = call.send();
        let link = reply.header("link");
        assert!(link.starts_with(&format!("<{expected}/v1/runs/")), "{prefix:?}: {link}");
    }
}
