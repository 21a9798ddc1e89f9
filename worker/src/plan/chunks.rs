//! Boundaries of chunks, and selection of their views, from a frame's own place, the frame before it and the
//! decisions so far. Pure; runs in the worker and in the server.
//!
//! So a segment predicts nearly all of it. A frame that the segment rejects is rejected by the whole file
//! too, which has seen at least the segment's frames of the same chunk.

use gate::SelectionReason;
use media::Signal;

use crate::{ChunkBoundary, ChunkImageOptions, FrameChunk};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkPosition {
    pub starts: bool,
    /// True if the frame is known to be the last of its chunk.
    pub ends: bool,
    /// True for a frame at one of the even distances.
    pub is_even: bool,
}

/// Computes the position of frame after frame.
pub(crate) struct ChunkGrid {
    chunking: ChunkBoundary,
    per_chunk: u32,
    /// Part of its span, of `per_chunk` parts each, that the previous frame lies in.
    part: Option<i128>,
}

impl ChunkGrid {
    pub fn new(options: &ChunkImageOptions) -> ChunkGrid {
        let per_chunk = u32::from(options.per_chunk);
        ChunkGrid { chunking: options.chunks, per_chunk, part: None }
    }

    /// Forgets the previous frame: the next one's neighbour is unknown.
    pub fn restart(&mut self) {
        self.part = None;
    }

    pub fn place(&mut self, signal: &Signal) -> ChunkPosition {
        let shown = u64::from(self.per_chunk);
        match self.chunking {
            ChunkBoundary::Frames(len) => {
                let len = u64::from(len);
                let at = signal.frame_index % len;
                let is_even = (0..shown).any(|k| k * len / shown == at);
                ChunkPosition { starts: at == 0, ends: at == len - 1, is_even }
            }
            ChunkBoundary::Span { ms } => {
                let part = (i128::from(signal.pts_ms) * i128::from(shown)).div_euclid(ms.into());
                let before = self.part.replace(part);
                let span = |part: i128| part.div_euclid(shown.into());
                let starts = before.is_none_or(|before| span(before) != span(part));
                ChunkPosition { starts, ends: false, is_even: before != Some(part) }
            }
        }
    }
}

/// Views of the current chunk so far: the strongest selected frames, and frames at even distances in the
/// remaining places.
pub(crate) struct ImageSelection<T> {
    places: usize,
    selected: Vec<(SelectionReason, T)>,
    even: Vec<T>,
}

impl<T> ImageSelection<T> {
    pub fn new(options: &ChunkImageOptions) -> ImageSelection<T> {
        ImageSelection { places: options.per_chunk.into(), selected: Vec::new(), even: Vec::new() }
    }

    pub fn clear(&mut self) {
        self.selected.clear();
        self.even.clear();
    }

    /// Returns true if a frame at this position, selected for this reason or not, becomes a view for now.
    pub fn wants(&self, place: ChunkPosition, selected: Option<SelectionReason>) -> bool {
        match telling(selected) {
            Some(reason) => self.ahead_of(reason) < self.places,
            // Frames at even distances are taken in order; a selected frame may replace one later.
            None => place.is_even && self.selected.len() + self.even.len() < self.places,
        }
    }

    /// Adds a frame for which [`ImageSelection::wants`] is true.
    pub fn take(&mut self, selected: Option<SelectionReason>, frame: T) {
        match telling(selected) {
            Some(reason) => {
                self.selected.insert(self.ahead_of(reason), (reason, frame));
                self.selected.truncate(self.places);
                self.even.truncate(self.places - self.selected.len());
            }
            None => self.even.push(frame),
        }
    }

    fn drain(&mut self) -> impl Iterator<Item = T> {
        let selected = self.selected.drain(..).map(|(_, frame)| frame);
        selected.chain(self.even.drain(..)).take(self.places)
    }

    /// Returns the number of selected frames that precede a later one with this reason.
    fn ahead_of(&self, reason: SelectionReason) -> usize {
        // Reasons are declared from the strongest to the weakest.
        self.selected.partition_point(|(other, _)| *other as u8 <= reason as u8)
    }
}

/// Returns the reason unless it is a keepalive, which says only that time has passed: the first ones of a
/// chunk would take all places, where frames at even distances show more.
fn telling(selected: Option<SelectionReason>) -> Option<SelectionReason> {
    selected.filter(|reason| *reason != SelectionReason::PeriodicKeepalive)
}

/// Builds chunks frame by frame, in the order of the source. Call for each frame [`ChunkBuilder::begin`],
/// then [`ChunkBuilder::wants`], then [`ChunkBuilder::end`].
pub struct ChunkBuilder<V> {
    options: ChunkImageOptions,
    grid: ChunkGrid,
    shown: ImageSelection<(u64, V)>,
    /// Position of the current frame.
    place: ChunkPosition,
    /// The current chunk, without its views.
    open: Option<FrameChunk<V>>,
    next_index: u64,
}

