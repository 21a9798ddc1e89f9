//! `sightline run` with the real server, if it has been built, and a scripted model.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use scripted_model::{ScriptedServer, Step};
use serde_json::{Value, json};

use crate::support::{Outcome, command, finish, rendered};

const KEY: &str = "a-key-for-these-tests";
const MODEL: &str = "Qwen/Qwen3-VL-8B-Instruct";
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process, which ends when dropped.
struct Running {
    child: Child,
    url: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Running {
    fn start(program: &Path, dir: &Path, root: &Path, model: &str) -> Running {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("bound").to_string();
        drop(free);
        let mut server = Command::new(program);
        server.env("SERVICE_API_KEYS", KEY).env("SERVICE_BIND_ADDR", &address);
        server.env("SERVICE_DATA_DIR", dir.join("data")).env("SERVICE_INGEST_FILE_ROOTS", root);
        server.env("SERVICE_VLLM_BASE_URL", model);
        // Settings that a user of this machine would need.
        server.envs(command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = server.spawn().expect("it starts");
        let started = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(started.elapsed() < PATIENCE, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Running { child, url: format!("http://{address}") }
    }

    fn sightline(&self, args: &[&str]) -> Outcome {
        let mut command = command(args);
        command.env("SIGHTLINE_SERVER", &self.url).env("SIGHTLINE_API_KEY", KEY);
        finish(command)
    }

    fn json(&self, args: &[&str]) -> Value {
        let outcome = self.sightline(args);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| {
            panic!("{args:?}: {error}: {}{}", outcome.stdout, outcome.stderr)
        })
    }
}

#[test]
fn one_command_goes_from_a_source_to_what_was_found_in_it() {
    let Some(program) = crate::demo::server() else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let model =
        runtime.block_on(ScriptedServer::start(|seen| match seen.json()["model"] == MODEL {
            true => Step::chat("A van waits."),
            false => Step::json(404, &json!({ "message": "The model does not exist." })),
        }));
    let model = model.expect("it listens");
    model.answer_probes(Step::json(200, &json!({ "object": "list", "data": [{ "id": MODEL }] })));
    let clip = rendered();
    let (dir, root) = (tempfile::tempdir().expect("a folder"), Path::new(&clip).parent());
    let server = Running::start(&program, dir.path(), root.expect("a folder"), &model.base_url());
    let frames = ["--max-frames", "60"];
    let run = |more: &[&'static str]| {
        let mut args = vec!["run", &clip];
        args.extend(more);
        args.extend(frames);
        args
    };

    let found = server.json(&run(&["--json", "--label", "gate 3", "--keepalive-frames", "30"]));
    assert_eq!(
        (&found["run"]["status"], &found["run"]["label"]),
        (&json!("completed"), &json!("gate 3"))
    );
    let kept = |found: &Value| {
        let markers = found["markers"].as_array().expect("an array");
        markers.iter().filter(|marker| marker["event_type"] == "keyframe_keep").count()
    };
    // The first frame, the start of activity, two peaks, and one frame 30 frames later.
    assert_eq!(kept(&found), 5, "{}", found["markers"]);
    let fewer = server.json(&run(&["--json", "--keepalive-frames", "0"]));
    assert_eq!(kept(&fewer), 4, "{}", fewer["markers"]);
    let id = found["run"]["run_id"].as_str().expect("an id");
    let followed = server.sightline(&["events", id, "--follow", "--kind", "vlm"]);
    assert_eq!(followed.code, 0, "following what has ended ends: {}", followed.stderr);

    let asked = server.sightline(&run(&["--prompt", "What is there?"]));
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    assert_eq!(asked.stdout.matches("A van waits.").count(), 2, "{}", asked.stdout);
    assert!(asked.stderr.contains("the source goes on after 60 frames"), "{}", asked.stderr);
    let other = server.sightline(&run(&["--prompt", "What is there?", "--model", "qwen3-vl-4b"]));
    // A model that answers nothing is no success.
    other.says(1, "failed for 2 of 2 chunks");

    let lines = server.sightline(&run(&["--follow", "--json"])).stdout;
    let kinds: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["kind"].clone())
        .collect();
    for kind in
        ["run_created", "ingest_started", "keyframe_stored", "frames_decoded", "marker_emitted"]
    {
        assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
    }

    let elsewhere = dir.path().join("elsewhere.mp4");
    std::fs::copy(&clip, &elsewhere).expect("copied");
    let elsewhere = elsewhere.to_str().expect("UTF-8");
    let before = server.json(&["runs", "list", "--json"]).as_array().map(Vec::len);
    server.sightline(&["run", elsewhere]).says(5, "--upload sends a local file");
    let after = server.json(&["runs", "list", "--json"]).as_array().map(Vec::len);
    assert_eq!(before, after, "a run of which nothing came is deleted");
    let uploaded = server.json(&[&["run", elsewhere, "--upload", "--json"], &frames[..]].concat());
    assert_eq!(uploaded["run"]["status"], "completed");

    let made = server.sightline(&["runs", "create"]);
    let stopped = server.sightline(&["runs", "stop", "--all"]);
    assert_eq!(stopped.stdout, format!("{} stopped\n", made.stdout.trim()), "{}", stopped.stderr);
}
