//! Pictures as means over time: less noise than a frame has, and the same at any frame rate.

use crate::thumbnail::{BLOCKS, CELLS, block_means};

/// Luma of some time: its cells and their blocks, as a [`crate::thumbnail::CellThumbnail`] has them.
#[derive(Clone, Debug)]
pub(super) struct Luma {
    pub(super) cells: [u16; CELLS],
    pub(super) blocks: [u16; BLOCKS],
}

impl Luma {
    /// Black.
    pub(super) const BLACK: Luma = Luma { cells: [0; CELLS], blocks: [0; BLOCKS] };

    /// Becomes the mean of at most four pictures: sums of more do not fit.
    #[inline(always)]
    pub(super) fn be_mean<'a>(&mut self, pictures: impl Iterator<Item = &'a Luma>) {
        let mut count = 0;
        for picture in pictures.take(4) {
            for (sum, &cell) in self.cells.iter_mut().zip(&picture.cells) {
                *sum = cell + if count == 0 { 0 } else { *sum };
            }
            count += 1;
        }
        let share = (1 << 16) / count.max(1) + 1;
        for cell in &mut self.cells {
            *cell = ((u32::from(*cell) * share) >> 16) as u16;
        }
        self.blocks = block_means(&self.cells);
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
    #[inline(always)]
    pub(super) fn take_mean(&mut self, mean: &mut Luma) {
        let frames = self.frames.max(1);
        for (mean, sum) in mean.cells.iter_mut().zip(self.cells.iter()) {
            *mean = (sum / frames) as u16;
        }
        mean.blocks = block_means(&mean.cells);
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_equal_pictures_is_one_of_them() {
        let mut picture = Luma::BLACK;
        for (cell, value) in picture.cells.iter_mut().enumerate() {
            *value = (cell * 16_320 / (CELLS - 1)) as u16;
        }
        for count in 1..=4 {
            let mut mean = Luma::BLACK;
            mean.be_mean(std::iter::repeat_n(&picture, count));
            assert_eq!(mean.cells, picture.cells, "{count}");
        }
    }
}
