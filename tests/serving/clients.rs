//! Clients of others: aioquic from PyPI and Chromium, told of HTTP/3 or finding it by itself.

use std::{fs, path::Path, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::PublicKeyData;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::client::{Served, served};
use crate::support::{
    ALICE, PATIENCE, clips, python, this_test,
    whip::{browser::chromium, sightline},
};

#[test]
fn aioquic_uploads_downloads_and_listens() {
    let clips = clips();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serving/aioquic");
    let Some(bin) = python::installed(&this_test(), &here.join("requirements.txt")) else { return };
    let (_dir, served) = served();
    let mut client = Command::new(bin.join("python"));
    client.arg(here.join("client.py")).arg(served.client.udp.port().to_string());
    client.arg(&served.pair.chain).arg(ALICE).arg(clips.join("motion.mp4"));
    python::run(&mut client).expect("all was well");
}

#[test]
fn our_own_client_asks_over_tls_whom_it_trusts() {
    let Some(sightline) = sightline() else { return };
    let (dir, served) = served();
    let address = format!("https://localhost:{}", served.client.tcp.port());
    let clear = format!("http://localhost:{}", served.client.tcp.port());
    let (chain, other) = (&served.pair.chain, dir.path().join("other.pem"));
    fs::write(&other, "no certificate").expect("written");
    for (case, address, trusted, code, told) in [
        ("the server's own", &address, Some(chain), 0, ""),
        ("the system's alone", &address, None, 4, "certificate"),
        ("no certificate", &address, Some(&other), 2, "no certificates in PEM"),
        ("clear text", &clear, Some(chain), 5, ""),
    ] {
        let mut command = Command::new(&sightline);
        command.args(["runs", "list", "--server", address]).env("SIGHTLINE_API_KEY", ALICE);
        command.args(trusted.iter().flat_map(|path| ["--ca".as_ref(), path.as_os_str()]));
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{case}: {said}");
        assert!(said.contains(told), "{case}: {said}");
    }
}

/// Loads `page` without a window, and gives its document back; `arguments` say how.
fn load(program: &Path, served: &Served, profile: &Path, arguments: &[&str], page: &str) -> String {
    let pin = Sha256::digest(served.pair.signing_key.subject_public_key_info());
    let mut command = Command::new("timeout");
    command
        .arg(PATIENCE.as_secs().to_string())
        .arg(program)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-dev-shm-usage", "--disable-background-networking", "--enable-quic"])
        .arg(format!("--ignore-certificate-errors-spki-list={}", STANDARD.encode(pin)))
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--host-resolver-rules=MAP localhost 127.0.0.1", "--dump-dom"])
        .args(arguments)
        .arg(page);
    let output = python::run(&mut command).expect("the browser ends by itself");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn chromium_speaks_http3_when_told_to_and_finds_it_by_itself() {
    let Some(program) = chromium() else { return };
    let (dir, served) = served();
    // Nothing but HTTP/3 is at this port.
    let origin = format!("localhost:{}", served.client.udp.port());
    let forced = format!("--origin-to-force-quic-on={origin}");
    let page = format!("https://{origin}/v1/health");
    let shown = load(&program, &served, &dir.path().join("told"), &[&forced], &page);
    assert!(shown.contains(r#"{"status":"ok"}"#), "{shown}");
    finds_http3(&program, &served, dir.path());
}

/// Number of events of this name in the browser's own log.
fn logged(log: &Value, name: &str) -> usize {
    let number = &log["constants"]["logEventTypes"][name];
    assert!(number.is_u64(), "the log knows no {name}");
    let events = log["events"].as_array().expect("an array");
    events.iter().filter(|event| event["type"] == *number).count()
}

fn finds_http3(program: &Path, served: &Served, dir: &Path) {
    let page = dir.join("page.html");
    let port = served.client.tcp.port();
    let script = format!(
        "<body><script>(async () => {{
            for (let asked = 0; asked < 40; asked++) {{
                await fetch('https://localhost:{port}/v1/health', {{ mode: 'no-cors', cache: 'no-store' }});
                await new Promise((resolve) => setTimeout(resolve, 100));
            }}
            document.body.textContent = 'all was asked';
        }})();</script></body>"
    );
    std::fs::write(&page, script).expect("written");
    let log = dir.join("net.json");
    let log_to = format!("--log-net-log={}", log.display());
    // Of another port: a host in this list needs no public certificate for QUIC.
    let arguments =
        ["--origin-to-force-quic-on=localhost:9", "--virtual-time-budget=60000", &log_to];
    let url = format!("file://{}", page.display());
    let shown = load(program, served, &dir.join("profile"), &arguments, &url);
    assert!(shown.contains("all was asked"), "{shown}");
    let log: Value = serde_json::from_slice(&std::fs::read(&log).expect("there")).expect("JSON");
    let [first, later] = ["HTTP2", "QUIC"]
        .map(|version| logged(&log, &format!("HTTP_TRANSACTION_{version}_SEND_REQUEST_HEADERS")));
    assert!(first > 0 && later > 0, "{first} on HTTP/2, {later} on HTTP/3");
}
