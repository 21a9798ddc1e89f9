//! Shader, compiled once for a device.

use gate::{
    MeasureError,
    device_batch::{CELLS, OpenError},
};

use crate::{buffer::FILL_BYTES, device::WgpuDevice};

/// Threads of a workgroup; the shader source has the same number.
const THREADS: u32 = 64;

/// Returns an error if a limit of the device is below the requirement; every Vulkan driver of a GPU meets it.
pub(crate) fn check_limits(device: &WgpuDevice) -> Result<(), OpenError> {
    let limits = &device.limits;
    let groups = limits.max_compute_workgroups_per_dimension;
    let threads =
        limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x);
    let needs = [
        ("workgroups", groups.into(), CELLS as u64),
        ("threads of a workgroup", threads.into(), THREADS.into()),
        ("bytes of a buffer", crate::buffer::bytes_max(limits), FILL_BYTES),
    ];
    match needs.into_iter().find(|(_, got, needed)| got < needed) {
        None => Ok(()),
        Some((what, got, needed)) => {
            let adapter = &device.name;
            Err(OpenError::Unfit(format!(
                "adapter {adapter} supports {what} of {got}; {needed} required"
            )))
        }
    }
}

/// Checks and compiles the shader.
pub(crate) fn compile(device: &WgpuDevice) -> Result<wgpu::ComputePipeline, OpenError> {
    let source = wgpu::ShaderSource::Wgsl(include_str!("../wgsl/cell_sums.wgsl").into());
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some("cell_sums"), source };
    let module = device.device.create_shader_module(descriptor);
    let pipeline = device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("cell_sums"),
        layout: None,
        module: &module,
        entry_point: Some("cell_sums"),
        compilation_options: Default::default(),
        cache: None,
    });
    let reason = match device.faults.take() {
        Some(MeasureError::NoRoom(_, reason) | MeasureError::DeviceFault(_, reason)) => {
            Some(reason)
        }
        _ => device.faults.loss(),
    };
    match reason {
        None => Ok(pipeline),
        Some(reason) => Err(OpenError::Unfit(format!(
            "adapter {} refused the shader or its buffers: {reason}",
            device.name
        ))),
    }
}
