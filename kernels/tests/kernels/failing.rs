//! Tests of a failing device, which only the shim simulates; the tests of `shim` run them.

use gate::{
    CpuBackend, FallbackBackend, MeasureBackend, MeasureError,
    conformance::{TestPicture, check_batch, first_difference, frames},
};
use media::ErrorKind;

use crate::device::open;

#[test]
#[ignore = "needs the shim, whose device is lost after three launches"]
fn a_device_that_is_lost_is_an_error_and_the_cpu_goes_on_with_the_same_integers() {
    let batch = frames(&[TestPicture::new(320, 180), TestPicture::new(33, 41)]);
    let mut expected = Vec::new();
    CpuBackend::new().measure(&batch, &mut expected).expect("measurable");
    let mut measurer = open();
    for _ in 0..2 {
        assert_eq!(first_difference(&mut measurer, &batch), Ok(None));
    }
    let mut measured = expected.clone();
    for _ in 0..2 {
        let error = measurer.measure(&batch, &mut measured).expect_err("the device is lost");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("CUDA_ERROR_LAUNCH_FAILED"), "{error}");
        assert_eq!(measured, expected, "what was there stays, and nothing is added");
    }
    let mut steady = FallbackBackend::new(Box::new(measurer));
    let mut again = Vec::new();
    steady.measure(&batch, &mut again).expect("the CPU measures");
    assert_eq!(again, expected);
    assert!(matches!(steady.failure(), Some(MeasureError::DeviceLost(..))));
}

#[test]
#[ignore = "needs the shim, whose device hangs after two launches"]
fn a_device_that_does_not_answer_is_an_error_within_seconds() {
    let batch = frames(&[TestPicture::new(64, 48)]);
    let mut measurer = open();
    assert_eq!(first_difference(&mut measurer, &batch), Ok(None));
    let mut measured = Vec::new();
    for _ in 0..2 {
        let error = measurer.measure(&batch, &mut measured).expect_err("it hangs");
        assert!(matches!(error, MeasureError::DeviceLost(..)), "{error}");
        assert!(error.to_string().contains("has not answered for 2 s"), "{error}");
        assert!(measured.is_empty());
    }
}

#[test]
#[ignore = "needs the shim, whose device has 24 MB"]
fn a_device_without_room_is_an_error_and_smaller_pictures_are_measured() {
    let mut measurer = open();
    let mut measured = Vec::new();
    let error = measurer.measure(&frames(&[TestPicture::new(4096, 4096)]), &mut measured);
    let error = error.expect_err("too large for the device's memory");
    assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
    assert_eq!(check_batch(&mut measurer, &[TestPicture::new(320, 180)]), Ok(()));
    let mut steady = FallbackBackend::new(Box::new(measurer));
    for picture in [TestPicture::new(4096, 4096), TestPicture::new(320, 180)] {
        assert_eq!(check_batch(&mut steady, &[picture]), Ok(()));
    }
    assert_eq!((steady.failure(), steady.name()), (None, "cuda"), "the device is kept");
}
