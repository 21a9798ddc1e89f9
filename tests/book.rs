//! The README and the book: their commands run as they stand, their output is what comes, their tables are the code's.
//!
//! A fence of `sh` runs, those of a page one after the other in one folder and shell. One of `sh,server` ends with
//! a server, which runs on behind the next ones in place of the one before. Those with another mark do not run here,
//! each for the reason that CONTRIBUTING.md gives. Of a fence `text,output` every line has come out of the page's
//! commands, with anything in place of `...`.

mod pages;
mod staged;
mod tables;

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use pages::{Fence, Page};
use scripted_model::{ScriptedServer, Step};
use serde_json::json;

use crate::support::{free_address, sandbox};

/// Marks of commands that cannot run here.
const MARKS: [&str; 6] =
    ["needs-camera", "needs-engine", "needs-gpu", "needs-host", "needs-model", "needs-make"];

/// Ports of the pages, each replaced by a free one. On the last two a model answers.
const PORTS: [&str; 6] = ["8080", "8443", "8189", "9000", "8000", "11434"];

/// Set-up before the commands of a page. The key is the one that the page would have the reader make.
const PROLOGUE: &str = r#"
stop() { if [ -n "${server-}" ]; then kill "$server" && wait "$server" || :; server=; fi; }
listening() {
    server=$!
    set +x
    until curl -fs "http://127.0.0.1:8080/v1/health" >/dev/null; do kill -0 "$server"; sleep 0.1; done
    set -x
}
trap 'code=$?; stop; trap "" TERM; kill 0; exit $code' EXIT
set -eux
"#;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The script of a page, or nothing where none of it runs.
fn script(page: &Page) -> Option<String> {
    let mut script = String::from(PROLOGUE);
    let mut runs = false;
    for Fence { mark, text, .. } in page.fences.iter().filter(|fence| fence.language == "sh") {
        match mark.as_str() {
            "" => script += text,
            "server" => {
                script += &format!("stop\n{} >>server.log 2>&1 &\nlistening\n", text.trim_end());
            }
            _ => continue,
        }
        runs = true;
    }
    runs.then_some(script)
}

/// Runs the commands of `page` and returns what is wrong.
fn run(page: &Page, model: u16) -> Option<String> {
    let script = script(page)?;
    let dir = tempfile::tempdir().expect("a folder");
    let footage = dir.path().join("footage");
    fs::create_dir(&footage).expect("made");
    // Of fixed bytes, as its output is in the pages.
    let clip = clips::rendered("golden.mp4", "-i {bikes.mp4} -an -c copy");
    for place in [&footage, dir.path()] {
        fs::copy(&clip, place.join("clip.mp4")).expect("copied");
    }
    let ports = PORTS.iter().enumerate().map(|(at, name)| {
        let is_model = at + 2 >= PORTS.len();
        (*name, if is_model { model } else { free_address().port() })
    });
    let ports: Vec<(&str, String)> = ports.map(|(name, port)| (name, port.to_string())).collect();
    // In two steps: a free port may have the digits of another.
    let script = PORTS.iter().fold(script, |text, name| text.replace(name, &format!("<{name}>")));
    let put =
        |text: String, (name, port): &(&str, String)| text.replace(&format!("<{name}>"), port);
    let script = ports.iter().fold(script, put);
    let script = script.replace("/srv/footage", footage.to_str().expect("UTF-8"));
    let server = PathBuf::from(env!("CARGO_BIN_EXE_sightline-server"));
    let programs = server.parent().expect("a folder");
    assert!(
        programs.join("sightline").is_file(),
        "no command beside {}: build the workspace's binaries",
        server.display()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(dir.path())
        // What a page leaves running ends with its shell, by their group.
        .process_group(0)
        .env_clear()
        .env("HOME", dir.path())
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()))
        .env("SERVICE_BIND_ADDR", format!("127.0.0.1:{}", ports[0].1))
        .env("SERVICE_SANDBOX", sandbox::policy(&server).as_str())
        .env("SIGHTLINE_SERVER", format!("http://127.0.0.1:{}", ports[0].1))
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let (said, out) = (text(&output.stderr), text(&output.stdout));
    if !output.status.success() {
        let log = fs::read_to_string(dir.path().join("server.log")).unwrap_or_default();
        return Some(format!("{}: {}\n{said}\n{out}\n{log}", page.name, output.status));
    }
    let found: Vec<&str> =
        out.lines().chain(said.lines().filter(|line| !line.starts_with('+'))).collect();
    let wanted = page.fences.iter().filter(|fence| fence.mark == "output");
    let lost: Vec<&str> = wanted
        .flat_map(|fence| fence.text.lines())
        .filter(|line| !found.iter().any(|found| matches(line, found)))
        .collect();
    (!lost.is_empty()).then(|| format!("{}: did not come: {lost:#?} of\n{out}\n{said}", page.name))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns true where `found` has the parts of `line` between its `...`, in their order.
