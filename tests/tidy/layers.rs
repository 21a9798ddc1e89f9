//! Layers of the server: which module names which, exactly.

use std::collections::{BTreeMap, BTreeSet};

use super::{files, read, relative};

/// Every module of the server and all that it names, in an order in which each names only those before it.
const MODULE_EDGES: [(&str, &[&str]); 9] = [
    ("base", &[]),
    ("runs", &["base"]),
    ("record", &["base", "runs"]),
    ("deliver", &["base", "runs"]),
    ("api", &["base", "deliver", "record", "runs"]),
    ("server", &["api", "base"]),
    ("config", &["api", "base", "deliver", "record", "runs", "server"]),
    ("app", &["api", "base", "config", "deliver", "record", "runs", "server"]),
    ("main", &["api", "app", "base", "config", "server"]),
];

/// Modules of the crate `krate` that `source` names: in a path, or in the braces of a `use`.
fn named_modules<'a>(source: &'a str, krate: &str) -> BTreeSet<&'a str> {
    let mut named = BTreeSet::new();
    for (at, _) in source.match_indices(krate) {
        let rest = &source[at + krate.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            named.extend(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
            continue;
        };
        let mut depth = 1;
        let mut start = Some(0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            // A name ends before its path, or is one by itself.
            if depth == 0 || depth == 1 && [':', ','].contains(&c) {
                named.extend(start.take().map(|start| group[start..at].trim()));
            }
            if depth == 1 && c == ',' {
                start = Some(at + 1);
            }
            if depth == 0 {
                break;
            }
        }
    }
    named
}

#[test]
fn modules_of_the_server_name_exactly_those_listed_and_no_later_one() {
    let is_module = |name: &&str| MODULE_EDGES.iter().any(|(module, _)| module == name);
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for path in files(".rs") {
        let file = relative(&path);
        let Some(inside) = file.strip_prefix("src/") else { continue };
        let own = inside.split(['/', '.']).next().unwrap_or_default();
        if own == "lib" {
            continue;
        }
        // The binary names the library as any other crate does.
        let krate = if own == "main" { "sightline::" } else { "crate::" };
        let text = read(&path);
        let named = named_modules(&text, krate);
        let others = named.into_iter().filter(is_module).filter(|other| *other != own);
        found.entry(own.to_owned()).or_default().extend(others.map(str::to_owned));
    }
    let listed = MODULE_EDGES.map(|(module, named)| {
        (module.to_owned(), named.iter().map(|n| (*n).to_owned()).collect())
    });
    assert_eq!(found, BTreeMap::from(listed), "edges among the modules of src/");
    for (rank, (module, named)) in MODULE_EDGES.iter().enumerate() {
        let is_before = |other: &&str| MODULE_EDGES[..rank].iter().any(|(known, _)| known == other);
        assert!(named.iter().all(is_before), "{module} names a later module");
    }
}
