//! The driver, the device and its context, probed step by step: each gap has its own error.
//!
//! The driver's library is loaded when first asked for; nothing of CUDA is linked.

use std::{
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, DriverError, result, sys};
use gate::device_batch::said;
use libloading::Library;

use crate::{CudaError, CudaVersion, ptx};

/// The PTX is of ISA 8.0, which drivers read that speak CUDA 12.0.
const DRIVER_MIN: CudaVersion = CudaVersion { major: 12, minor: 0 };
/// The PTX is of this virtual architecture.
const CAPABILITY_MIN: CudaVersion = CudaVersion { major: 7, minor: 5 };

/// A launch takes milliseconds; a device that says nothing for so long is taken for lost, well before a
/// process in which nothing moves is.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A launch of a few pictures is done within this, and not slept over.
const SPIN_MAX: Duration = Duration::from_micros(200);
/// Between two looks at one that takes longer: a twentieth of what a full launch takes.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// An open device with the kernel loaded.
pub(crate) struct CudaDevice {
    /// As the driver counts, from 0.
    pub number: u32,
    pub name: String,
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub cell_sums: CudaFunction,
    /// Event at the end of the stream when it was last waited for.
    reached: CudaEvent,
    /// The stream that decoders leave their pictures in.
    decoders: Arc<CudaStream>,
    /// Event at the end of that stream when it was last looked at.
    decoded: CudaEvent,
}

/// Reason that work on the device is not done.
pub(crate) enum WaitError {
    /// The driver says so.
    Refused(DriverError),
    /// The device says nothing.
    Silent,
}

impl WaitError {
    pub fn reason(&self) -> String {
        match self {
            WaitError::Refused(error) => error.to_string(),
            WaitError::Silent => format!("it has not answered for {} s", WAIT_MAX.as_secs()),
        }
    }
}

impl From<DriverError> for WaitError {
    fn from(error: DriverError) -> WaitError {
        WaitError::Refused(error)
    }
}

impl CudaDevice {
    /// Opens device `index`, counted from 0.
    pub fn open(index: usize) -> Result<CudaDevice, CudaError> {
        // The binding panics where a driver lacks a function that its version should have.
        let opened = catch_unwind(AssertUnwindSafe(|| CudaDevice::probe(index)));
        opened.unwrap_or_else(|panic| {
            Err(CudaError::Refused { step: "loading", reason: said(panic.as_ref()) })
        })
    }

    fn probe(index: usize) -> Result<CudaDevice, CudaError> {
        load_driver()?;
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
        let found = CudaVersion { major, minor };
        if found < CAPABILITY_MIN {
            return Err(CudaError::DeviceTooOld { name, found, needed: CAPABILITY_MIN });
        }
        let stream = context.new_stream().map_err(refused("making a stream"))?;
        let cell_sums = ptx::load(&context)?;
        let event = || context.new_event(None).map_err(refused("making an event"));
        let (reached, decoded) = (event()?, event()?);
        let decoders = context.default_stream();
        let number = index as u32;
        Ok(CudaDevice { number, name, context, stream, cell_sums, reached, decoders, decoded })
    }

    /// Has what is sent from here on wait, on the device, for all that the context's default stream was
    /// given: decoders hand a picture out when they have asked for it, not when it is there.
    pub fn follow_decoders(&self) -> Result<(), DriverError> {
        self.decoded.record(&self.decoders)?;
        self.stream.wait(&self.decoded)
    }

    /// Waits until all that was sent is done, but not for ever, as the driver would.
    pub fn wait(&self) -> Result<(), WaitError> {
        let began = Instant::now();
        self.reached.record(&self.stream)?;
        while !self.reached.try_is_complete()? {
            let waited = began.elapsed();
            if waited > WAIT_MAX {
                return Err(WaitError::Silent);
            }
            if waited < SPIN_MAX {
                thread::yield_now();
            } else {
                thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
}

/// Makes the error of a failed step, with the driver's message.
pub(crate) fn refused(step: &'static str) -> impl FnOnce(DriverError) -> CudaError {
    move |error| CudaError::Refused { step, reason: error.to_string() }
}

#[expect(unsafe_code, reason = "loads the driver's library")]
fn load_driver() -> Result<(), CudaError> {
    // SAFETY: loading runs the initialisers of the system's own driver, which expect nothing.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    // The binding tries this name too, and does not say what the loader says.
    // SAFETY: as above.
    let asked = unsafe { Library::new("libcuda.so.1") };
    asked.map(drop).map_err(|error| {
        let words = error.source().map(ToString::to_string);
        CudaError::NoDriver { reason: words.unwrap_or_else(|| error.to_string()) }
    })
}

#[expect(unsafe_code, reason = "a call of the driver that its binding does not wrap")]
fn driver_version() -> Result<CudaVersion, CudaError> {
    let mut number = 0;
    // SAFETY: the driver writes one integer to the place given, and needs no initialisation.
    let answer = unsafe { sys::cuDriverGetVersion(&mut number) };
    answer.result().map_err(refused("asking for the driver's version"))?;
    Ok(CudaVersion::of_driver(number))
}

fn device_count() -> Result<usize, CudaError> {
    let count = result::init().and_then(|()| CudaContext::device_count());
    match count {
        Ok(count) if count > 0 => Ok(count as usize),
        Ok(_) => Err(CudaError::NoDevice { reason: "it counts none".to_owned() }),
        Err(error) => Err(CudaError::NoDevice { reason: error.to_string() }),
    }
}
