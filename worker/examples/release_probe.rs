//! Figures of decoding and deciding for `deploy/release-gates`: prints one whole number.
//!
//! `release_probe allocations [MORE]` counts the allocations of a frame from packet to decision in our own
//! code, without libav's. `MORE` are added per frame, to prove that they are counted. `release_probe
//! decisions FRAMES` prints the 95th percentile of the nanoseconds from a picture to its decision.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs::File,
    hint::black_box,
    io::BufReader,
    ops::ControlFlow,
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use gate::{
    AHEAD, CpuBackend, FrameMeta, Gate, GateConfig, MeasureBackend, SignalWindow,
    conformance::{Fill, TestPicture},
};
use worker::{JobEvent, JobOptions, analyze};

/// Allocator that counts the allocations of every thread.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed to the system's allocator unchanged, and counting allocates nothing.
#[expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Frames of one analysis; another has twice as many, and allocations that both have in common cancel out.
const FRAMES: u64 = 500;

/// Returns the allocations per additional frame. Allocations per segment of the file or per message are left
/// out, as long as they are fewer than one per four frames.
fn allocations(more: u64) -> u64 {
    let line = "-f lavfi -i testsrc2=s=320x180:r=25:d=40 -pix_fmt yuv420p -c:v libx264 -preset ultrafast -g 250";
    let clip = clips::rendered("release-probe.mp4", line);
    // The first analysis triggers one-time allocations.
    let [_, some, all] = [1, FRAMES, 2 * FRAMES].map(|frames| allocations_of(&clip, frames, more));
    let added = all.saturating_sub(some);
    eprintln!("release_probe: {added} allocations for {FRAMES} frames more");
    added.saturating_sub(FRAMES / 4).div_ceil(FRAMES)
}

/// Returns the allocations of an analysis of the first frames of a clip.
fn allocations_of(clip: &Path, max_frames: u64, more: u64) -> u64 {
    let input = BufReader::new(File::open(clip).expect("the clip opens"));
    let options = JobOptions { max_frames, threads: 2, ..JobOptions::default() };
    let before = ALLOCATIONS.load(Relaxed);
    let report = analyze(input, &options, &|event| {
        if let JobEvent::Frames(records) = event {
            for _ in 0..records.len() as u64 * more {
                black_box(Box::new(0_u8));
            }
        }
        ControlFlow::Continue(())
    });
    assert_eq!(report.expect("the clip decodes").frames, max_frames);
    ALLOCATIONS.load(Relaxed) - before
}

/// Measures frames of shots of eight frames, makes signals and decides.
fn decisions(frames: usize) -> u128 {
    let picture =
        |n: u64| TestPicture { fill: Fill::Random(n / 8), ..TestPicture::new(640, 360) }.frame();
    let pictures: Vec<_> = (0..32).map(picture).collect();
    let mut measurer = CpuBackend::new();
    let (mut window, mut gate) = (SignalWindow::new(AHEAD), Gate::new(GateConfig::default()));
    let mut measured = Vec::new();
    let mut decide = |index: usize| {
        let started = Instant::now();
        measured.clear();
        let picture = std::slice::from_ref(&pictures[index % pictures.len()]);
        measurer.measure(picture, &mut measured).expect("measurable");
        let (frame_index, pts_ms) = (index as u64, 33 * index as i64);
        let stamp = FrameMeta { frame_index, source_frame_index: frame_index, pts_ms };
        window.push(stamp, &measured[0]);
        while let Some(signal) = window.poll() {
            black_box(gate.offer(&signal));
        }
        started.elapsed().as_nanos()
    };
    let mut nanos: Vec<u128> = (0..frames).map(&mut decide).collect();
    nanos.sort_unstable();
    nanos[frames * 95 / 100]
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    let observed = match (words.first().map(String::as_str), words.len(), number(1)) {
        (Some("allocations"), 1, _) => allocations(0).into(),
        (Some("allocations"), 2, Some(more)) => allocations(more.into()).into(),
        (Some("decisions"), 2, Some(frames @ 1..)) => decisions(frames as usize),
        _ => {
            eprintln!("usage: release_probe allocations [MORE] | decisions FRAMES");
            return ExitCode::from(2);
        }
    };
    println!("{observed}");
    ExitCode::SUCCESS
}
