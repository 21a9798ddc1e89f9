//! Every measurer of this machine equals the reference.

use gate::{
    CpuMeasurer, MeasureError, Measurer,
    conformance::{Fill, Picture, check, check_batch, first_difference, smoke},
};
use media::{Sample, Subsampling};
use proptest::prelude::*;

use crate::real::real_frames;

fn any_picture() -> impl Strategy<Value = Picture> {
    let subsampling = prop::sample::select(vec![
        Subsampling::Gray,
        Subsampling::Yuv420,
        Subsampling::Yuv422,
        Subsampling::Yuv440,
        Subsampling::Yuv411,
        Subsampling::Yuv444,
    ]);
    let sample = prop_oneof![Just(Sample::U8), (0u8..=8).prop_map(|shift| Sample::U16 { shift })];
    let side = prop_oneof![1u32..70, 1u32..400];
    let shape = (side.clone(), side, subsampling, sample);
    (shape, any::<bool>(), 0usize..70, any::<u64>()).prop_map(
        |((width, height, subsampling, sample), interleaved, padding, seed)| Picture {
            width,
            height,
            subsampling,
            sample,
            interleaved,
            padding,
            fill: Fill::Random(seed),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_simd_twin_equals_the_reference(batch in prop::collection::vec(any_picture(), 0..4)) {
        prop_assert_eq!(check_batch(&mut CpuMeasurer::new(), &batch), Ok(()));
    }
}

#[test]
fn the_cpu_measurer_conforms() {
    let pictures = check(&mut CpuMeasurer::new()).expect("conforms");
    assert!(pictures > 500, "{pictures} pictures");
    assert_eq!(smoke(&mut CpuMeasurer::new()), Ok(()));
}

#[test]
fn frames_of_real_clips_are_measured_alike() {
    let frames = real_frames("measuring of real clips");
    assert_eq!(first_difference(&mut CpuMeasurer::new(), &frames), Ok(None));
}

#[test]
fn a_picture_past_the_limit_is_refused_and_leaves_no_trace() {
    let frames = [(640, 360), (8193, 2)].map(|(width, height)| {
        Picture { subsampling: Subsampling::Gray, ..Picture::new(width, height) }
            .frame()
            .expect("has pixels")
    });
    let mut measured = Vec::new();
    let refused = CpuMeasurer::new().measure(&frames, &mut measured);
    assert_eq!(refused, Err(MeasureError::TooLarge { width: 8193, height: 2 }));
    assert!(measured.is_empty());
}
