//! Arenas of the C library's allocator: their number, and the return of their free memory.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "no safe wrapper sets the allocator"))]

/// Limits the allocator to one arena per core; glibc's default is eight per core.
///
/// Threads free memory that others allocated, so each arena keeps its peak: six minutes of mixed load on two
/// cores took over 100 MB with eight per core, 50 MB with one. Call before the first thread starts.
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let most = i32::try_from(cores.max(2)).unwrap_or(i32::MAX);
        // SAFETY: mallopt(3) takes two integers and keeps no pointer; a refused value changes nothing.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
    }
}

/// Returns the allocator's free memory to the system: whole pages, anywhere in the heap.
///
/// The allocator itself returns only an arena's end, where a burst leaves small blocks: a flood of requests
/// leaves a hundred megabytes. Takes a few milliseconds per hundred megabytes, each arena locked meanwhile.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the allocator's own locks and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
