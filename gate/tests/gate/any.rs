//! Any picture that can be measured: odd sizes, every storage, padding.

use gate::conformance::{Fill, Picture};
use media::{Sample, Subsampling};
use proptest::prelude::*;

/// Pictures of up to 400 samples a side, more of them small.
pub fn any_picture() -> impl Strategy<Value = Picture> {
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
