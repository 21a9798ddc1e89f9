//! Pictures as means over time: less noise than a single frame, and independent of the frame rate.

use crate::thumbnail::{BLOCKS, CELLS, block_means};

/// Mean luma over some time: cells and blocks as in [`crate::thumbnail::CellThumbnail`].
#[derive(Clone, Debug)]
pub(super) struct Luma {
    pub(super) cells: [u16; CELLS],
    pub(super) blocks: [u16; BLOCKS],
}

impl Luma {
    pub(super) const BLACK: Luma = Luma { cells: [0; CELLS], blocks: [0; BLOCKS] };

    /// Sets this to the mean of up to four pictures; the sums of more do not fit into 16 bits.
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

/// Most frames of a mean: the sums of more may not fit into 32 bits.
const FRAMES_MAX: u32 = 1 << 16;

/// Sums of the cells over frames.
#[derive(Debug)]
pub(super) struct Sums {
    cells: Box<[u32; CELLS]>,
    frames: u32,
}

impl Sums {
    /// Returns sums of no frames.
    pub(super) fn new() -> Sums {
        Sums { cells: Box::new([0; CELLS]), frames: 0 }
    }

    /// Adds a frame; frames beyond [`FRAMES_MAX`] are ignored.
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

    /// Writes the mean of the frames to `mean` and forgets them.
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
