//! Publishers of live video that are processes of their own, and the pictures that they send.

pub mod browser;
pub mod clip;
pub mod picture;
pub mod proxies;
pub mod servers;
pub mod shown;

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{ALICE, PATIENCE, Running, Server, on_thread, skip, this_test};

/// An offer of video that nobody sends.
pub const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n\
    m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=sendonly\r\na=rtcp-mux\r\n\
    a=setup:actpass\r\na=mid:0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n\
    a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:\
    10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F\r\na=rtpmap:96 VP8/90000\r\n";

/// The command line beside the server, where every binary was built; see [`skip`].
pub fn sightline() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_sightline-server")).with_file_name("sightline");
    if path.is_file() {
        return Some(path);
    }
    skip(&this_test(), format!("no {}: build every binary of the workspace", path.display()));
    None
}

/// `sightline whip publish`, under way; killed when dropped.
pub struct Publication {
    child: Running,
    pub run: String,
}

impl Publication {
    /// Alice publishes `file`; returns once the server has accepted the offer.
    pub fn start(
        sightline: &Path,
        server: &Server,
        file: &Path,
        attach: &Value,
        options: &[&str],
    ) -> Publication {
        Publication::start_at(sightline, server.addr(), file, attach, options)
    }

    /// The same to a server at `address`, one of its own.
    pub fn start_at(
        sightline: &Path,
        address: &str,
        file: &Path,
        attach: &Value,
        options: &[&str],
    ) -> Publication {
        let url = format!("http://{address}/v1/stream/whip");
        let mut command = Command::new(sightline);
        command.args(["whip", "publish"]).arg(file).arg(url).arg("--json").args(options);
        command.args(["--attach", &attach.to_string()]).env("SIGHTLINE_API_KEY", ALICE);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running(command.spawn().expect("the publisher starts"));
        let said = child.0.stderr.take().expect("piped");
        let (tell, told) = mpsc::sync_channel(1);
        on_thread("publisher-stderr", move || {
            let mut heard = String::new();
            // Read to the end: a full pipe would stop the publisher.
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if let Some((_, run)) = line.split_once("run:    ") {
                    // Nobody listens to a second run.
                    tell.try_send(Ok(run.to_owned())).ok();
                }
                heard.push_str(&line);
            }
            // Nobody listens where a run was told.
            tell.try_send(Err(heard)).ok();
        });
        let told = told.recv_timeout(PATIENCE).expect("a run or an end");
        let run = told.unwrap_or_else(|said| panic!("no run: {said}"));
        Publication { child, run }
    }

    /// Asks it to end as Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).expect("signalled");
    }

    /// The run that it filled and its figures, once it has ended by itself.
    pub fn finish(mut self) -> (String, Value) {
        let stdout = self.child.0.stdout.take().expect("piped");
        let figures = serde_json::from_reader(stdout).expect("figures");
        let status = self.child.0.wait().expect("waited for");
        assert!(status.success(), "{status}: {figures}");
        (self.run, figures)
    }
}
