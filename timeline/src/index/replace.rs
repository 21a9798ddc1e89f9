//! Changes of the index by a compaction: bytes of the events of some runs, and replacement of files by one
//! that covers them.

use std::{collections::BTreeMap, ops::Range};

use media::{RunId, Seq};

use super::{FileIndex, LogIndex};

impl LogIndex {
    /// Returns the bytes of the events of these runs in each file that has some, by file number.
    pub(crate) fn bytes_of(&self, runs: impl IntoIterator<Item = RunId>) -> BTreeMap<usize, u64> {
        let mut bytes = BTreeMap::new();
        let numbers = runs.into_iter().filter_map(|run| self.numbers.get(&run));
        for seq in numbers.flat_map(|number| &self.runs[*number as usize].events) {
            let seq = Seq(u64::from(*seq));
            let number = self.files.partition_point(|file| file.first <= seq) - 1;
            let file = &self.files[number];
            if let Some(position) = file.position(seq) {
                *bytes.entry(number).or_default() += file.bytes(position);
            }
        }
        bytes
    }

    /// Replaces the files whose numbers `made` covers by its one file.
    ///
    /// For each run, `made` must have all of the events that it had in them, or none. Returns the replaced
    /// files.
    pub(crate) fn replace(&mut self, made: LogIndex) -> Vec<FileIndex> {
        let mut files = made.files;
        let mut file = files.pop().expect("a compaction makes one file");
        let range = self.files_in(file.first, file.next);
        let mut touched = Vec::new();
        for old in &self.files[range.clone()] {
            for (position, entry) in old.entries.iter().enumerate() {
                self.runs[entry.run()].bytes -= old.bytes(position);
                touched.push(entry.run() as u32);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        let gone =
            touched.iter().filter(|run| !made.numbers.contains_key(&self.runs[**run as usize].id));
        for number in gone.copied().collect::<Vec<_>>() {
            self.forget(number, file.first, file.next);
        }
        let numbers: Vec<u32> = made.runs.iter().map(|run| self.numbers[&run.id]).collect();
        for (run, number) in made.runs.iter().zip(&numbers) {
            self.runs[*number as usize].bytes += run.bytes;
        }
        for entry in &mut file.entries {
            entry.run_and_kind = numbers[entry.run()] << 8 | entry.run_and_kind & 0xff;
        }
        file.entries.shrink_to_fit();
        file.seqs.shrink_to_fit();
        self.generation += 1;
        file.generation = self.generation;
        self.files.splice(range, [file]).collect()
    }

    /// Returns the files whose first numbers lie in `first..next`.
    pub(crate) fn files_in(&self, first: Seq, next: Seq) -> Range<usize> {
        let before = |seq| self.files.partition_point(|file| file.first < seq);
        before(first)..before(next)
    }

    /// Removes the numbers in `from..to` from a run's events.
    fn forget(&mut self, number: u32, from: Seq, to: Seq) {
        let run = &mut self.runs[number as usize];
        let at = |seq: Seq| run.events.partition_point(|event| u64::from(*event) < seq.0);
        let removed = at(from)..at(to);
        run.events.drain(removed);
        if run.events.is_empty() {
            run.events = Vec::new();
            self.numbers.remove(&run.id);
            self.free.push(number);
        }
    }
}
