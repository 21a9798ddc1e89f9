//! Scales a part of a picture: each sample of the result is the mean of the area that it covers, rounded to
//! the nearest.
//!
//! Areas are exact, in units in which all sample edges are integers; so any crop fits chroma planes of any
//! size, and the result is the same on every machine. Rows are summed first, which the compiler vectorises,
//! and columns once per row of the result.

use media::{Dimensions, Plane};

use super::{
    colour::{PlaneBuffer, eight_bits},
    crop::CropScale,
};

/// Scales pictures one after the other, with reused buffers.
#[derive(Default)]
pub(super) struct AreaScaler {
    planes: [PlaneBuffer; 3],
    row: Vec<u8>,
    sums: Vec<u32>,
    columns: Vec<Cover>,
}

/// One direction of a plane: the luma samples from `from` to `from + len` become `size` luma samples. A
/// sample of the plane spans `share` luma samples before and `out_share` after.
#[derive(Clone, Copy)]
struct Axis {
    from: u64,
    len: u64,
    size: u64,
    share: u64,
    out_share: u64,
}

/// Source samples of one result sample: `first` and `last` with partial weights, those between fully. With a
/// single source sample, `last` is `first` and `last_weight` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cover {
    first: usize,
    last: usize,
    first_weight: u32,
    last_weight: u32,
}

impl Axis {
    /// Returns the weight of a full sample of the plane: its length in units of `1 / size` luma samples.
    fn whole(&self) -> u64 {
        self.share * self.size
    }

    /// Returns the number of samples of the result.
    fn count(&self) -> u64 {
        self.size.div_ceil(self.out_share)
    }

    fn covers(self) -> impl Iterator<Item = Cover> {
        let whole = self.whole();
        let edge = move |sample: u64| {
            self.from * self.size + (sample * self.out_share).min(self.size) * self.len
        };
        (0..self.count()).map(move |sample| {
            let (start, end) = (edge(sample), edge(sample + 1));
            let (first, last) = (start / whole, (end - 1) / whole);
            let first_end = end.min((first + 1) * whole);
            Cover {
                first: first as usize,
                last: last as usize,
                first_weight: (first_end - start) as u32,
                last_weight: if last > first { (end - last * whole) as u32 } else { 0 },
            }
        })
    }
}

impl Cover {
    fn sum(&self, sums: &[u32], whole: u32) -> i64 {
        let between = sums.get(self.first + 1..self.last).unwrap_or_default();
        let between: i64 = between.iter().map(|&sum| i64::from(sum)).sum();
        between * i64::from(whole)
            + i64::from(sums[self.first]) * i64::from(self.first_weight)
            + i64::from(sums[self.last]) * i64::from(self.last_weight)
    }

    fn total(&self, whole: u32) -> u32 {
        let between = (self.last - self.first).saturating_sub(1) as u32;
        self.first_weight + between * whole + self.last_weight
    }
}

impl AreaScaler {
    /// Scales the part that `cut` selects; a chroma sample spans `share` columns and rows of luma before, and
    /// `out_share` after.
    pub fn scale(
        &mut self,
        cut: &CropScale,
        luma: Plane<'_>,
        chroma: Option<[Plane<'_>; 2]>,
        share: (usize, usize),
        out_share: (usize, usize),
    ) {
        let CropScale { region, extent, .. } = *cut;
        let axes = |share: (usize, usize), out_share: (usize, usize)| {
            let axis = |from: u32, len: u32, size: u32, share: usize, out_share: usize| Axis {
                from: from.into(),
                len: len.into(),
                size: size.into(),
                share: share as u64,
                out_share: out_share as u64,
            };
            (
                axis(region.x, region.width, extent.width, share.0, out_share.0),
                axis(region.y, region.height, extent.height, share.1, out_share.1),
            )
        };
        self.scale_plane(0, &luma, axes((1, 1), (1, 1)));
        for (at, plane) in chroma.iter().flatten().enumerate() {
            self.scale_plane(1 + at, plane, axes(share, out_share));
        }
    }

    /// Returns the planes that were scaled last.
    pub fn planes(&self, has_chroma: bool) -> (Plane<'_>, Option<[Plane<'_>; 2]>) {
        let [y, u, v] = &self.planes;
        (y.plane(), has_chroma.then(|| [u.plane(), v.plane()]))
    }

