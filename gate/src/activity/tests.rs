//! Synthetic scenes with known movement.

use media::Score;

use super::*;
use crate::{cells::LUMA_COLUMNS, thumbnail::LEVEL};

/// Level of the cell at a column, row and time in milliseconds.
type Scene = fn(usize, usize, i64) -> i64;

fn texture(x: usize, y: usize) -> i64 {
    100 + (x * 7 + y * 13) as i64 % 17
}

/// Returns the texture with a dark object of 6 by 8 cells whose left side is at `left`.
fn with_mover(x: usize, y: usize, left: i64) -> i64 {
    let is_inside = (left..left + 6).contains(&(x as i64)) && (10..18).contains(&y);
    if is_inside { 40 } else { texture(x, y) }
}

/// Returns a dark and a light object before a wall. From the third second on a light brightens all of it by
/// `levels` per second, within the limited range of video.
fn with_light(x: usize, y: usize, ms: i64, levels: i64) -> i64 {
    let thing = match (x / 6, y / 6) {
        (3, 3) => 20,
        (7, 3) => 225,
        _ => texture(x, y),
    };
    (thing + levels * (ms - 2000).max(0) / 1000).clamp(16, 235)
}

/// As [`with_light`], with a dark half and fog from the third second on: lighter, with less contrast.
fn with_fog(x: usize, y: usize, ms: i64) -> i64 {
    let level = (with_light(x, y, 0, 0) - if y < 20 { 0 } else { 60 }).max(20);
    let fog = (ms - 2000).clamp(0, 800);
    level + (150 - level) * fog / 2500
}

/// Returns the texture with eight cells of each row that swing three times a second.
fn with_leaves(x: usize, y: usize, ms: i64) -> i64 {
    let swing = [0, 30, 50, 30, 0, -30, -50, -30][(ms * 3 * 8 / 1000 % 8) as usize];
    texture(x, y) + if (40..48).contains(&x) { swing } else { 0 }
}

fn cell_of(scene: Scene, cell: usize, at: i64) -> u16 {
    scene(cell % LUMA_COLUMNS, cell / LUMA_COLUMNS, at) as u16 * LEVEL as u16
}

/// Returns the score of the scene's frame at a time.
fn score(movement: &mut Movement, scene: Scene, at: i64) -> Score {
    let frame = std::array::from_fn(|cell| cell_of(scene, cell, at));
    movement.push(at, &frame, &ZoneMask::default()).score
}

#[test]
fn only_what_moves_has_a_score() {
    /// Name, scene, and time of its first score.
    type Row = (&'static str, Scene, Option<i64>);
    let rows: [Row; 12] = [
        ("rest", |x, y, _| texture(x, y), None),
        ("the light of all", |x, y, ms| texture(x, y) * (1000 + ms / 10) / 1000, None),
        ("light that is added", |x, y, ms| with_light(x, y, ms, 30), None),
        ("light that is taken away", |x, y, ms| with_light(x, y, ms, -30), None),
        (
            "arrives in it",
            |x, y, ms| match with_mover(x, y, (ms - 2000) / 50 - 6) {
                40 => with_light(20, 20, ms, 30),
                _ => with_light(x, y, ms, 30),
            },
            Some(2100),
        ),
        ("fog", with_fog, None),
        (
            "arrives in fog",
            |x, y, ms| match with_mover(x, y, (ms - 2000) / 50 - 6) {
                40 => with_fog(20, 20, ms),
                _ => with_fog(x, y, ms),
            },
            Some(2100),
        ),
        ("a lamp", |x, y, ms| texture(x, y) + if ms < 2000 { 0 } else { 60 }, None),
        ("a cut", |x, y, ms| if ms < 2000 { texture(x, y) } else { 200 - texture(y, x) }, None),
        ("leaves, once they are usual", |x, y, ms| with_leaves(x, y, ms.max(1200)), None),
        ("arrives", |x, y, ms| with_mover(x, y, (ms - 2000) / 50 - 6), Some(2100)),
        ("slowly", |x, y, ms| with_mover(x, y, (ms - 2000) / 400 - 6), Some(2500)),
    ];
    for (name, scene, first) in rows {
        for rate in [10, 25, 60] {
            let mut movement = Movement::new();
            let told = (0..4 * rate)
                .map(|frame| frame * 1000 / rate)
                .find(|&at| score(&mut movement, scene, at) > Score::ZERO && at >= 1900);
            let is_near = match (told, first) {
                (Some(told), Some(first)) => told.abs_diff(first) <= 100,
                (told, first) => told.is_none() && first.is_none(),
            };
            assert!(is_near, "{name} at {rate} frames a second: {told:?}");
        }
    }
}

#[test]
fn nothing_moves_until_it_is_known_what_is_usual() {
    let scene: Scene = |x, y, ms| with_mover(x, y, ms / 50 % 40);
    let mut movement = Movement::new();
    for start in [50_000, 20_000] {
        for step in 0..30 {
            let score = score(&mut movement, scene, start + step * 40);
            assert_eq!(score > Score::ZERO, step >= 20, "{step} frames behind {start}");
        }
    }
}

#[test]
fn vectors_of_any_width_tell_the_same() {
    let scene: Scene =
        |x, y, ms| match with_mover(x, y, ms / 70) + (x as i64 * 31 + y as i64 * 17 + ms) % 23 {
            level if ms < 4000 => level,
            level => with_fog(x, y, ms - 2000) / 2 + level / 2,
        };
    let (mut wide, mut plain, zones) = (Movement::new(), Movement::new(), ZoneMask::default());
    let mut most = Score::ZERO;
    for at in (0..6000).step_by(100) {
        let told = score(&mut wide, scene, at);
        let frame = std::array::from_fn(|cell| cell_of(scene, cell, at));
        plain.sums.add(&frame);
        assert_eq!(plain.next_picture(tenth(at), &zones).score, told, "at {at} ms");
        most = most.max(told);
    }
    assert!(most > Score::ZERO, "nothing moved");
}
