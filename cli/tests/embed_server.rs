//! `sightline embed-server` as a process with a real model: start, requests, end.
#![allow(missing_docs)]

#[path = "../../tests/support/onnx_runtime.rs"]
mod onnx_runtime;

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../tests/support/python.rs"]
mod python;

#[path = "../../tests/support/skip.rs"]
mod skip;

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use embed::SidecarClient;

const COLOUR: &[u8] = include_bytes!("../src/embed_server/testdata/colour.jpg");
const PROGRESSIVE: &[u8] = include_bytes!("../src/embed_server/testdata/progressive.jpg");
const CMYK: &[u8] = include_bytes!("../src/embed_server/testdata/cmyk.jpg");
const ENDLESS: Duration = Duration::from_secs(60);

/// A server process, which ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts the server; returns it with its stderr and the address that it prints.
fn start(arguments: &[&str]) -> (Server, BufReader<ChildStderr>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.args(["embed-server", "--listen", "127.0.0.1:0"]).args(arguments);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it speaks");
    (Server(child), said, line)
}

#[test]
fn a_server_embeds_jpegs_and_ends_when_it_is_told_to() {
    let test = "a_server_embeds_jpegs_and_ends_when_it_is_told_to";
    let Some(library) = onnx_runtime::runtime(test) else { return };
    let library = library.to_str().expect("a path in UTF-8");
    let (mut server, mut said, line) = start(&["--onnxruntime", library]);
    let address = line.strip_prefix("listening on ").and_then(|line| line.split_once(": "));
    let (address, model) = address.unwrap_or_else(|| panic!("{line}"));
    assert_eq!(model, "257 dimensions on cpu\n");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let distances = runtime.expect("a runtime").block_on(async {
        let sidecar = SidecarClient::new(address, ENDLESS);
        let mut embeddings = Vec::new();
        for jpeg in [COLOUR, COLOUR, PROGRESSIVE, CMYK] {
            embeddings.push(sidecar.embed(jpeg.into()).await.expect("embedded"));
        }
        let distance = |to: &embed::Embedding| embeddings[0].distance(to).expect("one model");
        embeddings.iter().map(distance).collect::<Vec<_>>()
    });
    let millionths: Vec<u32> = distances.iter().map(|distance| distance.millionths()).collect();
    assert_eq!(millionths[..2], [0, 0]);
    assert!(millionths.iter().all(|distance| *distance < 10_000), "{millionths:?}");

    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let status = server.0.wait().expect("it ends");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("it spoke");
    assert!(status.success(), "{status}: {rest}");
    assert!(rest.starts_with("4 pictures in 4 batches, 0 refused"), "{rest}");
}

#[test]
fn a_server_without_its_library_says_so() {
    let (mut server, _, line) = start(&["--onnxruntime", "/nowhere/libonnxruntime.so"]);
    assert_eq!(server.0.wait().expect("it ends").code(), Some(1));
    assert!(line.contains("ONNX Runtime cannot be loaded") && line.contains("/nowhere"), "{line}");
}
