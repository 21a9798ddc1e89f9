//! Pages of the book, as `docs/SUMMARY.md` lists them, and their fences.

use std::{collections::BTreeSet, fs, path::Component};

use crate::{book::root, support::files};

/// A block of code of a page.
pub struct Fence {
    /// Line of its opening.
    pub line: usize,
    pub language: String,
    /// The word after the language, or nothing.
    pub mark: String,
    pub text: String,
}

pub struct Page {
    /// Path beneath the root.
    pub name: String,
    pub fences: Vec<Fence>,
    /// Lines with blocks of code that are not fenced.
    pub faults: Vec<(usize, String)>,
}

const SUMMARY: &str = "docs/SUMMARY.md";

/// Every page of the book, the README first.
pub fn all() -> Vec<Page> {
    let pages: Vec<Page> = listed().iter().map(|name| page(name)).collect();
    assert!(pages.len() > 20 && pages[0].name == "README.md", "no book in {SUMMARY}");
    pages
}

/// Paths that the summary links, beneath the root.
pub fn listed() -> Vec<String> {
    let summary = fs::read_to_string(root().join(SUMMARY)).expect("a summary");
    let targets = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| joined("docs", target)).collect()
}

/// `target` as seen from the folder `from`, without `..`.
pub fn joined(from: &str, target: &str) -> String {
    let mut parts = Vec::new();
    for part in std::path::Path::new(from).join(target).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            part => parts.push(part.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}

fn page(name: &str) -> Page {
    let source =
        fs::read_to_string(root().join(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
    let mut page = Page { name: name.to_owned(), fences: Vec::new(), faults: Vec::new() };
    let (mut open, mut before): (Option<Fence>, &str) = (None, "");
    let mut in_list = false;
    for (at, line) in source.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => page.fences.extend(open.take()),
            (Some(fence), None) => fence.text.extend([line, "\n"]),
            (None, Some(info)) => {
                let (language, mark) = info.split_once(',').unwrap_or((info, ""));
                let (language, mark) = (language.to_owned(), mark.to_owned());
                open = Some(Fence { line: at + 1, language, mark, text: String::new() });
            }
            (None, None) => {
                in_list = match line.chars().next() {
                    Some('-' | '*' | '0'..='9') => true,
                    Some(' ') | None => in_list,
                    Some(_) => false,
                };
                if line.starts_with("    ") && before.is_empty() && !in_list {
                    page.faults.push((at + 1, "code without a fence".to_owned()));
                }
            }
        }
        before = line;
    }
    page
}

#[test]
fn every_document_is_a_page_once() {
    let listed = listed();
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let mut lost: Vec<String> = files(&root().join("docs"))
        .iter()
        .map(|path| path.strip_prefix(root()).expect("beneath it").display().to_string())
        .collect();
    lost.retain(|name| name.ends_with(".md") && name != SUMMARY && !once.contains(name));
    assert_eq!(lost, Vec::<String>::new(), "docs/SUMMARY.md does not list them");
}
