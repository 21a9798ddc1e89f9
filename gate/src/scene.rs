//! scene experiments
use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumb::{BLOCK, BLOCK_COLUMNS, BLOCKS, CELLS, Thumb},
};

const REACH_X: usize = 2;
const REACH_Y: usize = 1;
const PADDED: usize = LUMA_COLUMNS + 2 * REACH_X;

/// Sum over the cells of the smallest absolute difference within the reach.
pub(crate) fn nearest_difference(old: &[u8; CELLS], new: &[u8; CELLS]) -> u32 {
    let mut padded = [[0u8; PADDED]; LUMA_ROWS];
    for (wide, row) in padded.iter_mut().zip(old.chunks_exact(LUMA_COLUMNS)) {
        wide[..REACH_X].fill(row[0]);
        wide[REACH_X..][..LUMA_COLUMNS].copy_from_slice(row);
        wide[REACH_X + LUMA_COLUMNS..].fill(row[LUMA_COLUMNS - 1]);
    }
    let mut total = 0;
    for (y, row) in new.chunks_exact(LUMA_COLUMNS).enumerate() {
        let mut best = [u8::MAX; LUMA_COLUMNS];
        for wide in &padded[y.saturating_sub(REACH_Y)..(y + REACH_Y + 1).min(LUMA_ROWS)] {
            for shift in 0..=2 * REACH_X {
                let shifted = &wide[shift..shift + LUMA_COLUMNS];
                for x in 0..LUMA_COLUMNS {
                    best[x] = best[x].min(row[x].abs_diff(shifted[x]));
                }
            }
        }
        total += best.iter().map(|&d| u32::from(d)).sum::<u32>();
    }
    total
}

/// z units per deviation
const Z: u32 = 32;
pub(crate) fn normalised(t: &Thumb) -> [u8; CELLS] {
    let factor = ((Z << 16) / (t.deviation + 4 * 64)) as i32;
    std::array::from_fn(|i| {
        let d = i32::from(t.luma[i]) - t.mean as i32;
        (128 + ((d * factor) >> 16)).clamp(0, 255) as u8
    })
}
/// permille of a deviation
pub(crate) fn z_distance(a: &Thumb, b: &Thumb) -> u32 {
    nearest_difference(&normalised(a), &normalised(b)) * 1000 / (Z * CELLS as u32)
}

/// 1/64 levels
pub(crate) fn step(a: &Thumb, b: &Thumb) -> u32 {
    nearest_difference(&a.levels, &b.levels) * 64 / CELLS as u32
}

/// Mean abs deviation of each block, and mismatch; returns permille of informative blocks mismatching.
pub(crate) fn block_mismatch(old: &Thumb, new: &Thumb) -> (u32, u32) {
    let (mut num, mut den) = (0u64, 0u64);
    for b in 0..BLOCKS {
        let (by, bx) = (b / BLOCK_COLUMNS * BLOCK, b % BLOCK_COLUMNS * BLOCK);
        let at = |t: &Thumb, y: usize, x: usize| i32::from(t.luma[y * LUMA_COLUMNS + x]);
        let contrast = |t: &Thumb| {
            let m = i32::from(t.blocks[b]);
            let mut s = 0;
            for y in by..by + BLOCK {
                for x in bx..bx + BLOCK {
                    s += (at(t, y, x) - m).abs();
                }
            }
            s
        };
        let c = contrast(old).max(contrast(new));
        let mut best = i32::MAX;
        for dy in -1..=1i32 {
            for dx in -2..=2i32 {
                let cy = |y: usize| (y as i32 + dy).clamp(0, LUMA_ROWS as i32 - 1) as usize;
                let cx = |x: usize| (x as i32 + dx).clamp(0, LUMA_COLUMNS as i32 - 1) as usize;
                let mut so = 0;
                for y in by..by + BLOCK {
                    for x in bx..bx + BLOCK {
                        so += at(old, cy(y), cx(x));
                    }
                }
                let mo = so / 64;
                let mn = i32::from(new.blocks[b]);
                let mut s = 0;
                for y in by..by + BLOCK {
                    for x in bx..bx + BLOCK {
                        s += ((at(new, y, x) - mn) - (at(old, cy(y), cx(x)) - mo)).abs();
                    }
                }
                best = best.min(s);
            }
        }
        // per cell contrast in 1/64 level
        let c = (c / 64) as u64;
        let m = (best / 64) as u64;
        let w = c.min(4 * 64);
        num += w * (m * 1000 / (c + 32)).min(1000);
        den += w;
    }
    ((num / den.max(1)) as u32, (den / BLOCKS as u64) as u32)
}

pub(crate) fn area(old: &Thumb, new: &Thumb) -> u32 {
    let t = (64 + old.deviation.max(new.deviation) / 32) as i32; // 1/64
    let mut padded = [[0i32; PADDED]; LUMA_ROWS];
    for (wide, row) in padded.iter_mut().zip(old.luma.chunks_exact(LUMA_COLUMNS)) {
        for x in 0..PADDED {
            wide[x] = i32::from(row[x.saturating_sub(2).min(63)]);
        }
    }
    let (mut changed, mut all) = (0, 0);
    for y in 0..LUMA_ROWS {
        for x in 0..LUMA_COLUMNS {
            let v = i32::from(new.luma[y * 64 + x]);
            if v <= 18 * 64 && old.luma[y * 64 + x] <= 18 * 64 {
                continue;
            }
            all += 1;
            let mut best = i32::MAX;
            for yy in y.saturating_sub(1)..(y + 2).min(40) {
                for s in 0..5 {
                    best = best.min((padded[yy][x + s] - v).abs());
                }
            }
            if best > t {
                changed += 1;
            }
        }
    }
    changed * 1000 / (all + 64)
}

/// zero-mean block differences, 1/64 level
pub(crate) fn block_changes(old: &Thumb, new: &Thumb) -> [u32; BLOCKS] {
    std::array::from_fn(|b| {
        let (by, bx) = (b / BLOCK_COLUMNS * BLOCK, b % BLOCK_COLUMNS * BLOCK);
        let m = i32::from(new.blocks[b]) - i32::from(old.blocks[b]);
        let mut s = 0;
        for y in by..by + BLOCK {
            for x in bx..bx + BLOCK {
                let i = y * 64 + x;
                s += (i32::from(new.luma[i]) - i32::from(old.luma[i]) - m).unsigned_abs();
            }
        }
        s / 64
    })
}
