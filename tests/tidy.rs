//! Layout laws as tests: dependency edges, licences, banned crates, `unsafe`, file length, links, scripts.
//!
//! Each failure names the place and the law; CONTRIBUTING.md says why each law is there.
#![allow(missing_docs)]

#[path = "support/skip.rs"]
mod skip;

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/fuzzing.rs"]
mod fuzzing;
#[path = "tidy/layers.rs"]
mod layers;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Dependencies allowed among our own crates (normal and build dependencies).
const EDGES: &[(&str, &[&str])] = &[
    ("media", &[]),
    ("clips", &[]),
    ("decode", &["media"]),
    ("gate", &["media"]),
    ("timeline", &["media"]),
    ("timeline-schedules", &["media"]),
    ("transport", &["media"]),
    ("search", &["media"]),
    ("infer", &["media"]),
    ("embed", &["media"]),
    ("objects", &["media", "timeline"]),
    ("scripted-model", &[]),
    ("s3-server", &[]),
    ("benches", &[]),
    ("kernels", &["media", "gate"]),
    ("shaders", &["media", "gate"]),
    ("worker", &["media", "decode", "gate", "kernels", "shaders"]),
    ("tables", &["media", "gate"]),
    ("sightline-cli", &["media", "decode", "gate", "timeline", "worker", "embed", "tables"]),
    (
        "sightline",
        &[
            "media",
            "decode",
            "gate",
            "timeline",
            "transport",
            "worker",
            "search",
            "infer",
            "embed",
            "objects",
            "tables",
        ],
    ),
];

/// Crates that must stay free of these: they decide, and never wait, read files or know JSON. What of
/// them crosses to a media worker derives serde's traits, and no crate of them has a format.
const PURE: &[(&str, &[&str])] = &[
    ("media", &["tokio", "serde_json", "postcard", "axum", "ffmpeg-next"]),
    ("gate", &["tokio", "serde_json", "postcard", "axum", "ffmpeg-next"]),
    ("decode", &["tokio", "axum", "serde_json", "postcard"]),
    ("timeline", &["tokio", "axum"]),
    ("search", &["tokio", "axum", "hyper", "serde", "serde_json"]),
    ("infer", &["axum"]),
    ("embed", &["axum", "hyper", "reqwest"]),
];

/// Crates in which single modules may hold `unsafe`, each expected by attribute.
const UNSAFE_CRATES: &[&str] = &["media", "decode", "gate", "kernels", "worker"];

/// A file longer than this says why in its module doc, with the words "long because".
const LINES_MAX: usize = 400;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo metadata starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Targets that are served from, as deny.toml lists them.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Names of every package that is built for a target; `cargo metadata` also lists what features
/// that are off would need.
fn built() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--workspace", "--all-features", "--edges=all"])
        .args(TARGETS.map(|target| format!("--target={target}")))
        .args(["--prefix=none", "--format={p}"])
        .current_dir(root())
        .output()
        .expect("cargo tree starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("cargo tree prints UTF-8");
    printed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Package name to the names of its direct dependencies, development ones left out.
fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeMap<&str, &str> = array(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let mut graph = BTreeMap::new();
    for node in array(&metadata["resolve"]["nodes"]) {
        let direct = array(&node["deps"])
            .iter()
            .filter(|dep| array(&dep["dep_kinds"]).iter().any(|kind| text(&kind["kind"]) != "dev"))
            .map(|dep| names[text(&dep["pkg"])].to_owned())
            .collect();
        graph.insert(names[text(&node["id"])].to_owned(), direct);
    }
    graph
}

#[test]
fn dependencies_point_the_way_the_house_style_draws() {
    let graph = dependencies(&metadata());
    let ours: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, allowed) in &ours {
        for dep in graph.get(*name).unwrap_or_else(|| panic!("no package {name}")) {
            if ours.contains_key(dep.as_str()) && !allowed.contains(&dep.as_str()) {
                wrong.push(format!("{name} -> {dep}"));
            }
        }
    }
    for (name, banned) in PURE {
        wrong.extend(
            graph[*name]
                .iter()
                .filter(|dep| banned.contains(&dep.as_str()))
                .map(|dep| format!("{name} -> {dep}")),
        );
    }
    assert_eq!(wrong, Vec::<String>::new(), "edges the layout forbids");
}

#[test]
fn every_workspace_member_has_a_place_in_the_layout() {
    let metadata = metadata();
    let known: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    let members: BTreeSet<&str> = array(&metadata["workspace_members"])
        .iter()
        .map(|id| {
            array(&metadata["packages"])
                .iter()
                .find(|package| package["id"] == *id)
                .map(|package| text(&package["name"]))
                .expect("a member is a package")
        })
        .collect();
    assert_eq!(members, known);
}

