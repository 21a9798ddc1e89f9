//! Pictures as means over time: less noise than a frame has, and the same at any frame rate.

use crate::thumb::{BLOCKS, CELLS, block_means};

/// Luma of some time: its cells and their blocks, as a [`crate::thumb::Thumb`] has them.
#[derive(Debug)]
pub(super) struct Luma {
    pub(super) cells: [u16; CELLS],
    pub(super) blocks: [u16; BLOCKS],
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
        Luma { cells, blocks: block_means(&cells) }
    }
}
