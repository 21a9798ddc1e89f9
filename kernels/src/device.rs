//! Driver, device and context, probed step by step: each missing part has its own error.
//!
//! The driver's library is loaded on first use; no CUDA library is linked.

use std::{
    error::Error,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, DriverError, result, sys};
use gate::device_batch::{OpenError, contained};
use libloading::Library;

use crate::ptx;

/// Numbers before and after the point of a version.
type Version = (i32, i32);

/// Oldest supported CUDA version of the driver; the PTX is of ISA 8.0.
const DRIVER_MIN: Version = (12, 0);
/// Oldest supported compute capability: the virtual architecture of the PTX.
const CAPABILITY_MIN: Version = (7, 5);

/// Longest wait for a launch, which takes milliseconds; after it the device counts as lost. Shorter than the
/// watchdog of a stalled process.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Time of yielding before the wait sleeps; a launch of a few pictures ends within it.
const SPIN_MAX: Duration = Duration::from_micros(200);
/// Sleep between two polls: a twentieth of the time of a full launch.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// An open device with the kernel loaded.
pub(crate) struct CudaDevice {
    /// Device number of the driver, from 0.
    pub number: u32,
    pub name: String,
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub cell_sums: CudaFunction,
    /// Event recorded at the end of the stream by the last wait.
    reached: CudaEvent,
    /// Stream in which decoders leave their pictures.
    decoders: Arc<CudaStream>,
    /// Event recorded at the end of the decoders' stream.
    decoded: CudaEvent,
}

/// Reason that a wait for the device failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("{0}")]
    Refused(#[from] DriverError),
    #[error("it has not answered for {} s", WAIT_MAX.as_secs())]
    Silent,
}

impl CudaDevice {
    /// Opens device `index`, counted from 0.
    pub fn open(index: usize) -> Result<CudaDevice, OpenError> {
        // The binding panics if a driver lacks a function that its version should have.
        contained(|| CudaDevice::probe(index))
            .unwrap_or_else(|reason| Err(OpenError::Failed(failure("loading", &reason))))
    }

    fn probe(index: usize) -> Result<CudaDevice, OpenError> {
        load_driver()?;
        let found = driver_version()?;
        if found < DRIVER_MIN {
            return Err(OpenError::Unfit(format!(
                "the NVIDIA driver speaks CUDA {}, and {} is needed: driver 525 or later",
                dotted(found),
                dotted(DRIVER_MIN)
            )));
        }
        let count = device_count()?;
        if index >= count {
            let problem = format!("no CUDA device {index}: there are {count}, counted from 0");
            return Err(OpenError::Failed(problem));
        }
        let context = CudaContext::new(index).map_err(refused("making a context"))?;
        let name = context.name().map_err(refused("asking for the device's name"))?;
        let found =
            context.compute_capability().map_err(refused("asking for the device's capability"))?;
        if found < CAPABILITY_MIN {
            let (found, needed) = (dotted(found), dotted(CAPABILITY_MIN));
            return Err(OpenError::Unfit(format!(
                "device {name} has compute capability {found}, and {needed} is needed"
            )));
        }
        let stream = context.new_stream().map_err(refused("making a stream"))?;
        let cell_sums = ptx::load(&context)?;
        let event = || context.new_event(None).map_err(refused("making an event"));
        let (reached, decoded) = (event()?, event()?);
        let decoders = context.default_stream();
        let number = index as u32;
        Ok(CudaDevice { number, name, context, stream, cell_sums, reached, decoders, decoded })
    }

    /// Makes later work on the stream wait, on the device, for all work of the context's default stream:
    /// decoders hand a picture out when its copy is queued, not when it is done.
    pub fn follow_decoders(&self) -> Result<(), DriverError> {
        self.decoded.record(&self.decoders)?;
        self.stream.wait(&self.decoded)
    }

    /// Waits until all queued work is done, but no longer than [`WAIT_MAX`]; the driver would wait for ever.
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

/// Returns a function that makes the error of a failed step with the driver's message.
pub(crate) fn refused(step: &'static str) -> impl FnOnce(DriverError) -> OpenError {
    move |error| OpenError::Failed(failure(step, &error.to_string()))
}

fn failure(step: &str, reason: &str) -> String {
    format!("the NVIDIA driver failed at {step}: {reason}")
}

fn dotted((major, minor): Version) -> String {
    format!("{major}.{minor}")
}

#[expect(unsafe_code, reason = "loads the driver's library")]
fn load_driver() -> Result<(), OpenError> {
    // SAFETY: loading runs the initialisers of the system's own driver, which have no preconditions.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    // The binding tries this name too, but drops the loader's message.
    // SAFETY: as above.
    let asked = unsafe { Library::new("libcuda.so.1") };
    asked.map(drop).map_err(|error| {
        let words = error.source().map(ToString::to_string);
        let words = words.unwrap_or_else(|| error.to_string());
        OpenError::Missing(format!("no NVIDIA driver: {words}"))
    })
}

#[expect(unsafe_code, reason = "a call of the driver that its binding does not wrap")]
fn driver_version() -> Result<Version, OpenError> {
    let mut number = 0;
    // SAFETY: the driver writes one integer to the given place and needs no initialisation.
    let answer = unsafe { sys::cuDriverGetVersion(&mut number) };
    answer.result().map_err(refused("asking for the driver's version"))?;
    // 12020 is 12.2.
    Ok((number / 1000, number % 1000 / 10))
}

fn device_count() -> Result<usize, OpenError> {
    let reason = match result::init().and_then(|()| CudaContext::device_count()) {
        Ok(count) if count > 0 => return Ok(count as usize),
        Ok(_) => "it counts none".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(OpenError::Missing(format!("the NVIDIA driver finds no device: {reason}")))
}