impl<V> ChunkBuilder<V> {
    /// Creates a builder; clamps the options to their bounds and numbers chunks from 0.
    pub fn new(options: ChunkImageOptions) -> ChunkBuilder<V> {
        let options = options.within_bounds();
        let (grid, shown) = (ChunkGrid::new(&options), ImageSelection::new(&options));
        let place = ChunkPosition::default();
        ChunkBuilder { options, grid, shown, place, open: None, next_index: 0 }
    }

    /// Returns the options of the chunks.
    pub fn options(&self) -> ChunkImageOptions {
        self.options
    }

    /// Ends the current chunk and returns it: the next frame's neighbour is unknown.
    pub fn restart(&mut self) -> Option<FrameChunk<V>> {
        self.grid.restart();
        self.finish()
    }

    /// Begins the next frame; returns the chunk that ended before it.
    pub fn begin(&mut self, signal: &Signal) -> Option<FrameChunk<V>> {
        self.place = self.grid.place(signal);
        let complete = if self.place.starts { self.finish() } else { None };
        // The first frame of a resumed source may lie anywhere in its chunk.
        self.place.is_even |= self.open.is_none();
        let chunk = self.open.get_or_insert_with(|| FrameChunk::begin(self.next_index, signal));
        chunk.frames += 1;
        chunk.end_pts_ms = signal.pts_ms;
        complete
    }

    /// Returns true if the current frame, selected for this reason or not, becomes a view.
    pub fn wants(&self, selected: Option<SelectionReason>) -> bool {
        self.shown.wants(self.place, selected)
    }

    /// Adds the view of the current frame, which must be wanted.
    pub fn take(&mut self, frame_index: u64, selected: Option<SelectionReason>, view: V) {
        self.shown.take(selected, (frame_index, view));
    }

    /// Returns the chunk that the current frame completes.
    pub fn end(&mut self) -> Option<FrameChunk<V>> {
        if self.place.ends { self.finish() } else { None }
    }

    /// Ends the current chunk and returns it, as far as it has come.
    pub fn finish(&mut self) -> Option<FrameChunk<V>> {
        let chunk = self.open.take()?;
        self.next_index += 1;
        let mut views: Vec<(u64, V)> = self.shown.drain().collect();
        self.shown.clear();
        views.sort_by_key(|(frame_index, _)| *frame_index);
        Some(FrameChunk { views: views.into_iter().map(|(_, view)| view).collect(), ..chunk })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the frames shown of a chunk of `len`, in which these are selected.
    fn shown(len: u32, places: u8, selected: &[(u64, SelectionReason)]) -> Vec<u64> {
        let options = ChunkImageOptions::new(ChunkBoundary::Frames(len), places);
        let (mut grid, mut shown) = (ChunkGrid::new(&options), ImageSelection::new(&options));
        for frame_index in 0..u64::from(len) {
            let signal = Signal::plain(frame_index, frame_index as i64 * 40);
            let place = grid.place(&signal);
            let reason = selected.iter().find(|(at, _)| *at == frame_index).map(|(_, why)| *why);
            if shown.wants(place, reason) {
                shown.take(reason, frame_index);
            }
        }
        let mut frames: Vec<u64> = shown.drain().collect();
        frames.sort_unstable();
        frames
    }

    #[test]
    fn what_tells_most_is_shown_and_then_the_whole_span() {
        use SelectionReason::{InitialFrame, PeriodicKeepalive, SceneCut};
        let keepalives: Vec<_> = (0..4).map(|at| (at * 30, PeriodicKeepalive)).collect();
        let with = |more: &[(u64, SelectionReason)]| [&keepalives[..], more].concat();
        type Row = (&'static str, u32, u8, Vec<(u64, SelectionReason)>, &'static [u64]);
        let rows: [Row; 6] = [
            ("nothing selected", 120, 4, vec![], &[0, 30, 60, 90]),
            ("keepalives take no place", 240, 4, with(&[]), &[0, 60, 120, 180]),
            ("a cut does", 240, 4, with(&[(100, SceneCut)]), &[0, 60, 100, 120]),
            ("the first frame is one of the even", 240, 2, vec![(0, InitialFrame)], &[0, 120]),
            ("one place", 240, 1, with(&[(100, SceneCut)]), &[100]),
            ("one place and no cut", 240, 1, with(&[]), &[0]),
        ];
        for (name, len, places, selected, expected) in rows {
            assert_eq!(shown(len, places, &selected), expected, "{name}");
        }
    }
}
