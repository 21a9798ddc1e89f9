//! A thousand damaged files, the same ones for workers and for libav under AddressSanitizer.

use std::{fs, path::PathBuf};

use clips::{pick, rendered};
use fastrand::Rng;

pub const MUTANTS: u64 = 1000;

/// Returns one small file per container and codec.
pub fn made() -> Vec<PathBuf> {
    const KINDS: [(&str, &str); 14] = [
        ("h264.mp4", "-c:v libx264 -g 8"),
        ("fragmented.mp4", "-c:v libx264 -g 8 -movflags frag_keyframe+empty_moov"),
        ("hevc.mp4", "-c:v libx265 -x265-params log-level=none"),
        ("mpeg4.mov", "-c:v mpeg4"),
        ("mjpeg.mov", "-c:v mjpeg -pix_fmt yuvj422p"),
        ("h264.mkv", "-c:v libx264 -pix_fmt yuv420p10le"),
        ("vp8.webm", "-c:v libvpx -deadline realtime"),
        ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8"),
        ("av1.mkv", "-c:v libsvtav1 -preset 12"),
        ("h264.ts", "-c:v libx264 -g 8"),
        ("mpeg4.avi", "-c:v mpeg4"),
        ("h264.flv", "-c:v libx264 -g 8"),
        ("annexb.h264", "-c:v libx264 -g 8"),
        ("annexb.hevc", "-c:v libx265 -x265-params log-level=none"),
    ];
    let source = "-f lavfi -i testsrc2=s=176x144:r=25:d=0.8";
    KINDS.map(|(name, codec)| rendered(name, &format!("{source} {codec}"))).to_vec()
}

pub fn mutate(bytes: &mut Vec<u8>, dice: &mut Rng) {
    let len = bytes.len();
    match dice.usize(..6) {
        0 => bytes.truncate(dice.usize(..len.max(1))),
        1 => {
            // In most containers headers are at the start.
            for _ in 0..=dice.usize(..8) {
                let at = dice.usize(..len.clamp(1, 2048));
                bytes[at] = dice.usize(..256) as u8;
            }
        }
        2 => {
            for _ in 0..=dice.usize(..64) {
                let at = dice.usize(..len.max(1));
                bytes[at] ^= 1 << dice.usize(..8);
            }
        }
        3 => {
            let (from, to) = (dice.usize(..len.max(1)), dice.usize(..len.max(1)));
            let piece = dice.usize(..4096).min(len - from).min(len - to);
            bytes.copy_within(from..from + piece, to);
        }
        4 => {
            let (at, piece) = (dice.usize(..len.max(1)), dice.usize(..512));
            bytes.drain(at..(at + piece).min(len));
        }
        _ => {
            // Sets sizes or counts to impossible values.
            let at = dice.usize(..len.saturating_sub(4).max(1));
            bytes[at..(at + 4).min(len)].fill(0xff);
        }
    }
}

/// Damaged files of every container and codec, and of clips that cameras and people made.
pub struct Mutants {
    sources: Vec<(String, Vec<u8>)>,
    seed: u64,
}

impl Mutants {
    /// Those of a seed: tests have the first, another by hand finds others.
    pub fn new(seed: u64) -> Mutants {
        let mut sources = made();
        sources.extend(pick(
            &["carphone_pristine.mp4", "signing.mkv", "water.webm"],
            &["film_nasa.mp4", "nature_water.webm", "talk_asl-book.mkv"],
        ));
        let read = |path: PathBuf| (path.display().to_string(), fs::read(path).expect("readable"));
        Mutants { sources: sources.into_iter().map(read).collect(), seed }
    }

    /// Returns the mutant of that number, with the path of the file that it was.
    pub fn get(&self, number: u64) -> (&str, Vec<u8>) {
        let mut dice = Rng::with_seed(self.seed << 32 | number);
        let (name, whole) = &self.sources[number as usize % self.sources.len()];
        let mut bytes = whole.clone();
        for _ in 0..=dice.usize(..3) {
            mutate(&mut bytes, &mut dice);
        }
        (name, bytes)
    }
}
