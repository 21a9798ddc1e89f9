//! `deploy/release-gates` on this build: each gate fails if the value exceeds its ceiling.
//!
//! Cargo is a stub, as the test that it would run belongs to this build.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::support::script;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const GOLDEN: &str = "fixtures/golden/gops.analysis.json";
/// The gates in order, each with the variable of its ceiling.
const GATES: [(&str, &str); 7] = [
    ("replay_differences", "SERVICE_MAX_REPLAY_DIFFERENCES"),
    ("schema_faults", "SERVICE_MAX_SCHEMA_FAULTS"),
    ("allocations_per_frame", "SERVICE_MAX_ALLOC_PER_FRAME"),
    ("cli_size_bytes", "SERVICE_MAX_CLI_SIZE_BYTES"),
    ("api_size_bytes", "SERVICE_MAX_API_SIZE_BYTES"),
    ("decision_p95_ns", "SERVICE_MAX_GATE_P95_NS"),
    ("decision_instructions", "SERVICE_MAX_GATE_INSTRUCTIONS"),
];

/// Makes a tree with the script and the files that it reads; `bin` is this build.
fn tree() -> TempDir {
    let dir = TempDir::new().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    for folder in ["deploy", "fixtures/golden", "bin/examples"] {
        fs::create_dir_all(at(folder)).expect("made");
    }
    for file in ["deploy/release-gates", GOLDEN] {
        fs::copy(Path::new(ROOT).join(file), at(file)).expect("copied");
    }
    for folder in ["docs", "decode"] {
        symlink(Path::new(ROOT).join(folder), at(folder)).expect("linked");
    }
    let built = Path::new(env!("CARGO_BIN_EXE_sightline")).parent().expect("a folder");
    for program in ["sightline", "examples/release_probe"] {
        let path = built.join(program);
        assert!(path.exists(), "no {}: cargo build --workspace --bins --examples", path.display());
        symlink(path, at("bin").join(program)).expect("linked");
    }
    // Only its size matters, and stripping the real server takes long.
    symlink("/bin/true", at("bin/sightline-server")).expect("linked");
    script(&at("cargo"), "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'");
    dir
}

/// Runs the gates with these ceilings; returns the output and each line's state.
fn gates(tree: &TempDir, ceilings: &[(&str, &str)]) -> (Output, Vec<(String, bool)>) {
    let output = Command::new(tree.path().join("deploy/release-gates"))
        .arg(tree.path().join("bin"))
        .env("CARGO", tree.path().join("cargo"))
        .env_remove("UPDATE_GOLDEN")
        .envs(ceilings.iter().copied())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let states = said.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].to_owned(), words[3] == "ok")
    });
    let states = states.collect();
    (output, states)
}

#[test]
fn each_gate_fails_where_more_is_observed_than_its_ceiling() {
    let tree = tree();
    let at = |name: &str| tree.path().join(name);
    // Raises every count that is 0 in a sound build.
    let golden = fs::read_to_string(at(GOLDEN)).expect("readable");
    let changed = golden.replacen("\"pts_ms\": 0", "\"pts_ms\": 1", 1);
    assert_ne!(changed, golden);
    fs::write(at(GOLDEN), changed).expect("written");
    script(&at("cargo"), "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101");
    let probe: PathBuf = at("bin/examples/release_probe");
    let real = fs::canonicalize(&probe).expect("a link");
    fs::remove_file(&probe).expect("removed");
    let more = format!("[ $1 = allocations ] && more=1\nexec {} \"$@\" $more", real.display());
    script(&probe, &more);

    // The replay differs twice: on one thread and on four.
    let values = ["1", "0", "0", "1", "1", "1", "1"];
    let ceilings = GATES.iter().zip(values).map(|((_, variable), value)| (*variable, value));
    let (output, states) = gates(&tree, &ceilings.collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for ((line, state), (gate, variable)) in said.lines().zip(states).zip(GATES) {
        assert_eq!(state, (gate.to_owned(), false), "{said}");
        assert!(line.contains(variable), "{said}");
    }
    assert_eq!(said.lines().count(), GATES.len(), "{said}");
}

#[test]
fn what_cannot_be_observed_fails_and_says_what_to_do() {
    let tree = tree();
    fs::remove_dir_all(tree.path().join("bin")).expect("removed");
    script(&tree.path().join("cargo"), "echo 'test result: ok. 0 passed; 0 failed'");
    let (output, states) = gates(&tree, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), states.len()), (Some(1), GATES.len()), "{said}");
    for line in said.lines() {
        let (_, cure) = line.split_once(" FAIL ").expect("a failure");
        assert!(
            line.contains(" - ")
                && (cure.contains("make release-gates") || cure.contains("see to that first")),
            "{line}"
        );
    }
}

#[test]
fn what_is_not_as_it_should_be_fails_the_gates_that_look_at_it_alone() {
    let (ample, probe) = ("999999999999", "bin/examples/release_probe");
    let all = GATES.map(|(_, variable)| (variable, ample));
    // Broken parts, the way in which each is broken, and the gates that use them.
    type Broken<'a> = (&'a str, Option<&'a str>);
    let many = Some("echo many");
    let rows: [(&[Broken<'_>], &[usize]); 2] = [
        (&[(GOLDEN, Some("{")), ("cargo", None), (probe, many)], &[0, 1, 2, 5, 6]),
        (&[("cargo", Some("echo no tests")), (probe, None)], &[1, 2, 5, 6]),
    ];
    for (broken, failing) in rows {
        let tree = tree();
        for (name, text) in broken {
            let path = tree.path().join(name);
            fs::remove_file(&path).expect("removed");
            if let Some(text) = text {
                script(&path, text);
            }
        }
        let (output, states) = gates(&tree, &all);
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = (0..GATES.len()).map(|at| (GATES[at].0.to_owned(), !failing.contains(&at)));
        assert_eq!(states, expected.collect::<Vec<_>>(), "{said}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn ceilings_that_are_none_are_refused_by_name() {
    let tree = tree();
    let rows = [
        ("SERVICE_MAX_ALLOC_PER_FRAMES", "0", "is the ceiling of no gate"),
        ("SERVICE_MAX_ALLOC_PER_FRAME", "-1", "set it to a whole number"),
        ("SERVICE_MAX_GATE_P95_NS", "", "set it to a whole number"),
        ("SERVICE_MAX_CLI_SIZE_BYTES", "12 MB", "set it to a whole number"),
    ];
    for (name, value, expected) in rows {
        // A setting of the server does not count as a mistake.
        let (output, states) = gates(&tree, &[(name, value), ("SERVICE_MAX_STREAMS", "9")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), states), (Some(2), vec![]), "{name}: {said}");
        assert!(said.starts_with(&format!("release-gates: {name} is")), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}
