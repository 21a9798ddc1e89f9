//! Search in progress: any number of threads take its chunks one by one, until it is cancelled.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use media::{RunId, Seq};

use crate::{
    SearchError,
    case_fold::FoldedPattern,
    chunk::{IndexChunk, TextBlock},
};

/// Result of a search, or of its scan of one chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanResult {
    /// Number of descriptions of the requested runs.
    pub scanned: u64,
    /// Number of those descriptions that match.
    pub total_hits: u64,
    /// Events of the first of those, in order.
    pub hits: Vec<Seq>,
}

/// Search in progress over the chunks as they were when it began.
pub struct Scan {
    chunks: Vec<Arc<IndexChunk>>,
    runs: HashSet<RunId>,
    pattern: FoldedPattern,
    limit: usize,
    next: AtomicUsize,
    cancelled: AtomicBool,
    results: Mutex<Vec<(usize, ScanResult)>>,
}

impl Scan {
    pub(crate) fn new(
        chunks: Vec<Arc<IndexChunk>>,
        runs: HashSet<RunId>,
        pattern: FoldedPattern,
        limit: usize,
    ) -> Scan {
        Scan {
            chunks,
            runs,
            pattern,
            limit,
            next: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            results: Mutex::default(),
        }
    }

    /// Number of chunks to examine.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Makes all threads stop before their next chunk.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns true if the search was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Examines chunks until none is left; returns the number examined by this call.
    ///
    /// May run on any number of threads at once.
    pub fn work(&self) -> Result<usize, SearchError> {
        let mut scratch = TextBlock::default();
        let mut examined = 0;
        while self.step(&mut scratch)? {
            examined += 1;
        }
        Ok(examined)
    }

    /// Examines the next chunk; returns false if there is none or the search was cancelled.
    fn step(&self, scratch: &mut TextBlock) -> Result<bool, SearchError> {
        if self.is_cancelled() {
            return Ok(false);
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = self.chunks.get(at) else { return Ok(false) };
        let result = chunk.scan(&self.pattern, &self.runs, self.limit, scratch)?;
        if result.scanned > 0 {
            self.results().push((at, result));
        }
        Ok(true)
    }

    fn results(&self) -> std::sync::MutexGuard<'_, Vec<(usize, ScanResult)>> {
        // Every change is one push: the list stays usable after a panic.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result; call it after every thread has returned.
    pub fn result(&self) -> ScanResult {
        let mut results = std::mem::take(&mut *self.results());
        results.sort_unstable_by_key(|(at, _)| *at);
        let mut found = ScanResult::default();
        for (_, result) in results {
            found.scanned += result.scanned;
            found.total_hits += result.total_hits;
            let room = self.limit - found.hits.len();
            found.hits.extend(result.hits.into_iter().take(room));
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
            let mut chunk = IndexChunk::new();
            chunk.push(run, None, Seq(seq), |out| out.extend_from_slice(b"a red car"));
            Arc::new(chunk)
        };
        let pattern = FoldedPattern::new("RED").expect("not empty");
        let scan = Scan::new((1..=9).map(chunk).collect(), HashSet::from([run]), pattern, 5);
        let mut scratch = TextBlock::default();
        assert!(scan.step(&mut scratch).expect("in memory"));
        assert!(scan.step(&mut scratch).expect("in memory"));
        scan.cancel();
        assert_eq!((scan.work().expect("in memory"), scan.chunks()), (0, 9));
        assert_eq!(scan.result().hits, [Seq(1), Seq(2)]);
    }
}