#[test]
fn licences_and_bans_of_deny_toml_hold() {
    let deny: toml::Table =
        std::fs::read_to_string(root().join("deny.toml")).expect("readable").parse().expect("TOML");
    let allowed: BTreeSet<&str> = deny["licenses"]["allow"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(toml::Value::as_str)
        .collect();
    let banned: BTreeSet<&str> = deny["bans"]["deny"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|ban| ban["name"].as_str())
        .collect();
    let metadata = metadata();
    let built = built();
    let mut wrong: Vec<String> = banned
        .iter()
        .filter(|name| built.contains(**name))
        .map(|name| format!("{name}: banned in deny.toml"))
        .collect();
    for package in array(&metadata["packages"]) {
        let (name, licence) = (text(&package["name"]), text(&package["license"]));
        // "A OR B" needs one of the two, "A AND B" and the old "A/B" spelling of OR as they say.
        let fits = |clause: &str| clause.split(" AND ").all(|one| allowed.contains(one.trim()));
        let plain = licence.replace(['(', ')'], "").replace('/', " OR ");
        if !plain.split(" OR ").any(fits) {
            wrong.push(format!("{name}: licence {licence:?} is not in deny.toml"));
        }
        let source = text(&package["source"]);
        if !source.is_empty() && !source.starts_with("registry+") {
            wrong.push(format!("{name}: not from the registry: {source}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Every tracked or new file of ours with this ending, generated folders left out.
fn files(ending: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("readable folder") {
            let path = entry.expect("readable entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !matches!(name, "target" | "node_modules" | ".git" | "demo-out" | ".venv") {
                    walk(&path, ending, found);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), ending, &mut found);
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn unsafe_stays_where_it_is_expected() {
    let mut wrong = Vec::new();
    for (name, _) in EDGES {
        let folder = match *name {
            "sightline" => root(),
            "sightline-cli" => root().join("cli"),
            "clips" => root().join("fixtures/clips"),
            other => root().join(other),
        };
        let entries = ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file));
        for entry in entries.iter().filter(|entry| entry.exists()) {
            let source = read(entry);
            let forbidden = source.contains("#![forbid(unsafe_code)]");
            let denied = source.contains("#![deny(unsafe_code)]") && UNSAFE_CRATES.contains(name);
            if !forbidden && !denied {
                wrong.push(format!("{}: forbid(unsafe_code) is missing", relative(entry)));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_file_says_what_it_is_and_long_ones_say_why() {
    let mut wrong = Vec::new();
    for path in files(".rs") {
        let source = read(&path);
        let doc: Vec<&str> = source.lines().take_while(|line| line.starts_with("//!")).collect();
        let lines = source.lines().count();
        let name = relative(&path);
        if doc.is_empty() {
            wrong.push(format!("{name}: no module doc"));
        }
        if doc.len() > 8 && !name.contains("examples/") {
            wrong.push(format!("{name}: module doc of {} lines, at most 8", doc.len()));
        }
        if lines > LINES_MAX
            && !doc.join(" ").replace("//! ", "").to_lowercase().contains("long because")
        {
            wrong.push(format!("{name}: {lines} lines and no \"long because\" in the module doc"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Words with which no doc comment opens: a statement does.
const QUESTIONS: [&str; 7] = ["How", "What", "Where", "Whether", "Who", "Whose", "Why"];

#[test]
fn doc_comments_open_as_statements() {
    let (mut blocks, mut wrong) = (0, Vec::new());
    for path in files(".rs") {
        let mut within = false;
        for (at, line) in read(&path).lines().enumerate() {
            let line = line.trim_start();
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(doc) = doc.filter(|_| !within) {
                blocks += 1;
                if QUESTIONS.contains(&doc.split_whitespace().next().unwrap_or_default()) {
                    wrong.push(format!("{}:{}: {doc}", relative(&path), at + 1));
                }
            }
            within = doc.is_some();
        }
    }
    assert!(wrong.len() * 100 <= blocks, "{} of {blocks}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns true if the first line names a shell; most scripts have no ending.
fn is_shell_script(path: &Path) -> bool {
    let (mut start, file) = (Vec::new(), File::open(path));
    let read = file.and_then(|file| file.take(64).read_to_end(&mut start));
    read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.starts_with(b"#!") && line.ends_with(b"sh")
}

#[test]
fn shellcheck_has_nothing_to_say_about_a_script() {
    let scripts: Vec<PathBuf> =
        files("").into_iter().filter(|path| path.is_file() && is_shell_script(path)).collect();
    let names: Vec<String> = scripts.iter().map(|path| relative(path)).collect();
    for known in [".ci/run", "benches/live.sh", "deploy/gpu-check"] {
        assert!(names.iter().any(|name| name == known), "no {known} in {names:?}");
    }
    let checked = match Command::new("shellcheck").args(&scripts).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return skip::skip("shellcheck of the scripts", "deploy/setup.sh test installs it");
        }
        checked => checked.expect("shellcheck starts"),
    };
    let said = String::from_utf8_lossy(&checked.stdout);
    let complaint = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{}\n{said}{complaint}", names.join(" "));
}
