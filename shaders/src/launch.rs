//! Runs one batch on the device, within a time limit: upload, shader, readback.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use gate::{
    FrameMeasurements, MeasureError,
    device_batch::{CELLS, HostPlanes, contained, unpack},
};
use media::Frame;
use wgpu::MapMode;

use crate::{
    NAME,
    buffer::{DispatchBuffers, HEAD_BYTES, SUM_BYTES, SURFACE_BYTES},
    device::{DeviceErrors, WgpuDevice},
};

/// Measures `frames`, which fit in `buffers`, and appends to `out`.
///
/// After an error the buffers must not be used again.
pub(crate) fn run(
    device: &WgpuDevice,
    pipeline: &wgpu::ComputePipeline,
    buffers: &DispatchBuffers,
    frames: &[Frame],
    out: &mut Vec<FrameMeasurements>,
) -> Result<(), MeasureError> {
    // wgpu panics when the driver reports a lost device during a wait.
    let ran = contained(|| {
        let bytes = write(buffers, frames)?;
        submit(device, pipeline, buffers, bytes, frames.len() as u32);
        wait(device, buffers, frames.len())?;
        read(buffers, frames, out)
    });
    verdict(&device.faults, ran.flatten())
}

/// Allocates buffers for a batch of `bytes` of samples and catches panics.
pub(crate) fn make_buffers(
    device: &WgpuDevice,
    pipeline: &wgpu::ComputePipeline,
    bytes: u64,
) -> Result<DispatchBuffers, MeasureError> {
    match contained(|| DispatchBuffers::new(device, pipeline, bytes)) {
        Ok(made) => made,
        Err(stopped) => verdict(&device.faults, Err(stopped)),
    }
}

/// Converts the outcome of a batch, of which an error is the driver's message; loss and faults reported by the
/// device precede their consequences.
fn verdict<T>(faults: &DeviceErrors, ran: Result<T, String>) -> Result<T, MeasureError> {
    if let Some(reason) = faults.loss() {
        return Err(MeasureError::DeviceLost(NAME, reason));
    }
    match (faults.take(), ran) {
        // All objects of the batch are dropped: after a lack of memory, a later batch may find some.
        (Some(fault), _) => Err(fault),
        (None, Err(reason)) => {
            faults.note_loss(reason.clone());
            Err(MeasureError::DeviceLost(NAME, reason))
        }
        (None, Ok(done)) => Ok(done),
    }
}

/// Fills the upload buffer and returns the bytes of samples.
fn write(buffers: &DispatchBuffers, frames: &[Frame]) -> Result<u64, String> {
    let mut view = buffers.upload.get_mapped_range_mut(..).map_err(|error| error.to_string())?;
    let mut bytes = 0;
    for (frame, head) in frames.iter().zip((0..).step_by(SURFACE_BYTES)) {
        let planes = HostPlanes::new(frame).map_err(|error| error.to_string())?;
        let surfaces = planes.pack(bytes, |at, row| {
            let at = (HEAD_BYTES + at) as usize;
            view.slice(at..at + row.len()).copy_from_slice(row);
        });
        bytes += planes.packed_bytes();
        let words = surfaces.iter().flat_map(|surface| surface.words());
        for (word, at) in words.zip((head..).step_by(4)) {
            view.slice(at..at + 4).copy_from_slice(&word.to_le_bytes());
        }
    }
    drop(view);
    buffers.upload.unmap();
    Ok(bytes)
}

fn submit(
    device: &WgpuDevice,
    pipeline: &wgpu::ComputePipeline,
    buffers: &DispatchBuffers,
    bytes: u64,
    pictures: u32,
) {
    let mut encoder = device.device.create_command_encoder(&Default::default());
    let head = u64::from(pictures) * SURFACE_BYTES as u64;
    encoder.copy_buffer_to_buffer(&buffers.upload, 0, &buffers.surfaces, 0, head);
    encoder.copy_buffer_to_buffer(&buffers.upload, HEAD_BYTES, &buffers.samples, 0, bytes);
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &buffers.bound, &[]);
        pass.dispatch_workgroups(CELLS as u32, pictures, 1);
    }
    let back = u64::from(pictures) * SUM_BYTES;
    encoder.copy_buffer_to_buffer(&buffers.sums, 0, &buffers.readback, 0, back);
    device.queue.submit([encoder.finish()]);
}

/// Waits until the sums can be read and the next batch can be written.
fn wait(device: &WgpuDevice, buffers: &DispatchBuffers, pictures: usize) -> Result<(), String> {
    let mapped = Arc::new(AtomicU32::new(0));
    let note = || {
        let mapped = mapped.clone();
        move |result: Result<(), wgpu::BufferAsyncError>| {
            mapped.fetch_add(u32::from(result.is_ok()), Ordering::AcqRel);
        }
    };
    buffers.readback.map_async(MapMode::Read, ..pictures as u64 * SUM_BYTES, note());
    buffers.upload.map_async(MapMode::Write, .., note());
    let poll = wgpu::PollType::Wait { submission_index: None, timeout: Some(device.wait_max()) };
    device.device.poll(poll).map_err(|error| error.to_string())?;
    match mapped.load(Ordering::Acquire) {
        2 => Ok(()),
        _ => Err("buffers could not be mapped".to_owned()),
    }
}

fn read(
    buffers: &DispatchBuffers,
    frames: &[Frame],
    out: &mut Vec<FrameMeasurements>,
) -> Result<(), String> {
    let bytes = ..frames.len() as u64 * SUM_BYTES;
    let view = buffers.readback.get_mapped_range(bytes).map_err(|error| error.to_string())?;
    let sums = view.chunks_exact(SUM_BYTES as usize);
    out.extend(frames.iter().zip(sums).map(|(frame, sums)| unpack(frame, sums)));
    drop(view);
    buffers.readback.unmap();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(reason: &str) -> Result<(), MeasureError> {
        Err(MeasureError::DeviceLost(NAME, reason.to_owned()))
    }

    #[test]
    fn a_panic_of_the_driver_is_a_lost_device_for_good() {
        let faults = DeviceErrors::default();
        let stopped = contained::<()>(|| panic!("Error in Device::poll:\n  {}", "device lost"));
        assert_eq!(stopped, Err("Error in Device::poll: device lost".to_owned()));
        assert_eq!(verdict(&faults, stopped), lost("Error in Device::poll: device lost"));
        assert_eq!(verdict(&faults, Ok(())), lost("Error in Device::poll: device lost"));
    }

    #[test]
    fn the_driver_s_own_word_comes_first() {
        let late = || Err::<(), _>("buffers could not be mapped".to_owned());
        let faults = DeviceErrors::default();
        let (source, description) = ("refused".into(), "refused".to_owned());
        let memory = wgpu::Error::OutOfMemory { source: "no room".into() };
        let other = wgpu::Error::Validation { source, description };
        for (error, keeps_device) in [(memory, true), (other, false)] {
            faults.note(&error);
            let fault = verdict(&faults, late()).expect_err("noted");
            assert_eq!(!fault.ends_device(), keeps_device, "{fault:?}");
            assert_eq!(matches!(fault, MeasureError::NoRoom(..)), keeps_device, "{fault:?}");
            assert_eq!(verdict(&faults, Ok(())), Ok(()), "a fault is told once");
        }
        faults.note_loss("reset".to_owned());
        assert_eq!(verdict(&faults, late()), lost("reset"));
    }
}
