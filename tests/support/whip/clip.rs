//! Clips whose pictures a test can tell apart, rendered by ffmpeg.

use std::path::PathBuf;

use clips::rendered;

pub const RATE: u32 = 25;

/// A scene by its letter: a colour all over, and a white box elsewhere in each.
pub const SCENES: [(char, &str, [u8; 3], &str); 3] = [
    ('A', "0xc82828", [200, 40, 40], "0:0:iw*2/5:ih"),
    ('B', "0x28c828", [40, 200, 40], "0:0:iw:ih*2/5"),
    ('C', "0x2828c8", [40, 40, 200], "iw*3/5:ih*3/5:iw*2/5:ih*2/5"),
];

/// One second of each of `scenes` and `tail` more of the last, in H.264 with a keyframe a second.
pub fn scenes(scenes: &str, tail: u32) -> PathBuf {
    let drawn = scenes.char_indices().map(|(place, letter)| {
        let seconds = if place + 1 == scenes.len() { 1 + tail } else { 1 };
        let (_, colour, _, box_at) =
            SCENES.iter().find(|scene| scene.0 == letter).expect("a scene of the table");
        format!(
            "-f lavfi -i color={colour}:s=320x240:r={RATE}:d={seconds},drawbox={box_at}:white:fill "
        )
    });
    let (inputs, count): (String, usize) = (drawn.collect(), scenes.len());
    let line = format!(
        "{inputs}-filter_complex concat=n={count}:v=1 -pix_fmt yuv420p -c:v libx264 -preset ultrafast \
         -tune zerolatency -profile:v baseline -g {RATE}"
    );
    rendered(&format!("{scenes}-{tail}.mp4"), &line)
}
