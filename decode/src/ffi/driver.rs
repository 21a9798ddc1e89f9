//! Check of the NVIDIA driver before libav uses it: libav's errors give no reason.

use std::{
    error::Error,
    ffi::{CStr, c_int, c_uint},
    mem::ManuallyDrop,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::BackendError;

pub(super) const CUDA: &str = "libcuda.so.1";
const DECODER: &str = "libnvcuvid.so.1";

type CuInit = unsafe extern "C" fn(c_uint) -> c_int;
type CuDeviceGetCount = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Checks that the driver is present, has device `index` and can decode.
///
/// `capabilities` is the value of `NVIDIA_DRIVER_CAPABILITIES`.
pub(super) fn check_nvidia(index: u32, capabilities: Option<&str>) -> Result<(), BackendError> {
    let missing =
        |reason: String| BackendError::unavailable(format!("{CUDA} cannot be loaded: {reason}"));
    let cuda = load(CUDA).map_err(missing)?;
    let no_driver = |name: &str| missing(format!("it has no {name}: it is no NVIDIA driver"));
    // SAFETY: the driver's own functions of these names have these types (CUDA Driver API, 6.2 and 6.5).
    let (init, count_devices) = unsafe {
        (
            function::<CuInit>(&cuda, c"cuInit"),
            function::<CuDeviceGetCount>(&cuda, c"cuDeviceGetCount"),
        )
    };
    let init = init.map_err(|_| no_driver("cuInit"))?;
    let count_devices = count_devices.map_err(|_| no_driver("cuDeviceGetCount"))?;
    let mut count = 0;
    // SAFETY: the count is written to a place of ours.
    let code = unsafe {
        match init(0) {
            0 => count_devices(&mut count),
            code => code,
        }
    };
    let no_device = |reason: String| {
        BackendError::unavailable(format!("the NVIDIA driver has no device {index}: {reason}"))
    };
    if code != 0 {
        return Err(no_device(meaning(code)));
    }
    if u32::try_from(count).unwrap_or(0) <= index {
        return Err(no_device(format!("there are {count}, counted from 0")));
    }
    load(DECODER).map(|_| ()).map_err(|reason| {
        let set = capabilities.map_or("is not set".to_owned(), |set| format!("is {set:?}"));
        BackendError::unavailable(format!(
            "libnvcuvid.so.1 cannot be loaded although the NVIDIA driver is there: {reason}; in a \
             container NVIDIA_DRIVER_CAPABILITIES must name video, and it {set}"
        ))
    })
}

/// Returns a text for the `CUresult` codes (CUDA Driver API) that a machine's set-up causes.
pub(super) fn meaning(code: c_int) -> String {
    match code {
        3 => "the driver cannot be initialised".to_owned(),
        35 => "the driver is older than its library needs".to_owned(),
        100 => "no device is visible".to_owned(),
        101 => "the device is not valid".to_owned(),
        802 => "the system is not ready yet".to_owned(),
        803 => "the driver's library and its kernel module are of different versions".to_owned(),
        804 => "the driver's library does not support this device".to_owned(),
        code => format!("the driver says CUDA error {code}"),
    }
}

/// Loads a library of the system's driver, which stays loaded: drivers do not survive unloading.
pub(super) fn load(name: &str) -> Result<ManuallyDrop<Library>, String> {
    // SAFETY: the initialisers that run are those of the system's own driver, which have no preconditions.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
    library.map(ManuallyDrop::new).map_err(|error| match error.source() {
        Some(of_the_loader) => of_the_loader.to_string(),
        None => error.to_string(),
    })
}

/// Returns the function `name` of the driver.
///
/// # Safety
///
/// The function must have the type `T`.
pub(super) unsafe fn function<T: Copy>(driver: &Library, name: &CStr) -> Result<T, String> {
    // SAFETY: by this function's contract.
    let found = unsafe { driver.get::<T>(name) };
    found.map(|found| *found).map_err(|_| format!("the driver has no {}", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_said_in_the_loaders_words() {
        let error = load("/nowhere/libcuda.so.1").expect_err("there is none");
        assert!(error.contains("/nowhere/libcuda.so.1"), "{error}");
    }
}
