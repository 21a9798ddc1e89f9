//! Pictures as means over time: less noise than a frame has, and the same at any frame rate.

use crate::thumb::{BLOCKS, CELLS, block_means};

/// Luma of some time: its cells and their blocks, as a [`crate::thumb::Thumb`] has them.
#[derive(Debug)]
pub(super) struct Luma {
    pub(super) cells: [u16; CELLS],
    pub(super) blocks: [u16; BLOCKS],
}

impl Luma {
    fn of(cells: [u16; CELLS]) -> Luma {
        Luma { cells, blocks: block_means(&cells) }
    }

    /// Mean of at most four pictures: sums of more do not fit.
    pub(super) fn mean<'a>(pictures: impl Iterator<Item = &'a Luma>) -> Luma {
        let (mut cells, mut count) = ([0u16; CELLS], 0);
        for picture in pictures.take(4) {
            count += 1;
            cells.iter_mut().zip(&picture.cells).for_each(|(sum, &cell)| *sum += cell);
        }
        let share = (1 << 16) / count.max(1) + 1;
        cells.iter_mut().for_each(|cell| *cell = ((u32::from(*cell) * share) >> 16) as u16);
        Luma::of(cells)
    }
}

/// Most frames of a mean: sums of more might not fit.
const FRAMES_MAX: u32 = 1 << 16;

/// Sums of the cells of frames.
#[derive(Debug)]
pub(super) struct Sums {
    cells: Box<[u32; CELLS]>,
    frames: u32,
}

impl Sums {
    /// Those of no frame.
    pub(super) fn new() -> Sums {
        Sums { cells: Box::new([0; CELLS]), frames: 0 }
    }

    /// Adds a frame; those beyond what a mean may have do not count.
    pub(super) fn add(&mut self, frame: &[u16; CELLS]) {
        if self.frames < FRAMES_MAX {
            self.frames += 1;
            self.cells.iter_mut().zip(frame).for_each(|(sum, &cell)| *sum += u32::from(cell));
        }
    }

    /// Forgets every frame.
    pub(super) fn clear(&mut self) {
        (*self.cells, self.frames) = ([0; CELLS], 0);
    }

    /// Mean of the frames, of which there are none behind it.
    pub(super) fn take_mean(&mut self) -> Luma {
        let frames = self.frames.max(1);
        let cells = self.cells.map(|sum| (sum / frames) as u16);
        self.clear();
        Luma::of(cells)
    }
}
