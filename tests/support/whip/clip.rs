//! Clips whose pictures a test can tell apart, rendered by ffmpeg.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::python::run;

/// Pictures a second of every clip.
pub const RATE: u32 = 25;

/// A scene by its letter: a colour all over, and a white box elsewhere in each.
pub const SCENES: [(char, &str, [u8; 3], &str); 3] = [
    ('A', "0xc82828", [200, 40, 40], "0:0:iw*2/5:ih"),
    ('B', "0x28c828", [40, 200, 40], "0:0:iw:ih*2/5"),
    ('C', "0x2828c8", [40, 40, 200], "iw*3/5:ih*3/5:iw*2/5:ih*2/5"),
];

/// One second of each of `scenes` and `tail` more of the last, in H.264 with a keyframe a second.
pub fn scenes(dir: &Path, scenes: &str, tail: u32) -> PathBuf {
    let path = dir.join(format!("{scenes}-{tail}.mp4"));
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-nostdin", "-y"]);
    for (place, letter) in scenes.chars().enumerate() {
        let seconds = if place + 1 == scenes.len() { 1 + tail } else { 1 };
        let (_, colour, _, box_at) =
            SCENES.iter().find(|scene| scene.0 == letter).expect("a scene of the table");
        let drawn =
            format!("color={colour}:s=320x240:r={RATE}:d={seconds},drawbox={box_at}:white:fill");
        ffmpeg.args(["-f", "lavfi", "-i", &drawn]);
    }
    let joined = format!("concat=n={}:v=1", scenes.len());
    ffmpeg.args(["-filter_complex", &joined, "-pix_fmt", "yuv420p", "-c:v", "libx264"]);
    ffmpeg.args(["-preset", "ultrafast", "-tune", "zerolatency", "-profile:v", "baseline"]);
    ffmpeg.args(["-g", &RATE.to_string()]).arg(&path);
    run(&mut ffmpeg).unwrap_or_else(|error| panic!("{error}"));
    path
}
