//! Prints the time of measuring on the first CUDA device: uploaded pictures, and batches of pictures already
//! in device memory. Exits with 2 if there is no device and with 1 on another failure.

#[path = "../../benches/functions/cost.rs"]
mod cost;

use std::sync::Arc;

use cudarc::driver::{CudaContext, DevicePtr};
use gate::device_batch::OpenError;
use kernels::CudaBackend;
use media::{
    DeviceFrameBuffer, DeviceMemoryLost, DeviceSurface, Dimensions, Frame, HostFrameBuffer,
    PixelLayout, Pixels, SampleFormat, SampleRange, Subsampling, Timestamp,
};

const EXTENT: Dimensions = Dimensions { width: 1920, height: 1080 };
const PITCH: usize = 2048;

fn main() {
    match CudaBackend::open(0) {
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
            let is_missing = matches!(error, OpenError::Missing(_));
            std::process::exit(if is_missing { 2 } else { 1 });
        }
    }
}

/// Picture that exists in device memory only.
struct There(DeviceSurface);

impl DeviceFrameBuffer for There {
    fn surface(&self) -> DeviceSurface {
        self.0
    }

    fn host(&self) -> Result<&Arc<dyn HostFrameBuffer>, DeviceMemoryLost> {
        Err(DeviceMemoryLost { reason: "it is to be measured where it is".to_owned() })
    }
}

/// Returns the least nanoseconds per frame for batches of different pictures in device memory.
#[expect(unsafe_code, reason = "names pictures by their addresses")]
fn in_memory(measurer: &mut CudaBackend, pictures: usize) -> u128 {
    let stream = CudaContext::new(0).expect("a device").default_stream();
    let bytes = PITCH * (EXTENT.height as usize * 3).div_ceil(2);
    let memory = stream.alloc_zeros::<u8>(bytes * pictures).expect("room");
    stream.synchronize().expect("cleared");
    let start = memory.device_ptr(&stream).0;
    let (subsampling, range) = (Subsampling::Yuv420, SampleRange::Limited);
    let layout =
        PixelLayout { subsampling, sample: SampleFormat::U8, interleaved_chroma: true, range };
    let frame = |n: usize| {
        let luma = start + (n * bytes) as u64;
        let chroma = luma + (PITCH * EXTENT.height as usize) as u64;
        // SAFETY: `memory` holds all pictures, written and synchronised, until the end of this function.
        let surface = unsafe { DeviceSurface::new(0, luma, chroma, PITCH as u32) };
        let pixels = Pixels::Device(Arc::new(There(surface)));
        let pts = Timestamp::from_millis(0);
        Frame { pts, source_index: n as u64, extent: EXTENT, layout, pixels }
    };
    let there: Vec<Frame> = (0..pictures).map(frame).collect();
    cost::least(measurer, &there, 25)
}
