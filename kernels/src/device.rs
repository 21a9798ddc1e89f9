//! The driver, the device and its context, probed step by step: each gap has its own error.
//!
//! The driver's library is loaded when first asked for; nothing of CUDA is linked.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, result, sys};
use gate::device::said;

use crate::{CudaError, Version, module};

/// The PTX is of ISA 8.0, which drivers read that speak CUDA 12.0.
const DRIVER_MIN: Version = Version { major: 12, minor: 0 };
/// The PTX is of this virtual architecture.
const CAPABILITY_MIN: Version = Version { major: 7, minor: 5 };

/// An open device with the kernel loaded.
pub(crate) struct Device {
    pub name: String,
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub cell_sums: CudaFunction,
}

impl Device {
    /// Opens device `index`, counted from 0.
    pub fn open(index: usize) -> Result<Device, CudaError> {
        // The binding panics where a driver lacks a function that its version should have.
        let opened = catch_unwind(AssertUnwindSafe(|| Device::probe(index)));
        opened.unwrap_or_else(|panic| {
            Err(CudaError::Refused { step: "loading", reason: said(panic.as_ref()) })
        })
    }

    fn probe(index: usize) -> Result<Device, CudaError> {
        if !is_driver_there() {
            return Err(CudaError::NoDriver);
        }
        let found = driver_version()?;
        if found < DRIVER_MIN {
            return Err(CudaError::DriverTooOld { found, needed: DRIVER_MIN });
        }
        let count = device_count()?;
        if index >= count {
            return Err(CudaError::NoSuchDevice { wanted: index, count });
        }
        let context = CudaContext::new(index).map_err(refused("making a context"))?;
        let name = context.name().map_err(refused("asking for the device's name"))?;
        let (major, minor) =
            context.compute_capability().map_err(refused("asking for the device's capability"))?;
        let found = Version { major, minor };
        if found < CAPABILITY_MIN {
            return Err(CudaError::DeviceTooOld { name, found, needed: CAPABILITY_MIN });
        }
        let stream = context.new_stream().map_err(refused("making a stream"))?;
        let cell_sums = module::load(&context)?;
        Ok(Device { name, context, stream, cell_sums })
    }
}

/// Why a step failed, with what the driver says.
pub(crate) fn refused(step: &'static str) -> impl FnOnce(DriverError) -> CudaError {
    move |error| CudaError::Refused { step, reason: error.to_string() }
}

#[expect(unsafe_code, reason = "loads the driver's library")]
fn is_driver_there() -> bool {
    // SAFETY: loading runs the initialisers of the system's own driver, which expect nothing.
    unsafe { sys::is_culib_present() }
}

#[expect(unsafe_code, reason = "a call of the driver that its binding does not wrap")]
fn driver_version() -> Result<Version, CudaError> {
    let mut number = 0;
    // SAFETY: the driver writes one integer to the place given, and needs no initialisation.
    let answer = unsafe { sys::cuDriverGetVersion(&mut number) };
    answer.result().map_err(refused("asking for the driver's version"))?;
    Ok(Version::of_driver(number))
}

fn device_count() -> Result<usize, CudaError> {
    let count = result::init().and_then(|()| CudaContext::device_count());
    match count {
        Ok(count) if count > 0 => Ok(count as usize),
        Ok(_) => Err(CudaError::NoDevice { reason: "it counts none".to_owned() }),
        Err(error) => Err(CudaError::NoDevice { reason: error.to_string() }),
    }
}
