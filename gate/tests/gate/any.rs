//! Any measurable picture: odd sizes, every storage, padding.

use std::cell::RefCell;

use gate::{
    MeasureBackend,
    conformance::{Fill, SUBSAMPLINGS, TestPicture, check_batch},
};
use media::SampleFormat;
use proptest::{prelude::*, test_runner::TestRunner};

/// Measures `cases` batches of any pictures; fails if one differs from the reference.
pub fn check_any_batches(measurer: impl MeasureBackend, cases: u32) {
    // One gate backend for all batches, to find state that leaks from one to the next.
    let measurer = RefCell::new(measurer);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let batches = proptest::collection::vec(any_picture(), 0..4);
    let conforms = TestRunner::new(config).run(&batches, |batch| {
        prop_assert_eq!(check_batch(&mut *measurer.borrow_mut(), &batch), Ok(()));
        Ok(())
    });
    assert_eq!(conforms, Ok(()));
}

/// Generates pictures of up to 400 samples a side, mostly small ones, and only such under Miri.
fn any_picture() -> impl Strategy<Value = TestPicture> {
    let subsampling = prop::sample::select(SUBSAMPLINGS.to_vec());
    let sample = prop_oneof![
        Just(SampleFormat::U8),
        (0u8..=8).prop_map(|shift| SampleFormat::U16 { shift })
    ];
    let side = prop_oneof![1u32..70, 1u32..if cfg!(miri) { 70 } else { 400 }];
    let shape = (side.clone(), side, subsampling, sample);
    (shape, any::<bool>(), 0usize..70, any::<u64>()).prop_map(
        |((width, height, subsampling, sample), interleaved, padding, seed)| TestPicture {
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
