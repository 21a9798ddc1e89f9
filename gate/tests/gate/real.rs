//! Frames of clips by FFmpeg, in each storage that decoders output.

use std::process::Command;

use clips::pick_with;
use media::{Dimensions, Frame, PixelLayout, SampleFormat};

use crate::raw::{PLANAR, read_frame};

/// FFmpeg's name of a pixel format, columns, rows, and the layout.
type Shape = (&'static str, u32, u32, PixelLayout);

/// Clips in decoders' formats: built-in clip, clip of the media folder, and their shape.
const REAL: [(&str, &str, Shape); 5] = [
    ("bigbuckbunny.mp4", "surv_traffic-camera.mp4", ("yuv420p", 853, 479, PLANAR)),
    ("bikes.mp4", "film_nasa.mp4", ("nv12", 1280, 720, NV12)),
    ("edit-list.mp4", "phone_adx-hdr10.mp4", ("p010le", 1920, 1080, P010)),
    ("carphone_pristine.mp4", "nature_flower.mp4", ("yuv420p10le", 641, 363, TEN_BITS)),
    ("screen.mp4", "screen_gh-scoped-creds.mp4", ("yuv420p", 50, 31, PLANAR)),
];
const NV12: PixelLayout = PixelLayout { interleaved_chroma: true, ..PLANAR };
const TEN_BITS: PixelLayout = PixelLayout { sample: SampleFormat::U16 { shift: 2 }, ..PLANAR };
const P010: PixelLayout =
    PixelLayout { sample: SampleFormat::U16 { shift: 8 }, interleaved_chroma: true, ..PLANAR };

/// Returns a few frames of each clip.
pub fn real_frames() -> Vec<Frame> {
    let built_in = REAL.map(|(clip, _, shape)| (clip, shape));
    let media = REAL.map(|(_, clip, shape)| (clip, shape));
    let mut frames = Vec::new();
    for (path, (storage, width, height, layout)) in pick_with(&built_in, &media) {
        let clip = path.display();
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-nostdin", "-i"]).arg(&path);
        ffmpeg.args(["-vf", &format!("select=not(mod(n\\,5)),scale={width}:{height}")]);
        ffmpeg.args(["-fps_mode", "passthrough", "-frames:v", "3"]);
        ffmpeg.args(["-f", "rawvideo", "-pix_fmt", storage, "-"]);
        let output = ffmpeg.output().expect("ffmpeg starts");
        assert!(output.status.success(), "{clip}: {}", String::from_utf8_lossy(&output.stderr));
        let extent = Dimensions::new(width, height).expect("a size");
        let mut source = &output.stdout[..];
        let before = frames.len();
        frames.extend((0..).map_while(|n| read_frame(&mut source, extent, layout, n)));
        assert_eq!(frames.len() - before, 3, "{clip}");
    }
    frames
}
