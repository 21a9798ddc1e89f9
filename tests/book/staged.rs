//! Pages that `docs/build` gives to mdBook: their links lead to pages, every route is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use crate::book::{pages, root};

/// Runs `docs/build` with `arguments`, which is to succeed.
fn build(arguments: &[&Path]) {
    let done = Command::new(root().join("docs/build")).args(arguments).output().expect("python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Returns what is wrong with a link of `page`, whose target is given without its heading.
fn fault(staged: &Path, listed: &BTreeSet<String>, page: &str, target: &str) -> Option<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let target = pages::joined(folder, target);
    // mdBook makes the index of its folder of a README.
    let read = target.strip_suffix("index.md").map(|folder| format!("{folder}README.md"));
    if target.ends_with("README.md") {
        Some(format!("{page}: mdBook names {target} index.md"))
    } else if target.ends_with(".md") && !listed.contains(read.as_ref().unwrap_or(&target)) {
        Some(format!("{page}: the book has no page {target}"))
    } else if read.is_none() && !staged.join(&target).exists() {
        Some(format!("{page}: the book has no file {target}"))
    } else {
        None
    }
}

#[test]
fn links_of_the_built_pages_lead_to_pages_and_every_route_is_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let staged = dir.path().join("pages");
    build(&[&staged]);
    let read = |page: &str| {
        fs::read_to_string(staged.join(page)).unwrap_or_else(|why| panic!("{page}: {why}"))
    };
    let listed: BTreeSet<String> = pages::listed().into_iter().collect();
    let (mut wrong, mut links) = (Vec::new(), 0);
    for page in &listed {
        let source = read(page);
        let targets = source.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains(':')) {
            links += 1;
            wrong.extend(fault(&staged, &listed, page, target));
        }
    }
    assert!(links > 100, "{links} links");
    assert_eq!(wrong, Vec::<String>::new());
    let document = fs::read_to_string(root().join("schemas/openapi.json")).expect("there");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let paths = document["paths"].as_object().expect("routes").iter();
    let routes = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys();
        methods.map(move |method| (format!("### `{} {path}`", method.to_uppercase()), 1))
    });
    let mut told = BTreeMap::new();
    for line in read("docs/ROUTES.md").lines().filter(|line| line.starts_with("### ")) {
        *told.entry(line.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(told, routes.collect::<BTreeMap<_, _>>());
}

#[test]
fn mdbook_builds_the_book_where_it_is_installed() {
    let mdbook = root().join("target/mdbook/bin/mdbook");
    if !mdbook.exists() {
        println!("LEFT OUT the book as mdBook writes it: `make book` installs mdBook and has it");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    build(&[&mdbook, &dir.path().join("book")]);
}
