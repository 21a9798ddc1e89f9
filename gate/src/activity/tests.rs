//! Drawn scenes, of which it is known what moves.

use media::Score;

use super::*;
use crate::{cells::LUMA_COLUMNS, thumb::LEVEL};

/// Level of the cell in a column and row at a time in milliseconds.
type Scene = fn(usize, usize, i64) -> i64;

fn texture(x: usize, y: usize) -> i64 {
    100 + (x * 7 + y * 13) as i64 % 17
}

/// Something dark of 6 by 8 cells, whose left side is there.
fn with_mover(x: usize, y: usize, left: i64) -> i64 {
    let is_inside = (left..left + 6).contains(&(x as i64)) && (10..18).contains(&y);
    if is_inside { 40 } else { texture(x, y) }
}

/// Eight cells of each row swing, three times a second.
fn with_leaves(x: usize, y: usize, ms: i64) -> i64 {
    let swing = [0, 30, 50, 30, 0, -30, -50, -30][(ms * 3 * 8 / 1000 % 8) as usize];
    texture(x, y) + if (40..48).contains(&x) { swing } else { 0 }
}

/// Scores of a scene at so many frames a second, with their times.
fn scores(scene: Scene, frames_per_second: i64, ms: std::ops::Range<i64>) -> Vec<(i64, Score)> {
    let (mut movement, zones) = (Movement::new(), ZoneMask::default());
    let times = (0..).map(|at| ms.start + at * 1000 / frames_per_second);
    let score = |at: i64| {
        let cell = |cell: usize| scene(cell % LUMA_COLUMNS, cell / LUMA_COLUMNS, at) as u16;
        let frame = std::array::from_fn(|at| cell(at) * LEVEL as u16);
        (at, movement.push(at, &frame, &zones).score)
    };
    times.take_while(|&at| at < ms.end).map(score).collect()
}

#[test]
fn only_what_moves_has_a_score() {
    /// A name, a scene, and the time of its first score.
    type Row = (&'static str, Scene, Option<i64>);
    let rows: [Row; 7] = [
        ("rest", |x, y, _| texture(x, y), None),
        ("the light of all", |x, y, ms| texture(x, y) * (1000 + ms / 10) / 1000, None),
        ("a lamp", |x, y, ms| texture(x, y) + if ms < 2000 { 0 } else { 60 }, None),
        ("a cut", |x, y, ms| if ms < 2000 { texture(x, y) } else { 200 - texture(y, x) }, None),
        ("leaves, once they are usual", |x, y, ms| with_leaves(x, y, ms.max(1200)), None),
        ("arrives", |x, y, ms| with_mover(x, y, (ms - 2000) / 50 - 6), Some(2100)),
        ("slowly", |x, y, ms| with_mover(x, y, (ms - 2000) / 400 - 6), Some(2500)),
    ];
    for (name, scene, first) in rows {
        for rate in [10, 25, 60] {
            let told = scores(scene, rate, 0..4000);
            let told = told.into_iter().find(|(at, score)| *at >= 1900 && *score > Score::ZERO);
            let is_near = match (told, first) {
                (Some((told, _)), Some(first)) => told.abs_diff(first) <= 100,
                (told, first) => told.is_none() && first.is_none(),
            };
            assert!(is_near, "{name} at {rate} frames a second: {told:?}");
        }
    }
}

#[test]
fn the_first_pictures_and_those_behind_a_step_back_in_time_are_compared_with_none() {
    let scene: Scene = |x, y, ms| with_mover(x, y, ms / 50 % 40);
    let (mut movement, zones) = (Movement::new(), ZoneMask::default());
    for start in [50_000, 20_000] {
        for step in 0..20 {
            let at = start + step * 40;
            let frame = std::array::from_fn(|cell| {
                scene(cell % LUMA_COLUMNS, cell / LUMA_COLUMNS, at) as u16 * LEVEL as u16
            });
            let score = movement.push(at, &frame, &zones).score;
            assert_eq!(score > Score::ZERO, step >= 10, "{step} frames behind {start}");
        }
    }
}
