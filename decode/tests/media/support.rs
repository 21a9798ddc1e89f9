//! Reference results of the ffmpeg tools, and a sink that records frames.

use std::{fs::File, io::Cursor, ops::ControlFlow, path::Path, process::Command};

use decode::{
    DecodeError, DecoderChain, DemuxLimits, Demuxer, FileOptions, FileReport, FrameCollector,
    FrameSink, Sampling,
};
use media::{Dimensions, Frame, FrameRate, Plane};
use sha2::{Digest, Sha256};

/// Runs a tool on a file, `{}` in its line, and returns its standard output.
pub fn run(program: &str, line: &str, path: &Path) -> String {
    let path = path.to_str().expect("a plain name");
    let words = line.split_whitespace().map(|word| if word == "{}" { path } else { word });
    let output = Command::new(program).args(words).output().expect("the tool starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {line}, {path}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sampled frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub index: u64,
    pub source_index: u64,
    pub ticks: i64,
    pub extent: Dimensions,
    /// SHA-256 of the planes without padding, as ffmpeg's `framehash` computes it.
    pub digest: String,
}

/// Records frames; reads pixels only with `digests`.
pub fn recorder(digests: bool) -> impl FrameSink<Output = Vec<Seen>> {
    FrameCollector::new(move |index, frame| {
        Ok(Seen {
            index,
            source_index: frame.source_index,
            ticks: frame.pts.ticks,
            extent: frame.extent,
            digest: if digests { digest(&frame) } else { String::new() },
        })
    })
}

/// Returns the SHA-256 of the planes, row by row.
pub fn digest(frame: &Frame) -> String {
    let picture = frame.pixels.host().expect("in host memory");
    let mut hash = Sha256::new();
    let mut add = |plane: Plane<'_>| {
        (0..plane.extent().height).for_each(|y| hash.update(plane.row(y)));
    };
    add(picture.luma());
    picture.chroma().into_iter().flatten().for_each(add);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn every(threads: usize) -> FileOptions {
    FileOptions { sampling: Sampling::Every, max_frames: u64::MAX, threads, plan: true }
}

pub fn fixed(fps: f64, plan: bool) -> FileOptions {
    let rate = FrameRate::from_f64(fps).expect("a sensible rate");
    FileOptions { sampling: Sampling::Fixed(rate), plan, ..every(2) }
}

/// Opens a file that is media.
pub fn opened(path: &Path) -> Demuxer {
    let input = File::open(path).expect("the clip opens");
    Demuxer::open(Box::new(input), DemuxLimits::default()).expect("recognised")
}

/// Report of a file, and its frames in order.
pub type Decoded = Result<(FileReport, Vec<Seen>), DecodeError>;

pub fn decode(path: &Path, options: &FileOptions, digests: bool) -> Decoded {
    decode_demuxer(&DecoderChain::software(), opened(path), options, digests)
}

/// Decodes a file with limits on the size of its pictures.
pub fn decode_within(path: &Path, limits: DemuxLimits, options: &FileOptions) -> Decoded {
    let input = File::open(path).expect("the clip opens");
    let demuxer = Demuxer::open(Box::new(input), limits)?;
    decode_demuxer(&DecoderChain::software(), demuxer, options, false)
}

pub fn decode_bytes(bytes: Vec<u8>, options: &FileOptions) -> Decoded {
    decode_bytes_by(&DecoderChain::software(), bytes, options)
}

/// As [`decode_bytes`], with these decoders.
pub fn decode_bytes_by(decoders: &DecoderChain, bytes: Vec<u8>, options: &FileOptions) -> Decoded {
    let demuxer = Demuxer::open(Box::new(Cursor::new(bytes)), DemuxLimits::default())?;
    decode_demuxer(decoders, demuxer, options, true)
}

/// Decodes with libav's own decoders, and gives the sinks' outputs to `deliver`.
pub fn decode_file<S: FrameSink>(
    demuxer: Demuxer,
    options: &FileOptions,
    make_sink: impl Fn() -> S + Sync,
    deliver: impl FnMut(S::Output) -> ControlFlow<()>,
) -> Result<FileReport, DecodeError> {
    decode::decode_file(&DecoderChain::software(), demuxer, options, make_sink, deliver)
}

fn decode_demuxer(
    decoders: &DecoderChain,
    demuxer: Demuxer,
    options: &FileOptions,
    digests: bool,
) -> Decoded {
    let mut seen: Vec<Seen> = Vec::new();
    let make_sink = || recorder(digests);
    let report = decode::decode_file(decoders, demuxer, options, make_sink, |frames| {
        seen.extend(frames);
        ControlFlow::Continue(())
    })?;
    assert_eq!(report.frames, seen.len() as u64);
    assert!(seen.iter().map(|frame| frame.index).eq(0..report.frames), "indices count up");
    Ok((report, seen))
}

/// As [`decode`], with early output: returns the frames of each output.
pub fn decode_in_hurry(path: &Path, options: &FileOptions) -> (FileReport, Vec<Vec<Seen>>) {
    let make_sink = || recorder(true);
    let mut outputs = Vec::new();
    let report = decode_file(opened(path).in_hurry(0), options, make_sink, |frames| {
        outputs.push(frames);
        ControlFlow::Continue(())
    });
    (report.expect("decodes"), outputs)
}

/// Returns the number of first pictures that a test examines, fewer for large ones.
pub fn first_pictures(path: &Path) -> u32 {
    let input = Box::new(File::open(path).expect("the clip opens"));
    let extent = Demuxer::open(input, DemuxLimits::default()).map(|it| it.stream().extent);
    if extent.is_ok_and(|extent| extent.area() > 1280 * 720) { 45 } else { 90 }
}

pub fn ticks(seen: &[Seen]) -> Vec<i64> {
    seen.iter().map(|frame| frame.ticks).collect()
}

pub fn digests(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(|frame| frame.digest.clone()).collect()
}

/// Returns the presentation times from ffprobe; `None` for a frame without one.
pub fn ffprobe_times(path: &Path, packets_max: Option<u32>) -> Vec<Option<i64>> {
    let interval = packets_max.map_or("%".to_owned(), |count| format!("%+#{count}"));
    let entries = "-select_streams v:0 -show_entries frame=best_effort_timestamp -of csv=p=0";
    let line = format!("-v error -read_intervals {interval} {entries} {{}}");
    let text = run("ffprobe", &line, path);
    let lines = text.lines().map(|line| line.split(',').next().unwrap_or_default());
    lines.filter(|line| !line.is_empty()).map(|line| line.parse().ok()).collect()
}

/// Returns the SHA-256 of every frame of ffmpeg's own sequential decode.
pub fn ffmpeg_digests(path: &Path) -> Vec<String> {
    let line = "-v error -nostdin -noautorotate -i {} -map 0:v:0 -vsync passthrough \
                -f framehash -hash sha256 -";
    let text = run("ffmpeg", line, path);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit(',').next()).map(|hash| hash.trim().to_owned()).collect()
}
