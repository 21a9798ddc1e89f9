//! Links of the documents lead to files and headings that are there; tests that they name are there.

use std::path::{Path, PathBuf};

use crate::{files, read, relative, root};

/// The text of a document without its blocks of code.
fn prose(source: &str) -> String {
    let mut is_code = false;
    let lines = source.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Anchors of the headings of a document, as mdBook and code hosts make them.
fn anchors(source: &str) -> Vec<String> {
    let headings = prose(source);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let letters = heading.trim_start_matches('#').trim().to_lowercase();
        let letters = letters.chars().map(|letter| if letter == ' ' { '-' } else { letter });
        letters.filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}

/// Returns what is wrong with a link of the document `from`.
fn fault(from: &Path, link: &str) -> Option<String> {
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path: PathBuf = match target {
        "" => from.to_owned(),
        target => from.parent().expect("a file is in a folder").join(target),
    };
    if !path.exists() {
        return Some(format!("{}: no file {target}", relative(from)));
    }
    let is_document = path.extension().is_some_and(|ending| ending == "md");
    let is_lost =
        !anchor.is_empty() && is_document && !anchors(&read(&path)).contains(&anchor.to_owned());
    is_lost.then(|| format!("{}: {target} has no heading {anchor}", relative(from)))
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for path in files(".md") {
        let source = prose(&read(&path));
        let links = source.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let ours = links.filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
        wrong.extend(ours.filter_map(|link| fault(&path, link)));
    }
    assert_eq!(wrong, Vec::<String>::new(), "links that lead nowhere");
}

#[test]
fn tests_that_the_documents_name_are_there() {
    let mut wrong = Vec::new();
    for path in files(".md") {
        let source = read(&path);
        for quoted in source.split('`').skip(1).step_by(2) {
            let Some((file, name)) = quoted.split_once(".rs::") else { continue };
            let name = name.rsplit("::").next().unwrap_or_default();
            let code = std::fs::read_to_string(root().join(format!("{file}.rs")));
            if !code.is_ok_and(|code| code.contains(&format!("fn {name}("))) {
                wrong.push(format!("{}: {quoted}", relative(&path)));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "tests that are not there");
}
