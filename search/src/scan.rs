//! One search: chunks taken one after the other by any number of threads, until it is cancelled.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use media::{RunId, Seq};

use crate::{
    case_fold::Needle,
    chunk::{Block, Chunk, Part},
    error::SearchError,
};

/// A description that has the needle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its event.
    pub seq: Seq,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Descriptions of the runs that were asked for.
    pub scanned: u64,
    /// Of these, how many have the needle.
    pub total_hits: u64,
    /// The first of them, in order.
    pub hits: Vec<Hit>,
}

/// A search under way over the chunks as they were when it began.
pub struct Scan {
    chunks: Vec<Arc<Chunk>>,
    runs: HashSet<RunId>,
    needle: Needle,
    limit: usize,
    next: AtomicUsize,
    cancelled: AtomicBool,
    parts: Mutex<Vec<(usize, Part)>>,
}

impl Scan {
    pub(crate) fn new(
        chunks: Vec<Arc<Chunk>>,
        runs: HashSet<RunId>,
        needle: Needle,
        limit: usize,
    ) -> Scan {
        Scan {
            chunks,
            runs,
            needle,
            limit,
            next: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            parts: Mutex::default(),
        }
    }

    /// Chunks there are to examine.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Makes every thread stop before its next chunk.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns true where it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Examines chunks until none is left, and returns how many this call examined.
    ///
    /// Any number of threads may do so at once.
    pub fn work(&self) -> Result<usize, SearchError> {
        let mut scratch = Block::default();
        let mut examined = 0;
        while self.step(&mut scratch)? {
            examined += 1;
        }
        Ok(examined)
    }

    /// Examines the next chunk; false when there is none or nobody wants to know.
    fn step(&self, scratch: &mut Block) -> Result<bool, SearchError> {
        if self.is_cancelled() {
            return Ok(false);
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = self.chunks.get(at) else { return Ok(false) };
        let part = chunk.scan(&self.needle, &self.runs, self.limit, scratch)?;
        if part.scanned > 0 {
            self.parts().push((at, part));
        }
        Ok(true)
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Vec<(usize, Part)>> {
        // Every change is one push: a panic leaves the list usable.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result, once every thread has returned.
    pub fn found(&self) -> Found {
        let mut parts = std::mem::take(&mut *self.parts());
        parts.sort_unstable_by_key(|(at, _)| *at);
        let mut found = Found::default();
        for (_, part) in parts {
            found.scanned += part.scanned;
            found.total_hits += part.total;
            let room = self.limit - found.hits.len();
            found.hits.extend(part.hits.into_iter().take(room));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_scan_examines_nothing_more() {
        let run = RunId::from_bytes([1; 16]);
        let chunk = |seq| {
            let mut chunk = Chunk::new();
            chunk.push(run, None, Seq(seq), "a red car");
            Arc::new(chunk)
        };
        let needle = Needle::new("RED").expect("not empty");
        let scan = Scan::new((1..=9).map(chunk).collect(), HashSet::from([run]), needle, 5);
        let mut scratch = Block::default();
        assert!(scan.step(&mut scratch).expect("in memory"));
        assert!(scan.step(&mut scratch).expect("in memory"));
        scan.cancel();
        assert_eq!((scan.work().expect("in memory"), scan.chunks()), (0, 9));
        assert_eq!(scan.found().hits, [Hit { seq: Seq(1) }, Hit { seq: Seq(2) }]);
    }
}
