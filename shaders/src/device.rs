//! Choice of the adapter, and its errors.
//!
//! A CPU adapter is slower than the CPU's own backend: it is for tests, and opened only on request. Errors
//! and loss of the device are stored until they are read; nothing panics.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gate::{MeasureError, device_batch::OpenError};
use wgpu::{Adapter, AdapterInfo, Backends, DeviceType, Instance, InstanceDescriptor, Limits};

use crate::NAME;

/// Longest wait for a dispatch on a GPU, where it takes milliseconds; after it the device counts as lost.
/// Shorter than the watchdog of a stalled worker.
const GPU_WAIT_MAX: Duration = Duration::from_secs(2);
/// Longest wait for a dispatch on a CPU adapter, which shares the CPU with all other work.
const CPU_WAIT_MAX: Duration = Duration::from_secs(300);

/// Adapter to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterChoice<'a> {
    /// First discrete GPU; others share the CPU's memory and power and may not be faster.
    Discrete,
    /// First discrete GPU, else an integrated one, else a virtual one; never a CPU.
    Hardware,
    /// As [`AdapterChoice::Hardware`], or a CPU if there is no GPU.
    Any,
    /// First adapter whose name contains this text, ignoring case; may be a CPU.
    Named(&'a str),
}

/// An open adapter.
pub(crate) struct WgpuDevice {
    pub name: String,
    pub limits: Limits,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub faults: Arc<DeviceErrors>,
    /// True if the adapter is a CPU.
    pub is_cpu: bool,
}

impl WgpuDevice {
    pub fn open(choice: AdapterChoice<'_>) -> Result<WgpuDevice, OpenError> {
        let mut descriptor = InstanceDescriptor::new_without_display_handle();
        descriptor.backends = Backends::VULKAN;
        descriptor.flags = wgpu::InstanceFlags::empty();
        let instance = Instance::new(descriptor);
        let adapters = pollster::block_on(instance.enumerate_adapters(Backends::VULKAN));
        let infos: Vec<AdapterInfo> = adapters.iter().map(Adapter::get_info).collect();
        let name = |info: &AdapterInfo| format!("{} ({:?})", info.name, info.device_type);
        let Some(index) = choose(&infos, choice) else {
            let wanted = match choice {
                AdapterChoice::Discrete => "of a discrete GPU".to_owned(),
                AdapterChoice::Hardware => "of a GPU".to_owned(),
                AdapterChoice::Any => "of a GPU or a CPU".to_owned(),
                AdapterChoice::Named(part) => format!("with {part:?} in its name"),
            };
            let found = match infos.as_slice() {
                [] => "none".to_owned(),
                infos => infos.iter().map(name).collect::<Vec<_>>().join(", "),
            };
            let problem = format!("no Vulkan adapter {wanted}; found: {found}");
            return Err(OpenError::Missing(problem));
        };
        WgpuDevice::request(&adapters[index], name(&infos[index]))
    }

    fn request(adapter: &Adapter, name: String) -> Result<WgpuDevice, OpenError> {
        let limits = adapter.limits();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("gate"),
            required_limits: limits.clone(),
            ..Default::default()
        };
        let (device, queue) =
            pollster::block_on(adapter.request_device(&descriptor)).map_err(|error| {
                OpenError::Failed(format!("adapter {name} could not be opened: {error}"))
            })?;
        let faults = Arc::new(DeviceErrors::default());
        let (fault, loss) = (faults.clone(), faults.clone());
        device.on_uncaptured_error(Arc::new(move |error| fault.note(&error)));
        device.set_device_lost_callback(move |reason, message| {
            loss.note_loss(format!("{reason:?} {message}").trim_end().to_owned());
        });
        let is_cpu = adapter.get_info().device_type == DeviceType::Cpu;
        Ok(WgpuDevice { name, limits, device, queue, faults, is_cpu })
    }

    /// Returns the longest wait for a dispatch.
    pub fn wait_max(&self) -> Duration {
        if self.is_cpu { CPU_WAIT_MAX } else { GPU_WAIT_MAX }
    }
}

fn choose(infos: &[AdapterInfo], choice: AdapterChoice<'_>) -> Option<usize> {
    match choice {
        AdapterChoice::Named(part) => {
            let part = part.to_lowercase();
            infos.iter().position(|info| info.name.to_lowercase().contains(&part))
        }
        AdapterChoice::Discrete => first_of(infos, &[DeviceType::DiscreteGpu]),
        AdapterChoice::Hardware => first_of(infos, &GPUS),
        AdapterChoice::Any => first_of(infos, &GPUS).or(first_of(infos, &[DeviceType::Cpu])),
    }
}

