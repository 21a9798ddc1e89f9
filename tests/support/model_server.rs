//! llama.cpp's own HTTP server with a model of noise, from `tests/support/model_server`.
//!
//! What it says means nothing, and how it says it is what such servers do: statuses, finish
//! reasons, token counts, structured output, pictures, keys.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use super::{python, skip::is_long};

pub const KEY: &str = "model-key";
/// The scripts, below the workspace.
const SCRIPTS: &str = "tests/support/model_server";

/// A running server; ends when dropped, also when the test is killed.
pub struct ModelServer {
    child: Child,
    url: String,
}

impl ModelServer {
    /// Starts it in a long test, where it can be installed; see [`python::installed`]. Every answer comes after so many
    /// tokens of hidden reasoning.
    pub fn start(test: &str, thinking: u32) -> Option<ModelServer> {
        if !is_long(test) {
            return None;
        }
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let scripts =
            folders.find_map(|folder| Some(folder.join(SCRIPTS)).filter(|it| it.is_dir()));
        let scripts = scripts.expect("in the repository");
        let bin = python::installed(test, &scripts.join("requirements.txt"))?;
        let mut child = Command::new(bin.join("python"))
            .args(["-B".as_ref(), scripts.join("serve.py").as_os_str()])
            .args([KEY, &thinking.to_string()])
            // It ends when this does.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, told) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("model-server-stdout".to_owned())
            .spawn(move || {
                let mut line = String::new();
                // What cannot be read is missed below.
                stdout.read_line(&mut line).ok();
                tell.send(line.trim_end().to_owned()).ok();
            })
            .expect("a thread");
        let url = told.recv_timeout(Duration::from_secs(120)).expect("the model server listens");
        assert!(url.starts_with("http://127.0.0.1:"), "not where the model server listens: {url}");
        Some(ModelServer { child, url })
    }

    /// Its base URL, without `/v1`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
