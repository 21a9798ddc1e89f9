//! Arenas of the C library's allocator.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "no safe wrapper sets the allocator"))]

/// Has the allocator keep as many arenas as there are cores; it would keep eight times as many.
///
/// A server's threads free what others allocated, so each arena keeps its peak: with eight a core, six minutes of mixed load on two cores
/// took 100 MB and more later, with one a core 50 MB. To be called before the first thread starts.
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let most = i32::try_from(cores.max(2)).unwrap_or(i32::MAX);
        // SAFETY: mallopt(3) takes two numbers and keeps no pointer; a number that it refuses changes nothing.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
    }
}

/// Returns memory that the allocator holds free to the system: whole pages, wherever they lie.
///
/// By itself it returns the end of an arena only, and a burst leaves something small there: a hundred megabytes after a flood of requests.
/// Takes a few milliseconds for each hundred megabytes, an arena locked meanwhile.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the allocator's own locks and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
