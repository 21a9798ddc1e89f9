//! Prints what measuring costs on the first CUDA device: uploaded pictures, and batches of
//! pictures that are in its memory already. Ends with 2 where there is no device, with 1 where it fails.

#[path = "../../gate/examples/measure_cost/cost.rs"]
mod cost;

use std::time::Instant;

use cudarc::driver::{CudaContext, DevicePtr};
use kernels::{CudaError, CudaMeasurer, DevicePicture};
use media::{Extent, Sample};

const EXTENT: Extent = Extent { width: 1920, height: 1080 };
const PITCH: usize = 2048;

fn main() {
    match CudaMeasurer::open(0) {
        Ok(mut measurer) => {
            println!("{}", measurer.device());
            cost::rows(&mut measurer, 25);
            for pictures in [1, 16, 64, 256] {
                let nanos = in_memory(&mut measurer, pictures);
                println!("{pictures:>4} NV12 1080p in device memory {nanos:>12} ns/frame");
            }
        }
        Err(error) => {
            eprintln!("cuda_cost: {error}");
            let is_missing = matches!(error, CudaError::NoDriver | CudaError::NoDevice { .. });
            std::process::exit(if is_missing { 2 } else { 1 });
        }
    }
}

/// Least nanoseconds a frame for batches of different pictures in device memory.
#[expect(unsafe_code, reason = "names pictures by their addresses")]
fn in_memory(measurer: &mut CudaMeasurer, pictures: usize) -> u128 {
    let stream = CudaContext::new(0).expect("a device").default_stream();
    let bytes = PITCH * (EXTENT.height as usize * 3).div_ceil(2);
    let memory = stream.alloc_zeros::<u8>(bytes * pictures).expect("room");
    stream.synchronize().expect("cleared");
    let start = memory.device_ptr(&stream).0;
    let there: Vec<DevicePicture> = (0..pictures)
        .filter_map(|n| {
            let luma = start + (n * bytes) as u64;
            let chroma = luma + (PITCH * EXTENT.height as usize) as u64;
            // SAFETY: `memory` holds them all, written and waited for, until the end.
            unsafe { DevicePicture::semi_planar(EXTENT, Sample::U8, luma, chroma, PITCH as u32) }
                .ok()
        })
        .collect();
    let mut out = Vec::new();
    let round = |_| {
        out.clear();
        let start = Instant::now();
        measurer.measure_device(&there, &mut out).expect("measurable");
        start.elapsed().as_nanos() / pictures as u128
    };
    (0..25).map(round).min().unwrap_or_default()
}