fn matches(line: &str, found: &str) -> bool {
    let mut rest = found;
    line.split("...").all(|part| match rest.find(part.trim_end()) {
        Some(at) => {
            rest = &rest[at + part.trim_end().len()..];
            true
        }
        None => false,
    })
}

#[test]
fn the_commands_of_the_book_work_as_they_stand() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let answer = json!({
        "event_type": "traffic", "object_label": "truck", "summary": "a red truck",
        "description": "A red truck passes a cyclist.", "confidence": 0.9,
    });
    let models = json!({"object": "list", "data": [
        {"id": "Qwen/Qwen3-VL-8B-Instruct", "object": "model"}, {"id": "qwen3-vl:8b", "object": "model"},
    ]});
    let model = runtime
        .block_on(ScriptedServer::start(move |_| Step::chat(&answer.to_string())))
        .expect("it listens");
    model.answer_probes(Step::json(200, &models));
    let base = model.base_url();
    let port = base.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok());
    let (port, pages) = (port.expect("a port"), pages::all());
    // Three at once: most wait for a server to start or for a film to play.
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..3)
            .map(|first| {
                let mine = pages.iter().skip(first).step_by(3);
                scope.spawn(move || mine.filter_map(|page| run(page, port)).collect::<Vec<_>>())
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Commands that `make` would run of a line such as `make demo KEEP=1   # and the console`.
fn dry(line: &str) -> Result<String, String> {
    let words = line.split('#').next().unwrap_or_default().split_whitespace().skip(1);
    let mut make = Command::new("make");
    // Nothing of a `make` that these tests may run beneath.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        make.env_remove(name);
    }
    let made = make.arg("-n").args(words).current_dir(root()).output().expect("make");
    if made.status.success() { Ok(text(&made.stdout)) } else { Err(text(&made.stderr)) }
}

/// Returns what is wrong with a line of `make` or of `cargo test`.
fn unmade(line: &str) -> Option<String> {
    if line.starts_with("make ") {
        return dry(line).err();
    }
    let module = line.strip_prefix("cargo test ")?.split_whitespace().next_back()?;
    let file = format!("tests/{}.rs", module.trim_end_matches("::").replace("::", "/"));
    (!root().join(&file).is_file()).then(|| format!("no {file}"))
}

#[test]
fn the_two_commands_of_the_readme_build_the_demo_and_run_it() {
    let readme = pages::all().swap_remove(0);
    let fence = readme.fences.iter().find(|fence| fence.mark == "needs-make").expect("a fence");
    let commands: Vec<String> =
        fence.text.lines().map(|line| dry(line).unwrap_or_else(|why| panic!("{why}"))).collect();
    let [once, kept] = &commands[..] else { panic!("{commands:?}") };
    for commands in [once, kept] {
        let build = commands.find("cargo build --locked --bins --workspace").expect("a build");
        let demo = commands.find("target/debug/sightline demo --server-binary").expect("the demo");
        assert!(build < demo, "{commands}");
    }
    assert!(kept.contains(" --keep") && !once.contains(" --keep"), "{kept}");
}

#[test]
fn commands_that_do_not_run_say_why() {
    let reasons = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("there");
    for mark in MARKS {
        assert!(reasons.contains(&format!("| `{mark}` |")), "CONTRIBUTING.md does not tell {mark}");
    }
    let mut wrong = Vec::new();
    for page in pages::all() {
        for (line, why) in &page.faults {
            wrong.push(format!("{}:{line}: {why}", page.name));
        }
        for Fence { line, language, mark, text } in &page.fences {
            let at = format!("{}:{line}", page.name);
            let known = match language.as_str() {
                "sh" => mark.is_empty() || mark == "server" || MARKS.contains(&mark.as_str()),
                "text" => mark.is_empty() || mark == "output",
                "bash" | "shell" | "console" | "" => false,
                _ => mark.is_empty(),
            };
            if !known {
                wrong.push(format!("{at}: no such fence: {language},{mark}"));
            }
            for line in text.lines() {
                wrong.extend(unmade(line).map(|why| format!("{at}: {line}: {why}")));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
