//! Folder after a power cut, from the record of a process's changes.
//!
//! `tests/support/disk_shim.c` makes the record. `survivor.rs` draws the surviving part of each file. Of the
//! changes of names since the last sync of their folder, either all up to one survive, as in a file system's
//! journal, or each name is as any of these changes left it: in every order, even with half of a rename.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use crate::survivor::{Change, Content, Sector, free, survivor};
use fastrand::Rng;

/// Recorded change.
pub struct Step {
    kind: u8,
    inode: u64,
    at: u64,
    name: String,
    bytes: Vec<u8>,
}

impl Step {
    /// Returns the process's note: a word and its bytes.
    pub fn note(&self) -> Option<(&str, &[u8])> {
        (self.kind == NOTE).then_some((&self.name, &self.bytes))
    }
}

pub const NOTE: u8 = b'n';

/// Returns a note in the form of the record.
pub fn note(text: &str, bytes: &[u8]) -> Vec<u8> {
    let mut record = vec![NOTE];
    for number in [0, 0, text.len() as u64, bytes.len() as u64] {
        record.extend(number.to_le_bytes());
    }
    record.extend(text.as_bytes());
    record.extend(bytes);
    record
}

pub fn steps(mut record: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((&kind, rest)) = record.split_first() {
        let number = |at: usize| u64::from_le_bytes(rest[at * 8..at * 8 + 8].try_into().unwrap());
        let (name, bytes) = rest[32..].split_at(number(2) as usize);
        let (bytes, rest) = bytes.split_at(number(3) as usize);
        let name = String::from_utf8(name.to_vec()).unwrap();
        steps.push(Step { kind, inode: number(0), at: number(1), name, bytes: bytes.to_vec() });
        record = rest;
    }
    steps
}

#[derive(Clone)]
enum Node {
    File(Content),
    /// Names, each with its file at the last sync and after each change since, by change number.
    Folder(BTreeMap<String, Vec<(u64, Option<usize>)>>),
}

/// Folder with everything beneath it.
pub struct Tree {
    root: String,
    nodes: Vec<Node>,
    by_inode: HashMap<u64, usize>,
    freed: Vec<Sector>,
    changes: u64,
}

impl Tree {
    /// Returns the empty, durable folder `root`.
    pub fn new(root: &str) -> Tree {
        let (nodes, by_inode) = (vec![Node::Folder(BTreeMap::new())], HashMap::new());
        Tree { root: root.to_owned(), nodes, by_inode, freed: Vec::new(), changes: 0 }
    }

    fn parts<'a>(&self, path: &'a str) -> Vec<&'a str> {
        path[self.root.len()..].split('/').filter(|part| !part.is_empty()).collect()
    }

    fn names(&mut self, folder: usize) -> &mut BTreeMap<String, Vec<(u64, Option<usize>)>> {
        match &mut self.nodes[folder] {
            Node::Folder(names) => names,
            Node::File(_) => panic!("not a folder"),
        }
    }

    fn found(&mut self, parts: &[&str]) -> Option<usize> {
        parts.iter().try_fold(0, |folder, part| self.names(folder).get(*part)?.last()?.1)
    }

    fn name(&mut self, path: &str, node: Option<usize>) {
        let parts = self.parts(path);
        let Some((last, folders)) = parts.split_last() else { return };
        let folder = self.found(folders).expect("made before");
        self.changes += 1;
        let change = (self.changes, node);
        let versions = self.names(folder).entry((*last).to_owned());
        let versions = versions.or_insert_with(|| vec![(0, None)]);
        let before = versions.last().and_then(|version| version.1);
        versions.push(change);
        if let Some(before) = before
            && Some(before) != node
            && let Node::File(content) = &self.nodes[before]
        {
            free(&mut self.freed, &content.bytes);
        }
    }

    fn make(&mut self, path: &str, node: Node) -> usize {
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.name(path, Some(number));
        number
    }

    fn file(&mut self, step: &Step) -> &mut Content {
        let number = match self.by_inode.get(&step.inode) {
            Some(number) => *number,
            // Opened by a call that is not recorded.
            None => self.make(&step.name, Node::File(Content::default())),
        };
        self.by_inode.insert(step.inode, number);
        match &mut self.nodes[number] {
            Node::File(content) => content,
            Node::Folder(_) => panic!("{} is a folder", step.name),
        }
    }

    fn sync(&mut self, step: &Step) {
        let file = self.by_inode.get(&step.inode).copied();
        let parts = self.parts(&step.name);
        if let Some(number) = file.or_else(|| self.found(&parts)) {
            self.settle(number);
        }
    }

    fn settle(&mut self, number: usize) {
        match &mut self.nodes[number] {
            Node::File(content) => {
                content.durable.clone_from(&content.bytes);
                content.unsynced.clear();
            }
            Node::Folder(names) => {
                names.values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
                names.retain(|_, versions| versions[0].1.is_some());
                names.values_mut().for_each(|versions| versions[0].0 = 0);
            }
        }
    }

    /// Makes everything durable: a cut at this moment leaves what the operating system shows.
    pub fn sync_all(&mut self) {
        (0..self.nodes.len()).for_each(|number| self.settle(number));
    }

    /// Applies the change of `step`.
    pub fn apply(&mut self, step: &Step) {
        match step.kind {
            b'c' => {
                let number = self.make(&step.name, Node::File(Content::default()));
                self.by_inode.insert(step.inode, number);
            }
            b'd' => drop(self.make(&step.name, Node::Folder(BTreeMap::new()))),
            b'u' => self.name(&step.name, None),
            b'r' => {
                let node = self.found(&self.parts(&step.name)).expect("there");
                self.name(&step.name, None);
                self.name(str::from_utf8(&step.bytes).unwrap(), Some(node));
            }
            b't' => {
                let content = self.file(step);
                content.bytes.resize(step.at as usize, 0);
                content.unsynced.push(Change::Size(step.at as usize));
            }
            b'w' => self.file(step).write(step.at as usize, &step.bytes),
            b's' => self.sync(step),
            _ => {}
        }
    }

    /// Writes to `to` the state after a power cut at this moment.
    pub fn cut(&self, to: &Path, random: &mut Rng) {
        let freed = if random.u64(..100) < 50 { self.freed.as_slice() } else { &[] };
        let until = (random.u64(..100) < 50).then(|| random.u64(..self.changes + 1));
        self.write(0, to, (until, freed), random);
    }

    fn write(
        &self,
        number: usize,
        to: &Path,
        (until, freed): (Option<u64>, &[Sector]),
        random: &mut Rng,
    ) {
        let names = match &self.nodes[number] {
            Node::File(content) => {
                return fs::write(to, survivor(content, freed, random).bytes).unwrap();
            }
            Node::Folder(names) => names,
        };
        fs::create_dir_all(to).unwrap();
        for (name, versions) in names {
            let last = match until {
                Some(until) => versions.partition_point(|(change, _)| *change <= until).max(1) - 1,
                None => random.u64(..versions.len() as u64) as usize,
            };
            if let Some(node) = versions[last].1 {
                self.write(node, &to.join(name), (until, freed), random);
            }
        }
    }
}
