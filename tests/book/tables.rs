//! Tables of the book beside the code: settings and their defaults, failures.

use std::{collections::BTreeMap, fs};

use sightline::config::Config;

use crate::{
    book::{pages, root},
    support::files,
};

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

/// All code of the folder `name` as one text, strings over several lines joined.
fn code(name: &str) -> String {
    let mut files = files(&root().join(name));
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let code: String = files.iter().map(|path| fs::read_to_string(path).expect("UTF-8")).collect();
    code.split("\\\n").map(str::trim_start).collect()
}

#[test]
fn messages_that_troubleshooting_quotes_are_those_of_the_code() {
    let page = fs::read_to_string(root().join("docs/operate/troubleshooting.md")).expect("there");
    let code = ["src", "timeline/src", "transport/src", "worker/src"].map(code).concat();
    let tables = page.split("| It says | Do |\n|---|---|\n").skip(1);
    let rows = tables.flat_map(|table| table.lines().take_while(|line| line.starts_with('|')));
    let cells: Vec<&str> = rows.map(|row| row.split(" | ").next().expect("a cell")).collect();
    assert!(
        cells.iter().all(|cell| cell.contains('`')),
        "a row without a quoted message: {cells:?}"
    );
    let quoted = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let quoted: Vec<&str> = quoted.collect();
    // A refused setting is told by its name and what is wrong with it, which stand apart in the code.
    let parts = quoted.iter().flat_map(|words| words.split("..."));
    let parts = parts.map(|part| match part.split_once(' ') {
        Some((name, is)) if name.starts_with("SERVICE_") && !code.contains(part.trim()) => is,
        _ => part,
    });
    let lost: Vec<&str> =
        parts.map(|part| part.trim()).filter(|part| !code.contains(part)).collect();
    assert!(quoted.len() > 9 && lost.is_empty(), "{lost:?} of {quoted:?}");
}

#[test]
fn the_files_of_settings_in_the_book_can_be_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut files = 0;
    for page in pages::all() {
        for fence in page.fences.iter().filter(|fence| fence.language == "toml") {
            let at = format!("{}:{}", page.name, fence.line);
            let file = dir.path().join("sightline.toml");
            fs::write(&file, &fence.text).expect("written");
            let config = Config::resolve([
                ("SERVICE_API_KEYS".to_owned(), "a-key-of-sixteen-bytes".to_owned()),
                ("SERVICE_CONFIG".to_owned(), file.display().to_string()),
                ("GEMINI_API_KEY".to_owned(), "a-key".to_owned()),
            ]);
            let config = config.unwrap_or_else(|errors| panic!("{at}: {errors:?}"));
            assert_eq!(config.warnings, Vec::<String>::new(), "{at}");
            let named = fence.text.matches("[[backends]]").count();
            assert_eq!(config.api.inference.backends.len(), named, "{at}");
            files += 1;
        }
    }
    assert!(files > 0, "no page has a file of settings");
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
