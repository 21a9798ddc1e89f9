//! Check of the NVIDIA driver before libav uses it: libav's errors give no reason.

use std::{
    ffi::{CStr, c_int, c_uint, c_void},
    mem,
    ptr::NonNull,
};

use crate::BackendError;

const CUDA: &CStr = c"libcuda.so.1";
const DECODER: &CStr = c"libnvcuvid.so.1";

type CuInit = unsafe extern "C" fn(c_uint) -> c_int;
type CuDeviceGetCount = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Checks that the driver is present, has device `index` and can decode.
///
/// `capabilities` is the value of `NVIDIA_DRIVER_CAPABILITIES`.
pub(super) fn check_nvidia(index: u32, capabilities: Option<&str>) -> Result<(), BackendError> {
    let cuda = Library::load(CUDA).map_err(|reason| missing(CUDA, reason))?;
    let no_driver = |name: &CStr| {
        missing(CUDA, format!("it has no {}: it is no NVIDIA driver", name.to_string_lossy()))
    };
    let init = cuda.symbol(c"cuInit").ok_or_else(|| no_driver(c"cuInit"))?;
    let count_devices =
        cuda.symbol(c"cuDeviceGetCount").ok_or_else(|| no_driver(c"cuDeviceGetCount"))?;
    // SAFETY: the driver's own functions of these names have these types (CUDA Driver API, 6.2 and 6.5); the
    // count is written to a place of ours.
    let (code, count) = unsafe {
        let init = mem::transmute::<NonNull<c_void>, CuInit>(init);
        let count_devices = mem::transmute::<NonNull<c_void>, CuDeviceGetCount>(count_devices);
        let mut count = 0;
        match init(0) {
            0 => (count_devices(&mut count), count),
            code => (code, 0),
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
    Library::load(DECODER).map(drop).map_err(|reason| {
        let set = capabilities.map_or("is not set".to_owned(), |set| format!("is {set:?}"));
        BackendError::unavailable(format!(
            "libnvcuvid.so.1 cannot be loaded although the NVIDIA driver is there: {reason}; in a \
             container NVIDIA_DRIVER_CAPABILITIES must name video, and it {set}"
        ))
    })
}

fn missing(library: &CStr, reason: String) -> BackendError {
    BackendError::unavailable(format!("{} cannot be loaded: {reason}", library.to_string_lossy()))
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

/// Library that stays loaded: drivers do not survive unloading.
pub(super) struct Library(NonNull<c_void>);

impl Library {
    pub(super) fn load(name: &CStr) -> Result<Library, String> {
        // SAFETY: the name is a C string; the initialisers that run are those of the system's own driver,
        // which have no preconditions.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Library).ok_or_else(|| {
            // SAFETY: after a failure the call returns a C string that lasts until the next call on this
            // thread, or null.
            let text = unsafe { libc::dlerror() };
            if text.is_null() {
                return "the loader does not say why".to_owned();
            }
            // SAFETY: as above, and not null.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        })
    }

    pub(super) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open and the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_said_in_the_loaders_words() {
        let error = Library::load(c"/nowhere/libcuda.so.1").err();
        let error = error.expect("there is none");
        assert!(error.contains("/nowhere/libcuda.so.1"), "{error}");
    }

    #[test]
    fn a_library_has_the_symbols_that_it_has() {
        let library = Library::load(c"libc.so.6").expect("every process has it");
        assert!(library.symbol(c"malloc").is_some());
        assert!(library.symbol(c"cuInit").is_none());
    }
}
