//! WGSL gate backend on any available adapter, even a CPU: the whole conformance table, and failures.
//!
//! Needs a Vulkan driver, such as Mesa's for the CPU, and reports its absence. The ignored test comes first
//! and fails on a CPU, where the check proves nothing about a GPU.
#![forbid(unsafe_code)]

#[path = "../../gate/tests/gate/any.rs"]
mod any;
#[path = "../../gate/tests/gate/raw.rs"]
mod raw;
#[path = "../../gate/tests/gate/real.rs"]
mod real;
#[path = "../../tests/support/skip.rs"]
mod skip;

use gate::{
    CpuBackend, FallbackBackend, MeasureBackend, MeasureError,
    conformance::{TestPicture, check, check_batch, first_difference, frame_of, frames},
    device_batch::OpenError,
};
use media::{Dimensions, ErrorKind, Frame, PixelLayout, SampleFormat, Subsampling};
use shaders::{AdapterChoice, WgpuBackend};

use any::check_any_batches;

/// Opens only the adapter named by the environment; without a name, the choice `unnamed`.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration to read it from")]
fn open_named_or(unnamed: AdapterChoice<'_>) -> Result<WgpuBackend, OpenError> {
    let named = std::env::var("SIGHTLINE_VULKAN_ADAPTER").ok();
    let choice = named.as_deref().map_or(unnamed, AdapterChoice::Named);
    match WgpuBackend::open(choice) {
        Err(error @ OpenError::Missing(_)) if named.is_none() => Err(error),
        opened => Ok(opened.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// Opens the adapter that every test examines: preferably a GPU.
fn open(test: &str) -> Option<WgpuBackend> {
    open_named_or(AdapterChoice::Any).map_err(|error| skip::skip(test, error)).ok()
}

#[test]
#[ignore = "needs a GPU"]
fn what_is_examined_is_no_cpu() {
    let opened = open_named_or(AdapterChoice::Hardware);
    let measurer = opened.unwrap_or_else(|error| panic!("{error}"));
    let adapter = measurer.adapter();
    assert!(!adapter.ends_with("(Cpu)"), "{adapter} is named");
    println!("the shader is examined on {adapter}");
}

#[test]
fn the_whole_table_is_measured_as_the_reference_does() {
    let Some(mut measurer) = open("conformance of the shader") else { return };
    let pictures = check(&mut measurer).expect("conforms");
    println!("{pictures} pictures on {}", measurer.adapter());
    assert!(pictures > 500, "{pictures} pictures");
}

#[test]
fn frames_of_real_clips_are_measured_alike() {
    let Some(mut measurer) = open("the shader on real clips") else { return };
    let frames = real::real_frames();
    assert_eq!(first_difference(&mut measurer, &frames), Ok(None));
}

#[test]
fn any_batch_is_measured_as_the_reference_does() {
    let Some(measurer) = open("the shader on any picture") else { return };
    check_any_batches(measurer, 64);
}

#[test]
fn no_buffer_is_made_after_warm_up() {
    let Some(mut measurer) = open("buffers of the shader") else { return };
    let batch =
        [TestPicture::new(1920, 1080), TestPicture::new(64, 64), TestPicture::new(1280, 720)];
    assert_eq!(check_batch(&mut measurer, &batch), Ok(()));
    let made = measurer.buffers_made();
    for _ in 0..5 {
        assert_eq!(check_batch(&mut measurer, &batch), Ok(()));
    }
    assert_eq!(measurer.buffers_made(), made);
}

#[test]
fn a_device_that_is_lost_is_an_error_and_the_cpu_goes_on_with_the_same_integers() {
    let Some(mut measurer) = open("loss of the device") else { return };
    let frames = frames(&[TestPicture::new(320, 180), TestPicture::new(33, 41)]);
    let mut expected = Vec::new();
    measurer.measure(&frames, &mut expected).expect("measurable");
    measurer.destroy();
    let mut measured = expected.clone();
    for _ in 0..2 {
        let error = measurer.measure(&frames, &mut measured).expect_err("the device is gone");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(measured, expected, "what was there stays, and nothing is added");
    }
    let mut steady = FallbackBackend::new(Box::new(measurer));
    let mut again = Vec::new();
    steady.measure(&frames, &mut again).expect("the CPU measures");
    assert_eq!(again, expected);
    assert!(matches!(steady.failure(), Some(MeasureError::DeviceLost(..))));
    assert_eq!(steady.name(), CpuBackend::new().name());
}

/// Returns the largest allowed picture, which takes 192 MiB on a device.
fn vast() -> Frame {
    let extent = Dimensions { width: 8192, height: 8192 };
    let layout = PixelLayout { sample: SampleFormat::U16 { shift: 2 }, ..raw::PLANAR };
    frame_of(vec![0; 3 * 8192 * 8192], extent, layout, 0)
}

#[test]
fn a_picture_that_is_too_large_leaves_the_measurer_sound() {
    let Some(mut measurer) = open("limits of the shader") else { return };
    let small = TestPicture::new(40, 30);
    let long = TestPicture { subsampling: Subsampling::Gray, ..TestPicture::new(8193, 2) };
    let mut measured = Vec::new();
    let refused = measurer.measure(&frames(&[small, long]), &mut measured);
    assert_eq!(refused, Err(MeasureError::TooLarge { width: 8193, height: 2 }));
    assert!(measured.is_empty());
    match measurer.measure(&[vast()], &mut measured) {
        // This device has larger buffers than most.
        Ok(()) => measured.clear(),
        Err(MeasureError::BeyondDevice { bytes, bytes_max, .. }) => assert!(bytes > bytes_max),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(check_batch(&mut measurer, &[small]), Ok(()));
}

#[test]
fn an_adapter_that_is_not_there_is_named_with_those_that_are() {
    let choice = AdapterChoice::Named("no adapter has this name");
    let error = WgpuBackend::open(choice).err().expect("there is none");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no adapter has this name"), "{error}");
}
