//! A decoder of NVIDIA's that is not there: the shim of `cuda_shim`, and what it has to know of clips.
//!
//! Its table has what libav's own decoders make of them, so a test compares two ways to the same pictures.

use std::{
    fs,
    io::Cursor,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use decode::{
    DecoderChain, DemuxLimits, Demuxer, FileOptions, FileReport, FrameSink, Sampling, SegmentInfo,
    SinkStop, decode_file,
};
use media::{DeviceMemoryLost, Frame, Plane, SampleFormat, Timestamp};
use tempfile::TempDir;

use crate::{
    cuda_shim::{NAMES, shim},
    skip::skip,
};

/// Of the probe, in the order in which they are tried; MPEG-4 and Motion JPEG are not asked of devices.
pub const PROBED: [&str; 8] = [
    "h264.mp4",
    "h265.mp4",
    "h265-10.mp4",
    "vp8.webm",
    "vp9.webm",
    "vp9-10.webm",
    "av1.mp4",
    "av1-10.mp4",
];
/// Twelve closed GOPs, the same of ten bits, and one GOP.
pub const LONG: [&str; 3] = ["gops.mp4", "gops-10.mp4", "long.mp4"];

/// Bytes of a clip that the crate brings.
pub fn brought(name: &str) -> Vec<u8> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../decode/src/probe/clips"));
    fs::read(folder.join(name)).expect("in the repository")
}

/// All frames, as they come.
#[derive(Default)]
pub struct Keeper(Vec<(u64, Frame)>);

impl FrameSink for Keeper {
    type Output = Vec<(u64, Frame)>;

    fn begin(&mut self, _segment: SegmentInfo) {
        self.0.clear();
    }

    fn frame(&mut self, index: u64, frame: Frame) -> ControlFlow<SinkStop> {
        self.0.push((index, frame));
        ControlFlow::Continue(())
    }

    fn end(&mut self) -> Result<Vec<(u64, Frame)>, DeviceMemoryLost> {
        for (_, frame) in &self.0 {
            frame.pixels.host()?;
        }
        Ok(std::mem::take(&mut self.0))
    }
}

/// Frames that `decoders` make of a clip.
pub fn frames(
    decoders: &DecoderChain,
    bytes: &[u8],
    options: &FileOptions,
) -> (FileReport, Vec<(u64, Frame)>) {
    let input = Cursor::new(bytes.to_vec());
    let demuxer = Demuxer::open(Box::new(input), DemuxLimits::default()).expect("recognised");
    let mut frames = Vec::new();
    let report = decode_file(decoders, demuxer, options, Keeper::default, |some| {
        frames.extend(some);
        ControlFlow::Continue(())
    });
    (report.expect("decodes"), frames)
}

/// The samples of a plane, sixteen bits each, however they are stored.
fn samples(plane: Plane<'_>) -> Vec<u16> {
    let (columns, step) = (plane.extent().width as usize, plane.step());
    let mut samples = Vec::new();
    for row in (0..plane.extent().height).map(|y| plane.row(y)) {
        match plane.sample() {
            SampleFormat::U8 => {
                let row = row.iter().step_by(step).take(columns);
                samples.extend(row.map(|&sample| u16::from(sample) << 8));
            }
            SampleFormat::U16 { shift } => {
                let row = row.chunks_exact(2).step_by(step).take(columns);
                samples.extend(row.map(|two| u16::from_le_bytes([two[0], two[1]]) << (8 - shift)));
            }
        }
    }
    samples
}

/// Position, time and samples of a frame.
pub type Shown = (u64, u64, Timestamp, [Vec<u16>; 3]);

/// Parts of a frame that are compared.
pub fn shown((index, frame): &(u64, Frame)) -> Shown {
    let picture = frame.pixels.host().expect("there");
    let [u, v] = picture.chroma().expect("has chroma");
    let planes = [picture.luma(), u, v].map(samples);
    (*index, frame.source_index, frame.pts, planes)
}

/// Table of a clip for the shim: each coded picture with what it shows.
fn pictures(bytes: &[u8]) -> Vec<u8> {
    let every =
        FileOptions { sampling: Sampling::Every, max_frames: u64::MAX, threads: 2, plan: true };
    let (_, frames) = frames(&DecoderChain::software(), bytes, &every);
    let demuxer = Demuxer::open(Box::new(Cursor::new(bytes.to_vec())), DemuxLimits::default());
    let mut table = Vec::new();
    for coded in demuxer.expect("recognised").into_coded_pictures() {
        let unit = coded.access_unit;
        let Some(frame) = frames.iter().find(|(_, frame)| frame.pts == unit.pts) else { continue };
        let (extent, sample) = (frame.1.extent, frame.1.layout.sample);
        let head = [unit.data.len() as u32, extent.width, extent.height, sample.bytes() as u32];
        table.extend(head.into_iter().flat_map(u32::to_le_bytes));
        table.extend_from_slice(&unit.data);
        let (.., [luma, u, v]) = shown(frame);
        // P010 has its ten bits on top, NV12 the eight of them.
        let mut put = |sample_of: u16| match sample {
            SampleFormat::U8 => table.push((sample_of >> 8) as u8),
            SampleFormat::U16 { .. } => table.extend(sample_of.to_le_bytes()),
        };
        luma.into_iter().for_each(&mut put);
        u.into_iter().zip(v).flat_map(|(u, v)| [u, v]).for_each(put);
    }
    table
}

/// A driver that decodes these clips, with settings of its own; an error says why there is none.
fn driver(clips: &[Vec<u8>], settings: &str) -> Result<TempDir, String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let compiled = shim(root, Path::new(env!("CARGO_TARGET_TMPDIR")), None)?;
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("driver.so");
    fs::copy(compiled.join(NAMES[0]), &copy).expect("a copy");
    for name in NAMES {
        fs::hard_link(&copy, folder.path().join(name)).expect("another name");
    }
    let table: Vec<u8> = clips.iter().flat_map(|clip| pictures(clip)).collect();
    fs::write(folder.path().join("pictures"), table).expect("written");
    fs::write(folder.path().join("settings"), settings).expect("written");
    fs::write(folder.path().join("clip"), clips.first().expect("some")).expect("written");
    Ok(folder)
}

/// Output of the ignored test `name` with a driver that knows the clips.
fn with_driver(name: &str, clips: &[Vec<u8>], settings: &str) -> Option<Output> {
    let folder = match driver(clips, settings) {
        Ok(folder) => folder,
        Err(why) => {
            skip(name, why);
            return None;
        }
    };
    let program = std::env::current_exe().expect("this test");
    let mut test = Command::new(program);
    test.args(["--exact", name, "--ignored", "--nocapture"]);
    test.env("LD_LIBRARY_PATH", folder.path()).env("SHIM_FOLDER", folder.path());
    Some(test.output().expect("this test starts"))
}

/// Runs the ignored test `name` with a driver that knows the clips, the first of which lies beside it, and
/// says what it said; says loudly why it does not.
pub fn passes(name: &str, clips: &[Vec<u8>], settings: &str) {
    let Some(output) = with_driver(name, clips, settings) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{settings}: {said}{errors}");
    println!("{settings}: {said}");
}

/// File beside the driver that the test which runs this one wrote.
#[expect(clippy::disallowed_methods, reason = "the shim's settings")]
pub fn given(name: &str) -> PathBuf {
    let folder = std::env::var_os("SHIM_FOLDER").expect("run by a test");
    PathBuf::from(folder).join(name)
}

/// Clips that the crate brings.
pub fn all(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| brought(name)).collect()
}
