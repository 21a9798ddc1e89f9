//! Tables of the book beside the code: settings and their defaults, failures.

use std::{collections::BTreeMap, fs};

use sightline::config::Config;

use crate::book::root;

/// Words of the table for a default that the code leaves empty.
const EMPTY: [&str; 3] = ["none", "the first", "those of"];

/// Settings of the table of `docs/CONFIG.md`, with the cell of their default.
fn documented() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("docs/CONFIG.md")).expect("there");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `SERVICE_") || line.starts_with("| `RUST_LOG"));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let names = cells[0].split('`').skip(1).step_by(2);
        let defaults: Vec<&str> = cells[1].split(", ").collect();
        for (at, name) in names.enumerate() {
            let default =
                if defaults.len() > 1 { defaults[at.min(defaults.len() - 1)] } else { cells[1] };
            assert_eq!(found.insert(name.to_owned(), default.to_owned()), None, "{name} twice");
        }
    }
    found
}

#[test]
fn settings_and_their_defaults_are_those_of_the_code() {
    let key = ("SERVICE_API_KEYS".to_owned(), "a-key-of-sixteen-bytes".to_owned());
    let config = Config::resolve([key]).expect("defaults are acceptable");
    let mut documented = documented();
    let mut wrong = Vec::new();
    for setting in &config.shown {
        let Some(default) = documented.remove(setting.name) else {
            wrong.push(format!("docs/CONFIG.md has no {}", setting.name));
            continue;
        };
        let is_told = match setting.value.as_str() {
            _ if setting.is_set => true,
            "" => EMPTY.iter().any(|words| default.contains(words)),
            value => default.contains(&format!("`{value}`")),
        };
        if !is_told {
            wrong.push(format!(
                "{}: {} in docs/CONFIG.md, {:?} in the code",
                setting.name, default, setting.value
            ));
        }
    }
    wrong.extend(documented.keys().map(|name| format!("the code has no {name}")));
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_code_of_a_failure_has_its_remedy() {
    let code = fs::read_to_string(root().join("src/api/error.rs")).expect("there");
    let page = fs::read_to_string(root().join("docs/operate/troubleshooting.md")).expect("there");
    let parts = code.split("StatusCode::").skip(1);
    let codes =
        parts.filter_map(|part| part.split_once(", \"")?.1.split_once('"').map(|(code, _)| code));
    let codes: Vec<&str> = codes
        .filter(|code| code.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()))
        .collect();
    assert!(codes.len() > 8, "{codes:?}");
    let lost: Vec<&&str> =
        codes.iter().filter(|code| !page.contains(&format!("`{code}`"))).collect();
    assert!(lost.is_empty(), "docs/operate/troubleshooting.md does not tell of {lost:?}");
}