    fn scale_plane(&mut self, at: usize, plane: &Plane<'_>, (across, down): (Axis, Axis)) {
        let AreaScaler { planes, row, sums, columns } = self;
        let out = &mut planes[at];
        out.reset(Dimensions { width: across.count() as u32, height: down.count() as u32 }, 1);
        columns.clear();
        columns.extend(across.covers());
        let (Some(left), Some(right)) = (columns.first(), columns.last()) else { return };
        let span = left.first..right.last + 1;
        columns.iter_mut().for_each(|cover| {
            cover.first -= span.start;
            cover.last -= span.start;
        });
        let (whole_row, whole_column) = (down.whole() as u32, across.whole() as u32);
        for (y, rows) in down.covers().enumerate() {
            sums.clear();
            sums.resize(span.len(), 0);
            for between in rows.first + 1..rows.last {
                add(&eight_bits(plane, between, row)[span.clone()], 1, sums);
            }
            sums.iter_mut().for_each(|sum| *sum *= whole_row);
            add(&eight_bits(plane, rows.first, row)[span.clone()], rows.first_weight, sums);
            if rows.last_weight > 0 {
                add(&eight_bits(plane, rows.last, row)[span.clone()], rows.last_weight, sums);
            }
            let height = i64::from(rows.total(whole_row));
            for (out, cover) in out.row_mut(y).iter_mut().zip(&*columns) {
                let area = height * i64::from(cover.total(whole_column));
                *out = mean(cover.sum(sums, whole_column), area);
            }
        }
    }
}

/// Adds a weighted row. Sums fit 32 bits: weights add up to a few sides of a picture at most.
fn add(row: &[u8], weight: u32, sums: &mut [u32]) {
    for (sum, &sample) in sums.iter_mut().zip(row) {
        *sum += u32::from(sample) * weight;
    }
}

/// Returns `sum / area` rounded to the nearest integer. Exact: a quotient below an integer differs from it by
/// far more than the error of a double.
fn mean(sum: i64, area: i64) -> u8 {
    ((2 * sum + area) as f64 / (2 * area) as f64) as u8
}

#[cfg(test)]
mod tests {
    use media::{Rotation, SampleFormat};
    use proptest::prelude::*;

    use super::*;

    /// Computes the mean over an area by its definition, sample by sample.
    fn slowly(values: &[u8], stride: usize, across: Axis, down: Axis) -> Vec<u8> {
        let overlap = |axis: Axis, out: u64, sample: u64| -> u64 {
            let edge =
                |out: u64| axis.from * axis.size + (out * axis.out_share).min(axis.size) * axis.len;
            let (start, end) = (sample * axis.whole(), (sample + 1) * axis.whole());
            edge(out + 1).min(end).saturating_sub(edge(out).max(start))
        };
        let mut means = Vec::new();
        for y in 0..down.count() {
            for x in 0..across.count() {
                let (mut sum, mut area) = (0, 0);
                for (at, &value) in values.iter().enumerate() {
                    let (row, column) = ((at / stride) as u64, (at % stride) as u64);
                    let weight = overlap(across, x, column) * overlap(down, y, row);
                    sum += weight * u64::from(value);
                    area += weight;
                }
                means.push(((2 * sum + area) / (2 * area)) as u8);
            }
        }
        means
    }

    proptest! {
        #[test]
        fn rows_and_columns_give_the_mean_over_the_area(
            sides in (1u64..40, 1u64..24),
            shares in (prop::sample::select(vec![1u64, 2, 4]), 1u64..=2),
            cuts in (any::<[prop::sample::Index; 3]>(), any::<[prop::sample::Index; 3]>()),
            is_even in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let axis = |side: u64, share: u64, [from, len, size]: [prop::sample::Index; 3]| {
                let from = from.index(side as usize) as u64;
                let len = 1 + len.index((side - from) as usize) as u64;
                // Covers scaling up as well.
                let size = 1 + size.index(2 * len as usize) as u64;
                Axis { from, len, size, share, out_share: if is_even { 1 } else { share } }
            };
            let (across, down) = (axis(sides.0, shares.0, cuts.0), axis(sides.1, shares.1, cuts.1));
            let extent = Dimensions {
                width: sides.0.div_ceil(shares.0) as u32,
                height: sides.1.div_ceil(shares.1) as u32,
            };
            let mut state = seed | 1;
            let values: Vec<u8> = (0..extent.area()).map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as u8
            }).collect();
            let stride = extent.width as usize;
            let plane = Plane::new(&values, stride, extent, SampleFormat::U8, 1).expect("fits");
            let mut scaler = AreaScaler::default();
            scaler.scale_plane(0, &plane, (across, down));
            prop_assert_eq!(&scaler.planes[0].samples, &slowly(&values, stride, across, down));
        }
    }

    #[test]
    fn the_largest_picture_of_white_stays_white() {
        let extent = Dimensions { width: 8192, height: 8192 };
        let white = vec![255; extent.area() as usize];
        let plane = Plane::new(&white, 8192, extent, SampleFormat::U8, 1).expect("fits");
        let cut = CropScale::new(extent, Rotation::None, None, 64);
        let mut scaler = AreaScaler::default();
        scaler.scale(&cut, plane, None, (1, 1), (1, 1));
        assert_eq!(scaler.planes[0].samples, vec![255; 64 * 64]);
    }
}
