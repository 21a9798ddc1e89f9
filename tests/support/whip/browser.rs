//! Debian's headless Chromium, which publishes its fake camera by a page of ours: a WebRTC stack
//! that shares no code with the server's. One at a time, see `.config/nextest.toml`.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use reqwest::Url;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    ALICE, PATIENCE, Server,
    host::{Answer as _, Host},
    skip, this_test,
};

const PAGE: &str = include_str!("publish.html");
/// The page of the documentation, which tells nothing: its run does.
const DOCUMENTED: &str = include_str!("../../../docs/publish.html");

/// The browser; `None` where the test is passed over.
pub fn chromium() -> Option<PathBuf> {
    let found = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = found.into_iter().map(Path::new).find(|path| path.exists());
    if found.is_none() {
        skip(&this_test(), "no Chromium: install the package chromium");
    }
    found.map(Path::to_owned)
}

/// Address of the page, and its reports.
pub struct Page {
    origin: String,
    told: mpsc::Receiver<Value>,
}

impl Page {
    /// Serves the page on a free port until the process ends.
    pub fn serve() -> Page {
        let (tell, told) = mpsc::sync_channel(8);
        let host = Host::start_plain(move |asked, stream| {
            let (kind, page) = match &*asked.path {
                "/told" => ("application/json", "null"),
                "/documented" => ("text/html", DOCUMENTED),
                _ => ("text/html", PAGE),
            };
            let kind = format!("content-type: {kind}");
            stream.head("200 OK", &[&kind, &format!("content-length: {}", page.len())])?;
            stream.write_all(page.as_bytes())?;
            if asked.path == "/told" {
                // Nobody listens where the test is over.
                tell.try_send(asked.json()).ok();
            }
            Ok(())
        });
        let origin = format!("http://127.0.0.1:{}", host.port());
        Page { origin, told }
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Opens the page in a browser of its own: Alice publishes to `base`, a URL without the path of
    /// WHIP, with `parameters`. Returns what the page tells in the end.
    pub fn publish_to(&self, chromium: &Path, base: &str, parameters: &[(&str, &str)]) -> Value {
        let whip = format!("{base}/v1/stream/whip");
        let all = [("key", ALICE), ("url", &whip)].into_iter().chain(parameters.iter().copied());
        let mut page = Url::parse_with_params(&self.origin, all).expect("a URL");
        let parameters = page.query().map(str::to_owned);
        page.set_query(None);
        page.set_fragment(parameters.as_deref());
        let _browser = Browser::open(chromium, page.as_str());
        self.told.recv_timeout(PATIENCE).expect("the page tells how it ended")
    }

    /// Opens the documented page, which publishes until what is returned is dropped.
    pub fn open_documented(&self, chromium: &Path, server: &Server) -> impl Drop + use<> {
        let url = format!("http://{}/v1/stream/whip", server.addr());
        Browser::open(chromium, &format!("{}/documented#url={url}&key={ALICE}", self.origin))
    }

    /// The same, straight to `server`.
    pub fn publish(&self, chromium: &Path, server: &Server, parameters: &[(&str, &str)]) -> Value {
        self.publish_to(chromium, &format!("http://{}", server.addr()), parameters)
    }
}

/// A browser with a profile of its own; it ends when dropped.
struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    fn open(chromium: &Path, url: &str) -> Browser {
        let profile = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(chromium);
        command.args(["--headless=new", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--disable-background-networking"]);
        command.args(["--disable-component-update", "--disable-sync", "--remote-debugging-port=0"]);
        command.args(["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]);
        // Its sandbox refuses to run as root, as which tests run in a container.
        command.arg("--no-sandbox").arg(url);
        let mut data = std::ffi::OsString::from("--user-data-dir=");
        data.push(profile.path());
        command.arg(data).env("HOME", profile.path());
        // Its processes end together: those that it starts are of its group.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Browser { child: command.spawn().expect("the browser starts"), _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        self.child.wait().ok();
    }
}
