//! Frames of clips by FFmpeg, in each storage that decoders output.

use clips::pick_with;
use gate::conformance::frame_of;
use media::{Dimensions, Frame, PixelLayout, SampleFormat};

use crate::raw::{PLANAR, rendered};

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
        let filter = format!("select=not(mod(n\\,5)),scale={width}:{height}");
        let input = ["-i".as_ref(), path.as_os_str(), "-vf".as_ref(), filter.as_ref()];
        let arguments = input.into_iter().chain(["-frames:v".as_ref(), "3".as_ref()]);
        let extent = Dimensions { width, height };
        let pictures: Vec<Vec<u8>> = rendered(arguments, (storage, layout), extent).collect();
        assert_eq!(pictures.len(), 3, "{}", path.display());
        frames.extend((0..).zip(pictures).map(|(n, bytes)| frame_of(bytes, extent, layout, n)));
    }
    frames
}
