//! What a device must show. Ignored: a device runs them by name, and so does each test of `shim`.

use cudarc::driver::{CudaContext, DevicePtr};
use gate::{
    CpuMeasurer, MeasureError, Measurer,
    conformance::{Fill, Picture, check, check_batch, first_difference},
};
use kernels::{CudaMeasurer, DevicePicture};
use media::{Extent, Frame, Pixels, Sample};

use crate::{any::check_any_batches, real::real_frames};

pub fn open() -> CudaMeasurer {
    CudaMeasurer::open(0).expect("a device")
}

pub fn frames(pictures: &[Picture]) -> Vec<Frame> {
    pictures.iter().filter_map(|picture| picture.frame()).collect()
}

#[test]
#[ignore = "needs CUDA"]
fn the_whole_table_is_measured_as_the_reference_does() {
    let mut measurer = open();
    let pictures = check(&mut measurer).expect("conforms");
    println!("{pictures} pictures on {}", measurer.device());
    assert!(pictures > 500, "{pictures} pictures");
}

#[test]
#[ignore = "needs CUDA"]
fn frames_of_real_clips_are_measured_alike() {
    let frames = real_frames("the kernel on real clips");
    assert_eq!(first_difference(&mut open(), &frames), Ok(None));
}

#[test]
#[ignore = "needs CUDA"]
fn any_batch_is_measured_as_the_reference_does() {
    check_any_batches(open(), 64);
}

/// A picture as a hardware decoder gives it: both planes in one allocation, rows a pitch apart.
fn semi_planar(picture: Picture, pitch: usize) -> (Vec<u8>, u64) {
    let frame = picture.frame().expect("has pixels");
    let Pixels::Host(host) = &frame.pixels;
    let (luma, [u, v]) = (host.luma(), host.chroma().expect("has chroma"));
    let rows = luma.extent().height as usize;
    let mut bytes = vec![0x5a; pitch * (rows + u.extent().height as usize)];
    for y in 0..luma.extent().height {
        let row = luma.row(y);
        bytes[y as usize * pitch..][..row.len()].copy_from_slice(row);
    }
    for y in 0..u.extent().height {
        let at = (rows + y as usize) * pitch;
        let (first, second) = (u.row(y), v.row(y));
        bytes[at..][..first.len()].copy_from_slice(first);
        bytes[at + picture.sample.bytes()..][..second.len()].copy_from_slice(second);
    }
    (bytes, (rows * pitch) as u64)
}

#[test]
#[ignore = "needs CUDA"]
#[expect(unsafe_code, reason = "names pictures by their addresses")]
fn pictures_in_device_memory_are_measured_where_they_are() {
    let p010 = Sample::U16 { shift: 8 };
    let cases = [
        (1920, 1080, Sample::U8, 2048, Fill::Random(3)),
        (1919, 1079, Sample::U8, 2048, Fill::Ramp),
        (1280, 720, p010, 3072, Fill::Random(5)),
        (50, 31, Sample::U8, 256, Fill::Checker),
        (1, 1, p010, 512, Fill::Flat(255)),
    ];
    let pictures = cases.map(|(width, height, sample, _, fill)| Picture {
        sample,
        interleaved: true,
        fill,
        ..Picture::new(width, height)
    });
    let context = CudaContext::new(0).expect("a device");
    let stream = context.default_stream();
    let mut kept = Vec::new();
    let mut there = Vec::new();
    for (picture, (width, height, sample, pitch, _)) in pictures.iter().zip(cases) {
        let (bytes, chroma) = semi_planar(*picture, pitch);
        let memory = stream.clone_htod(&bytes).expect("room");
        let luma = memory.device_ptr(&stream).0;
        let extent = Extent { width, height };
        let pitch = pitch as u32;
        // SAFETY: `kept` holds the memory until the end, and the copy is waited for below.
        let picture =
            unsafe { DevicePicture::semi_planar(extent, sample, luma, luma + chroma, pitch) };
        there.push(picture.expect("readable"));
        kept.push(memory);
    }
    stream.synchronize().expect("copied");
    let (mut expected, mut measured) = (Vec::new(), Vec::new());
    CpuMeasurer::new().measure(&frames(&pictures), &mut expected).expect("measurable");
    let mut measurer = open();
    for _ in 0..2 {
        measured.clear();
        measurer.measure_device(&there, &mut measured).expect("measurable");
        assert_eq!(measured.len(), expected.len());
        for (case, (measured, expected)) in cases.iter().zip(measured.iter().zip(&expected)) {
            assert!(measured == expected, "{case:?}");
        }
    }
}

#[test]
#[ignore = "needs CUDA"]
fn a_picture_that_is_too_large_leaves_the_measurer_sound() {
    let mut measurer = open();
    let mut measured = Vec::new();
    let small = Picture::new(40, 30);
    let refused = measurer.measure(&frames(&[small, Picture::new(8193, 2)]), &mut measured);
    assert_eq!(refused, Err(MeasureError::TooLarge { width: 8193, height: 2 }));
    assert!(measured.is_empty());
    assert_eq!(check_batch(&mut measurer, &[small]), Ok(()));
}

#[test]
#[ignore = "says what opening the first device says"]
fn opening() {
    match CudaMeasurer::open(0) {
        Ok(measurer) => println!("opened {}", measurer.device()),
        Err(error) => println!("{:?}: {error}", error.kind()),
    }
}
