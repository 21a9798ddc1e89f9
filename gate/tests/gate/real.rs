//! Frames of real clips through FFmpeg, in each storage that decoders give.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use media::{Extent, Frame, PixelLayout, Sample};

use crate::{
    raw::{PLANAR, read_frame},
    skip::skip,
};

/// The media folder, if it and `ffmpeg` are there; says loudly what `test` lacks.
#[expect(clippy::disallowed_methods, reason = "the environment says where the test media is")]
pub fn media_folder(test: &str) -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/media");
    let folder =
        std::env::var_os("SIGHTLINE_MEDIA_DIR").map_or_else(|| default.into(), PathBuf::from);
    let ffmpeg = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status();
    let missing = match ffmpeg {
        Err(error) => format!("ffmpeg does not run: {error}"),
        Ok(_) if !folder.join("clips").is_dir() => format!("no clips in {}", folder.display()),
        Ok(_) => return Some(folder),
    };
    skip(test, missing);
    None
}

/// Clips as decoders give them: name, FFmpeg's name of the storage, columns, rows, storage.
const REAL: [(&str, &str, u32, u32, PixelLayout); 5] = [
    ("surv_traffic-camera.mp4", "yuv420p", 853, 479, PLANAR),
    ("film_nasa.mp4", "nv12", 1280, 720, PixelLayout { interleaved_chroma: true, ..PLANAR }),
    ("phone_adx-hdr10.mp4", "p010le", 1920, 1080, P010),
    ("nature_flower.mp4", "yuv420p10le", 641, 363, TEN_BITS),
    ("screen_gh-scoped-creds.mp4", "yuv420p", 50, 31, PLANAR),
];
const TEN_BITS: PixelLayout = PixelLayout { sample: Sample::U16 { shift: 2 }, ..PLANAR };
const P010: PixelLayout =
    PixelLayout { sample: Sample::U16 { shift: 8 }, interleaved_chroma: true, ..PLANAR };

/// Frames of real clips, a few of each; none where the clips are missing, which is said loudly.
pub fn real_frames(test: &str) -> Vec<Frame> {
    let Some(folder) = media_folder(test) else { return Vec::new() };
    let mut frames = Vec::new();
    for (clip, storage, width, height, layout) in REAL {
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-nostdin", "-i"]).arg(folder.join("clips").join(clip));
        ffmpeg.args(["-vf", &format!("select=not(mod(n\\,5)),scale={width}:{height}")]);
        ffmpeg.args(["-fps_mode", "passthrough", "-frames:v", "3"]);
        ffmpeg.args(["-f", "rawvideo", "-pix_fmt", storage, "-"]);
        let output = ffmpeg.output().expect("ffmpeg starts");
        assert!(output.status.success(), "{clip}: {}", String::from_utf8_lossy(&output.stderr));
        let extent = Extent::new(width, height).expect("a size");
        let mut source = &output.stdout[..];
        let before = frames.len();
        frames.extend((0..).map_while(|n| read_frame(&mut source, extent, layout, n)));
        assert_eq!(frames.len() - before, 3, "{clip}");
    }
    frames
}
