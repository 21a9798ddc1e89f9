//! Every gate backend of this machine equals the reference.

use gate::{
    CpuBackend, MeasureBackend, MeasureError,
    conformance::{TestPicture, check, first_difference, quick_check},
};
use media::Subsampling;

use crate::{any::check_any_batches, real::real_frames};

#[test]
fn the_simd_twin_equals_the_reference() {
    check_any_batches(CpuBackend::new(), if cfg!(miri) { 4 } else { 400 });
}

#[test]
fn the_cpu_measurer_conforms() {
    let pictures = check(&mut CpuBackend::new()).expect("conforms");
    assert!(pictures > 500, "{pictures} pictures");
    assert_eq!(quick_check(&mut CpuBackend::new()), Ok(()));
}

#[test]
fn frames_of_real_clips_are_measured_alike() {
    let frames = real_frames();
    assert_eq!(first_difference(&mut CpuBackend::new(), &frames), Ok(None));
}

#[test]
fn a_picture_past_the_limit_is_refused_and_leaves_no_trace() {
    let frames = [(640, 360), (8193, 2)].map(|(width, height)| {
        TestPicture { subsampling: Subsampling::Gray, ..TestPicture::new(width, height) }.frame()
    });
    let mut measured = Vec::new();
    let refused = CpuBackend::new().measure(&frames, &mut measured);
    assert_eq!(refused, Err(MeasureError::TooLarge { width: 8193, height: 2 }));
    assert!(measured.is_empty());
}
