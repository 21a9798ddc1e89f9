//! The nginx of `docs/PROXY.md`, as it stands there, before a real server: what is long, large or slow passes, and links lead back.

use reqwest::{blocking::Client, redirect::Policy};
use serde_json::json;

use super::{
    stream::Stream,
    uploads::{TYPE, file_form},
};
use crate::support::{Server, Setup, clip_bytes, whip::servers::Neighbour};

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

#[test]
fn the_proxy_of_the_documentation_passes_everything() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).expect("written");
    std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).expect("written");
    let server = Setup::new(dir.path()).clips().start();
    let text = |address: &str| documented(server.addr(), address, dir.path());
    let Some(proxy) = Neighbour::nginx(text) else { return };
    let client = Client::builder().danger_accept_invalid_certs(true).no_proxy();
    let client = client.redirect(Policy::none());
    let proxied = Server::at(format!("https://{}", proxy.address()), client);

    // Larger than what nginx takes by itself, and found where the answer says.
    let clip = clip_bytes("talk.mp4");
    let mut file = clip.clone();
    // A box that players pass over: the size, `free`, zeros.
    file.extend((2_u32 << 20).to_be_bytes());
    file.extend(*b"free");
    file.resize(clip.len() + (2 << 20), 0);
    let upload = proxied.call("POST", "/video/v1/upload").header("content-type", TYPE);
    let uploaded = upload.body(file_form("talk.mp4", &file)).send().assert_ok();
    let location = uploaded.header("location");
    assert!(location.starts_with("/video/v1/files/"), "{location}");
    let back = proxied.get(location).bytes;
    assert!(back == file, "{} of {} bytes came back", back.len(), file.len());

    // An event is read while its stream is open: nothing keeps it back.
    let mut stream = Stream::open(&proxied, "/video/v1/events/stream", None);
    let run = proxied.post("/video/v1/runs", &json!({})).assert_ok().run();
    stream.wait_for("run_created");

    // A job is found where the answer says, and so is the next page.
    let ingest = json!({ "source_uri": "talk.mp4", "max_frames": 20 });
    let path = format!("/video/v1/runs/{run}");
    let asked = proxied.call("POST", &format!("{path}/ingest")).header("prefer", "respond-async");
    let accepted = asked.json(&ingest).send();
    let location = accepted.header("location");
    assert!(location.starts_with(&format!("{path}/jobs/job-")), "{location}");
    let job = proxied.get(&format!("{location}?wait_ms=30000")).assert_ok().json();
    assert_eq!(job["status"], "succeeded", "{job}");
    let page = proxied.get(&format!("{path}/events?limit=1"));
    let next = page.next_page().expect("a link");
    assert!(next.starts_with(&format!("{path}/events?")), "{next}");
    let page = proxied.get(&next).assert_ok().json();
    assert_eq!(page["events"].as_array().map(Vec::len), Some(1));

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
