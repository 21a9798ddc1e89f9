//! Layers of the server: which module may name which.

use std::collections::BTreeSet;

use super::{files, read, relative};

/// Layers of the server's modules: each names only those before it.
const LAYERS: [&str; 7] = ["base", "runs", "record", "deliver", "api", "app", "server"];

/// Files that name a later layer, and that layer: each is to go, none may come.
const UPWARD: [(&str, &str); 14] = [
    ("src/api.rs", "app"),
    ("src/api/checks.rs", "app"),
    ("src/api/checks/backends.rs", "app"),
    ("src/api/checks/machine.rs", "app"),
    ("src/api/checks/network.rs", "app"),
    ("src/api/checks/store.rs", "app"),
    ("src/api/limits.rs", "app"),
    ("src/api/limits.rs", "server"),
    ("src/base/metrics.rs", "runs"),
    ("src/base/metrics/live.rs", "record"),
    ("src/base/metrics/remote.rs", "record"),
    ("src/record/backend.rs", "app"),
    ("src/runs/source.rs", "record"),
    ("src/runs/source/remote.rs", "record"),
];

/// Modules of the crate's root that `source` names: in a path, or in the braces of a `use`.
fn named_modules(source: &str) -> BTreeSet<&str> {
    let mut named = BTreeSet::new();
    for (at, _) in source.match_indices("crate::") {
        let rest = &source[at + "crate::".len()..];
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
fn layers_of_the_server_name_only_those_before_them() {
    let rank = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let mut upward = BTreeSet::new();
    for path in files(".rs") {
        let name = relative(&path);
        let Some(inside) = name.strip_prefix("src/") else { continue };
        let own = inside.split(['/', '.']).next().and_then(rank);
        for layer in named_modules(&read(&path)) {
            if own.zip(rank(layer)).is_some_and(|(own, other)| other > own) {
                upward.insert((name.clone(), layer.to_owned()));
            }
        }
    }
    let known = UPWARD.map(|(file, layer)| (file.to_owned(), layer.to_owned()));
    assert_eq!(upward, BTreeSet::from(known), "edges that run upwards");
}