/// Types of GPU adapters, best first.
const GPUS: [DeviceType; 3] =
    [DeviceType::DiscreteGpu, DeviceType::IntegratedGpu, DeviceType::VirtualGpu];

fn first_of(infos: &[AdapterInfo], kinds: &[DeviceType]) -> Option<usize> {
    let mut kinds = kinds.iter();
    kinds.find_map(|kind| infos.iter().position(|info| info.device_type == *kind))
}

/// Errors of the driver, stored until they are read.
#[derive(Default)]
pub(crate) struct DeviceErrors(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// First fault since the last [`DeviceErrors::take`]; later ones follow from it.
    fault: Option<MeasureError>,
    loss: Option<String>,
}

impl DeviceErrors {
    /// Stores the first error of the driver.
    pub fn note(&self, error: &wgpu::Error) {
        let reason = error.to_string();
        let fault = match error {
            wgpu::Error::OutOfMemory { .. } => MeasureError::NoRoom(NAME, reason),
            _ => MeasureError::DeviceFault(NAME, reason),
        };
        self.lock().fault.get_or_insert(fault);
    }

    /// Stores the loss of the device, which is permanent.
    pub fn note_loss(&self, reason: String) {
        self.lock().loss.get_or_insert(reason);
    }

    /// Returns the reason of the device's loss; `None` while it works.
    pub fn loss(&self) -> Option<String> {
        self.lock().loss.clone()
    }

    /// Returns the first fault since the last call.
    pub fn take(&self) -> Option<MeasureError> {
        self.lock().fault.take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, kind: DeviceType) -> AdapterInfo {
        AdapterInfo { name: name.to_owned(), ..AdapterInfo::new(kind, wgpu::Backend::Vulkan) }
    }

    #[test]
    fn a_cpu_is_chosen_only_by_name() {
        let cpu = info("llvmpipe (LLVM 15)", DeviceType::Cpu);
        let unknown = info("something", DeviceType::Other);
        let virtual_gpu = info("virtio", DeviceType::VirtualGpu);
        let integrated = info("Intel(R) UHD", DeviceType::IntegratedGpu);
        let discrete = info("NVIDIA H100", DeviceType::DiscreteGpu);
        let few = [cpu.clone(), unknown.clone()];
        let all = [cpu, unknown, virtual_gpu, integrated, discrete];
        let cases = [
            ("nothing but a CPU", &few[..], AdapterChoice::Hardware, None),
            ("no adapters", &[], AdapterChoice::Hardware, None),
            ("a CPU by name", &few, AdapterChoice::Named("LLVMpipe"), Some(0)),
            ("a CPU where nothing else is", &few, AdapterChoice::Any, Some(0)),
            ("a GPU before a CPU", &all, AdapterChoice::Any, Some(4)),
            ("nothing to take", &few[1..], AdapterChoice::Any, None),
            ("no such name", &few, AdapterChoice::Named("nvidia"), None),
            ("a discrete one", &all, AdapterChoice::Discrete, Some(4)),
            ("no discrete one", &all[..4], AdapterChoice::Discrete, None),
            ("discrete first", &all, AdapterChoice::Hardware, Some(4)),
            ("then integrated", &all[..4], AdapterChoice::Hardware, Some(3)),
            ("then virtual", &all[..3], AdapterChoice::Hardware, Some(2)),
            ("a GPU by name", &all, AdapterChoice::Named("h100"), Some(4)),
        ];
        for (name, infos, choice, expected) in cases {
            assert_eq!(choose(infos, choice), expected, "{name}");
        }
    }

    #[test]
    fn the_first_fault_is_kept_and_a_loss_is_for_good() {
        let faults = DeviceErrors::default();
        let error = |text: &str| wgpu::Error::OutOfMemory { source: text.to_owned().into() };
        faults.note(&error("first"));
        faults.note(&error("second"));
        let first = faults.take().expect("noted");
        assert!(matches!(&first, MeasureError::NoRoom(_, said) if !said.is_empty()), "{first:?}");
        assert_eq!(faults.take(), None);
        faults.note_loss("unplugged".into());
        faults.note_loss("again".into());
        assert_eq!(
            (faults.loss(), faults.loss()),
            (Some("unplugged".into()), Some("unplugged".into()))
        );
    }
}
